//! Tests do not sleep until something has probably happened: they wait on a signal, or poll with a deadline (the
//! testkit has a function for it). A sleep that is something else, such as the work of a handler, says so:
//! `// not a wait: <what it is>` on its line or the line before.

use crate::accept;
use crate::source;
use crate::tree::{self, File};

const EXCUSE: &str = "// not a wait: ";

fn judge(files: &[File]) -> Vec<String> {
    let tests = files.iter().filter(|file| file.is("rs") && tree::in_tests_folder(&file.path));
    tests.flat_map(judge_one).collect()
}

fn judge_one(file: &File) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut before = "";
    for (at, line) in file.text.lines().enumerate() {
        let code = source::code(line, "//");
        let excused = [line, before].iter().any(|line| is_excused(line));
        if sleeps(code) && !excused {
            complaints.push(format!(
                "{}:{}: a sleep in a test: wait for the state itself, or say `{EXCUSE}…`",
                file.path,
                at + 1
            ));
        }
        before = line;
    }
    complaints
}

/// A call of something named `sleep`, outside string literals.
fn sleeps(code: &str) -> bool {
    let in_strings: usize =
        source::strings(code, "//").iter().map(|text| text.matches("sleep(").count()).sum();
    code.matches("sleep(").count() > in_strings
}

fn is_excused(line: &str) -> bool {
    line.split_once(EXCUSE).is_some_and(|(_, what)| what.split_whitespace().count() >= 2)
}

#[test]
fn no_test_sleeps_to_wait_for_a_state() {
    accept(&judge(&tree::files()));
}

#[test]
fn a_sleep_is_refused_and_one_that_says_what_it_is_is_not() {
    let file = |path: &str, text: &str| vec![File { path: path.to_owned(), text: text.to_owned() }];
    let nap = "    thread::sleep(NAP);\n";
    assert_eq!(judge(&file("tests/src/drain.rs", nap)).len(), 1);
    assert_eq!(judge(&file("crates/a/tests/b.rs", nap)).len(), 1);
    assert_eq!(judge(&file("crates/a/src/b.rs", nap)).len(), 0);
    let excused = "    // not a wait: the handler's work\n    sleep(NAP);\n";
    assert_eq!(judge(&file("tests/src/drain.rs", excused)).len(), 0);
    let empty = "    sleep(NAP); // not a wait: \n";
    assert_eq!(judge(&file("tests/src/drain.rs", empty)).len(), 1);
    let words = "    // sleep(NAP)\n    say(\"sleep(NAP)\");\n";
    assert_eq!(judge(&file("tests/src/drain.rs", words)).len(), 0);
}
