//! The tree speaks of nobody's machine: no absolute path of a place where somebody happened to work.

use crate::accept;
use crate::tree::{self, File};

/// Each is spelled in two halves, or this file would refuse itself.
const FORBIDDEN: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/tmp/tar", "get-"), concat!("/home", "/"), concat!("/Us", "ers/")];

fn judge(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        for (at, line) in file.text.lines().enumerate() {
            for word in FORBIDDEN.iter().filter(|word| line.contains(**word)) {
                complaints.push(format!("{}:{}: names a place of one machine: {word}", file.path, at + 1));
            }
        }
    }
    complaints
}

#[test]
fn no_file_names_a_place_of_one_machine() {
    accept(&judge(&tree::files()));
}

#[test]
fn a_planted_path_is_refused_with_its_line() {
    let planted =
        File { path: "docs/A.md".to_owned(), text: format!("fine: network/x\nsee {}main\n", FORBIDDEN[0]) };
    let complaints = judge(&[planted]);
    assert_eq!(complaints.len(), 1);
    assert!(complaints[0].starts_with("docs/A.md:2:"));
}
