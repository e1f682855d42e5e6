use super::*;

/// One thread, backtraces on: two tests of a library fail, one binary aborts, one leaves, one fails, and a doc test.
const TESTS: &str = include_str!("captured/tests.txt");
/// In colour: two errors in one test binary, so that nothing runs.
const COMPILER: &str = include_str!("captured/compiler.txt");

fn said(output: &str) -> String {
    let mut failures = Failures::default();
    // Pieces that end in the middle of lines, as a pipe gives them.
    for piece in output.as_bytes().chunks(100) {
        failures.hear(piece);
    }
    failures.said()
}

#[track_caller]
fn in_order(text: &str, words: &[&str]) {
    let mut rest = text;
    for word in words {
        match rest.split_once(word) {
            Some((_, behind)) => rest = behind,
            None => panic!("`{word}` is not there, or not in order:\n{text}"),
        }
    }
}

#[test]
fn each_failed_binary_says_again_what_failed() {
    let text = said(TESTS);
    in_order(
        &text,
        &[
            "==== what failed: Running unittests src/lib.rs (target/debug/deps/sample-",
            "---- tests::answers_an_error stdout ----\nError: \"no such thing\"\n",
            "---- tests::long stdout ----\n",
            "in a thread",
            "assertion `left == right` failed: two is not three\nand that in two lines\n  left: 2\n right: 3\n",
            "==== what failed: Running tests/aborts.rs",
            "==== what failed: Running tests/later.rs",
            "---- also_fails stdout ----",
            "second binary\n",
            "==== what failed: Doc-tests sample",
            "Test executable failed (exit status: 101).",
            "error: 5 targets failed:\n    `--lib`\n    `--test aborts`",
        ],
    );
    assert!(!text.contains("tests::good"), "{text}");
}

#[test]
fn a_binary_that_died_says_its_last_lines_and_how_it_ended() {
    in_order(
        &said(TESTS),
        &[
            "running 2 tests\ntest ends_the_process ... error: test failed, to rerun pass `--test aborts`\n",
            "(signal: 6, SIGABRT: process abort signal)\n",
            "==== what failed: Running tests/exits.rs",
            "test leaves ... error: test failed, to rerun pass `--test exits`\n",
            "(exit status: 3)\n",
        ],
    );
}

#[test]
fn backtraces_are_left_out() {
    assert!(TESTS.contains("stack backtrace:") && TESTS.contains("core::panicking::panic_fmt"));
    let text = said(TESTS);
    for word in ["stack backtrace:", "panic_fmt", "panicking.rs", "Some details are omitted"] {
        assert!(!text.contains(word), "{word} in:\n{text}");
    }
}

#[test]
fn a_long_test_begins_with_its_first_panic_when_not_all_fits() {
    let text = said(TESTS);
    // Seventy lines were said before the first of its two panics; the room left by the panics is for the last of them.
    assert!(!text.contains("said before the panic: 0\n"), "{text}");
    in_order(
        &text,
        &[
            "lines left out]\nsaid before the panic: ",
            "said before the panic: 69\n",
            "in a thread",
            "two lines",
        ],
    );

    let mut lines = vec!["---- a stdout ----".to_owned(), "before".to_owned()];
    lines.push("thread 'a' (1) panicked at src/lib.rs:1:1:".to_owned());
    lines.extend((0..100).map(|number| format!("after {number}")));
    let mut short = String::new();
    assert_eq!(Section::new(lines).write(&mut short, 4), 4);
    assert_eq!(
        short,
        "---- a stdout ----\n[1 lines left out]\nthread 'a' (1) panicked at src/lib.rs:1:1:\nafter 0\nafter 1\n[98 lines left out]\n\n"
    );
}

#[test]
fn all_of_it_is_bounded_and_what_found_no_room_is_named() {
    let mut output = "     Running tests/many.rs (target/debug/deps/many-1)\n\nfailures:\n\n".to_owned();
    for test in 0..20 {
        let _ = writeln!(output, "---- test_{test} stdout ----");
        (0..50).for_each(|line| writeln!(output, "line {line} of {test}").unwrap());
    }
    output.push_str("\nfailures:\n    test_0\n\ntest result: FAILED. 0 passed; 20 failed\n");
    let text = said(&output);
    assert_eq!(text.matches("line ").count() + text.matches("---- test_").count(), ALL_LINES + 16);
    in_order(
        &text,
        &["line 49 of 2", "line 45 of 3", "---- test_4 stdout ----  (said above", "---- test_19 stdout"],
    );
}

#[test]
fn errors_of_the_compiler_are_said_without_their_colour() {
    let text = said(COMPILER);
    in_order(
        &text,
        &[
            "==== what failed: before any test ran",
            "error[E0308]: mismatched types\n --> tests/broken.rs:2:28\n",
            "expected due to this\n",
            "error[E0425]: cannot find function `missing` in this scope",
            "error: could not compile `sample` (test \"broken\") due to 2 previous errors",
        ],
    );
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn with_nocapture_the_names_are_said() {
    let text = said(
        "     Running tests/a.rs (target/a)\n\nrunning 1 test\nthread 'a' panicked at a:1\nno\ntest a ... FAILED\n\nfailures:\n\n\
         failures:\n    a\n\ntest result: FAILED. 0 passed; 1 failed\n",
    );
    in_order(&text, &["Running tests/a.rs", "a\n"]);
}

#[test]
fn a_run_without_failures_says_nothing() {
    assert_eq!(
        said(
            "     Running tests/a.rs (target/a)\n\nrunning 1 test\ntest a ... ok\n\ntest result: ok. 1 passed\n\n"
        ),
        ""
    );
}
