//! Each file of values in `ci/` is linted and rendered by both releases of Helm, to the same objects.

use gristmill_chart_tests::objects::Release;
use gristmill_chart_tests::{files, helm};

#[test]
fn and_are_linted() {
    for helm in helm::all() {
        for (name, values) in files::matrix() {
            assert_eq!(helm.lint(&values), None, "{helm} on {name}");
        }
    }
}

#[test]
fn to_the_same_objects() {
    let helms = helm::all();
    let [old, new] = &helms[..] else { return };
    for (name, values) in files::matrix() {
        for kubernetes in ["1.28.0", "1.37.0"] {
            let (old, new) = (old.render_for(kubernetes, &values), new.render_for(kubernetes, &values));
            assert_eq!(old.names(), new.names(), "{name} for {kubernetes}");
            for (kind, object, body) in old.iter() {
                assert_eq!(body, new.get(kind, object), "{name} for {kubernetes}: {kind} {object}");
            }
        }
    }
}

/// Kubernetes reads YAML 1.1, in which these are not text.
#[test]
fn without_words_that_are_read_in_two_ways() {
    for helm in helm::all() {
        for (name, values) in files::matrix() {
            let text = helm.text(&[], &values);
            assert_eq!(words_read_in_two_ways(&text), Vec::<&str>::new(), "{helm} on {name}");
        }
    }
}

fn words_read_in_two_ways(text: &str) -> Vec<&str> {
    let ambiguous = |value: &str| {
        let octal = value.len() > 1 && value.starts_with('0') && value.bytes().all(|b| b.is_ascii_digit());
        let sexagesimal = value.contains(':')
            && value.split(':').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        let words = ["y", "yes", "n", "no", "on", "off"];
        octal || sexagesimal || words.contains(&value.to_ascii_lowercase().as_str())
    };
    let value = |line: &str| line.split_once(": ").map_or(line, |(_, value)| value).trim().to_owned();
    text.lines()
        .filter(|line| {
            let plain = line.split(" #").next().unwrap_or_default().trim().trim_start_matches("- ");
            ambiguous(&value(plain))
        })
        .collect()
}

#[test]
fn a_planted_word_is_found() {
    let text = "a: yes\nb: \"yes\"\nc: 0440\nd: 8080\ne: 10:20\n- off\nf: node\n";
    assert_eq!(words_read_in_two_ways(text), ["a: yes", "c: 0440", "e: 10:20", "- off"]);
}

#[test]
fn a_key_that_stands_twice_is_found() {
    let twice = std::panic::catch_unwind(|| {
        Release::parse("kind: ConfigMap\nmetadata: {name: a}\ndata:\n  b: c\n  b: d\n")
    });
    assert!(twice.is_err());
}
