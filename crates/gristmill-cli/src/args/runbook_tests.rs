//! What docs/RUNBOOK.md tells a tired person to type is taken by the program as it is.

use super::Arguments;
use clap::Parser;
use std::path::PathBuf;

/// What stands in code blocks and in code spans, line by line.
fn code(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut block = false;
    for line in text.lines() {
        match (line.starts_with("```"), block) {
            (true, _) => block = !block,
            (false, true) => found.push(line),
            (false, false) => found.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    found
}

/// The commands among them: at the beginning, or what a pod is to run.
fn commands(text: &str) -> Vec<&str> {
    let command = |code: &&str| code.starts_with("gristmill ");
    let all = code(text);
    // In the image the program lies at the root, and there is no PATH.
    let in_pods = all.iter().filter_map(|code| code.split_once(" -- /")).map(|(_, rest)| rest);
    all.iter().copied().chain(in_pods).filter(command).collect()
}

/// Words as a shell takes them, as far as double quotes go.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in command.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    assert!(!quoted, "{command}");
    words
}

#[test]
fn every_command_of_the_runbook_is_one() {
    let folder = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let text = std::fs::read_to_string(folder.join("../../docs/RUNBOOK.md")).unwrap();
    let commands = commands(&text);
    assert!(commands.len() > 40, "{commands:?}");
    for command in commands {
        let Err(error) = Arguments::try_parse_from(words(command)) else { continue };
        panic!("{command}\n{error}");
    }
}

#[test]
fn commands_are_found_in_blocks_spans_and_pods_and_wrong_ones_are_refused() {
    let text = "see `gristmill queues`, not `gristmill_queues` nor gristmill doctor\n```sh\ngristmill dead show L\n\
                kubectl exec POD -- /gristmill keys skip q k --yes --reason \"a b\"\nother\n```\n";
    let found = commands(text);
    let skip = "gristmill keys skip q k --yes --reason \"a b\"";
    assert_eq!(found, ["gristmill queues", "gristmill dead show L", skip]);
    assert_eq!(words(skip).last().unwrap(), "a b");
    assert!(found.iter().all(|command| Arguments::try_parse_from(words(command)).is_ok()));
    assert!(Arguments::try_parse_from(words("gristmill dead list q --newest")).is_err());
}
