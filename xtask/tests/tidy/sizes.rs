//! A file past 400 lines of code is looked at twice: it is split, or it is named here with the reason why not.

use crate::accept;
use crate::source;
use crate::tree::{self, File};

const LIMIT_LINES: usize = 400;

/// Path and reason.
const MAY_BE_LONGER: &[(&str, &str)] = &[];

fn judge(files: &[File], may_be_longer: &[(&str, &str)]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        let lines = match (file.is("rs"), file.is("lua")) {
            (true, _) => code_lines(&file.text, "//"),
            (_, true) => code_lines(&file.text, "--"),
            _ => continue,
        };
        let excused = may_be_longer.iter().any(|(path, _)| *path == file.path);
        match (lines > LIMIT_LINES, excused) {
            (true, false) => complaints.push(format!(
                "{}: {lines} lines of code, more than {LIMIT_LINES}; split it by verb, or excuse it with a reason",
                file.path
            )),
            (false, true) => complaints.push(format!("{}: excused, and no longer too long", file.path)),
            _ => {}
        }
    }
    for (path, reason) in may_be_longer {
        if reason.is_empty() || !files.iter().any(|file| file.path == *path) {
            complaints.push(format!("{path}: an excuse without a reason or without a file"));
        }
    }
    complaints
}

/// Lines with code on them, tests inside the file not counted.
fn code_lines(text: &str, comment: &str) -> usize {
    let is_code = |line: &source::Line| !source::code(line.text, comment).trim().is_empty();
    source::production(text).iter().filter(|line| is_code(line)).count()
}

#[test]
fn no_file_is_too_long_without_a_reason() {
    accept(&judge(&tree::files(), MAY_BE_LONGER));
}

#[test]
fn a_long_file_is_refused_and_its_comments_and_tests_are_not_counted() {
    let file = |code: usize, extra: &str| File {
        path: "crates/a/src/b.rs".to_owned(),
        text: "f();\n".repeat(code) + extra,
    };
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    f();\n".repeat(500));
    let fits = [file(LIMIT_LINES, &("\n// remark\n".repeat(50) + &tests))];
    assert_eq!(judge(&fits, &[]), Vec::<String>::new());
    let long = [file(LIMIT_LINES + 1, "")];
    assert_eq!(judge(&long, &[]).len(), 1);
    assert_eq!(judge(&long, &[("crates/a/src/b.rs", "a table")]), Vec::<String>::new());
    assert_eq!(judge(&fits, &[("crates/a/src/b.rs", "a table")]).len(), 1);
    assert_eq!(judge(&[], &[("crates/a/src/b.rs", "a table")]).len(), 1);
}
