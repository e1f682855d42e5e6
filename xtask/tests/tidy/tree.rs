//! The files of the workspace: what version control would hold, read as text.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file; `path` is relative to the root, with `/`.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.ends_with(&format!(".{extension}"))
    }

    /// The crate's folder name for a file below `crates/`.
    pub(crate) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether the file is compiled for tests only, as far as its name says.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        in_tests_folder(&self.path) || name == "tests.rs" || name.ends_with("_tests.rs")
    }
}

/// Whether a path lies below a folder named `tests`.
pub(crate) fn in_tests_folder(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/")
}

/// The workspace's root. Asked at run time: two checkouts that share a target folder share this binary too.
pub(crate) fn root() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    own.parent().unwrap().to_path_buf()
}

/// Every readable text file outside build output and version control's own folder.
pub(crate) fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    walk(&root, &root, &mut found);
    assert!(
        found.iter().any(|file| file.path == "Cargo.toml"),
        "the walk began in the wrong folder: {}",
        root.display()
    );
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<File>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            let is_output = path.join("CACHEDIR.TAG").exists() || (folder == root && name == "target");
            if !is_output && name != ".git" {
                walk(root, &path, found);
            }
        } else if kind.is_file()
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.push(File { path, text });
        }
    }
}

#[test]
fn test_files_are_known_by_name_and_folder() {
    let file = |path: &str| File { path: path.to_owned(), text: String::new() };
    assert!(file("tests/src/drain.rs").is_test());
    assert!(file("crates/a/tests/b.rs").is_test());
    assert!(file("crates/a/src/settle/tests.rs").is_test());
    assert!(file("crates/a/src/settle_tests.rs").is_test());
    assert!(!file("crates/a/src/contests.rs").is_test());
    assert_eq!(file("crates/a/src/lib.rs").crate_name(), Some("a"));
    assert_eq!(file("tests/src/lib.rs").crate_name(), None);
}
