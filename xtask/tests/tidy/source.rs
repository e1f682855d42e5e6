//! Enough of Rust's and Lua's surface to tell production code from tests, comments and strings. It goes by lines and
//! by how rustfmt lays code out; it is no parser, and a multi-line raw string can fool it.

/// A line of a file; `number` counts from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) number: usize,
    pub(crate) text: &'a str,
}

/// All lines but those of `#[cfg(test)] mod … { … }` blocks at the top level.
pub(crate) fn production(text: &str) -> Vec<Line<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let opens = |line: &&str| line.starts_with("mod ") && line.ends_with('{');
        if lines[at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(opens) {
            while at < lines.len() && lines[at] != "}" {
                at += 1;
            }
        } else {
            kept.push(Line { number: at + 1, text: lines[at] });
        }
        at += 1;
    }
    kept
}

/// The line without a comment; `marker` is `//` or `--`.
pub(crate) fn code<'a>(line: &'a str, marker: &str) -> &'a str {
    let mut quote = None;
    let mut escaped = false;
    for (at, letter) in line.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some(open) if letter == open => quote = None,
            Some(_) => {}
            None if line[at..].starts_with(marker) => return &line[..at],
            None if opens_string(line, at, marker) => quote = Some(letter),
            None => {}
        }
    }
    line
}

/// The contents of the line's string literals.
pub(crate) fn strings<'a>(line: &'a str, marker: &str) -> Vec<&'a str> {
    let line = code(line, marker);
    let mut found = Vec::new();
    let mut open: Option<(char, usize)> = None;
    let mut escaped = false;
    for (at, letter) in line.char_indices() {
        match open {
            Some(_) if escaped => escaped = false,
            Some(_) if letter == '\\' => escaped = true,
            Some((quote, start)) if letter == quote => {
                found.push(&line[start..at]);
                open = None;
            }
            Some(_) => {}
            None if opens_string(line, at, marker) => open = Some((letter, at + 1)),
            None => {}
        }
    }
    found
}

/// In Rust `'` begins a lifetime or a character, and `'"'` is a character that looks like a string's beginning.
fn opens_string(line: &str, at: usize, marker: &str) -> bool {
    let lua = marker == "--";
    match line.as_bytes()[at] {
        b'"' => lua || !line[..at].ends_with('\''),
        b'\'' => lua,
        _ => false,
    }
}

#[test]
fn a_test_module_is_no_production_code_and_what_follows_it_is() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod far;\n";
    let kept: Vec<_> = production(text).iter().map(|line| (line.number, line.text)).collect();
    assert_eq!(kept, [(1, "fn a() {}"), (6, "fn c() {}"), (7, "#[cfg(test)]"), (8, "mod far;")]);
}

#[test]
fn comments_end_the_code_and_strings_may_hold_what_looks_like_one() {
    assert_eq!(code("let a = 1; // b", "//"), "let a = 1; ");
    assert_eq!(code("let a = \"x // y\";", "//"), "let a = \"x // y\";");
    assert_eq!(code("local a = '--' -- b", "--"), "local a = '--' ");
}

#[test]
fn strings_are_found_beside_characters_lifetimes_and_escapes() {
    assert_eq!(strings(r#"f::<'a>('"', "one", "t\"wo") // "three""#, "//"), ["one", r#"t\"wo"#]);
    assert_eq!(strings("f('one', \"two\") -- 'three'", "--"), ["one", "two"]);
}
