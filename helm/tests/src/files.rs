//! Where the chart lies, and its files.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder `helm` of this checkout.
#[must_use]
pub fn helm() -> PathBuf {
    let own = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    own.parent().map(Path::to_path_buf).unwrap_or(own)
}

/// The folder of the chart.
#[must_use]
pub fn chart() -> PathBuf {
    helm().join("gristmill")
}

/// A file of the chart.
///
/// # Panics
/// There is no such file.
#[must_use]
pub fn read(path: &str) -> String {
    text(&chart().join(path))
}

/// A file.
///
/// # Panics
/// There is no such file.
#[must_use]
pub fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of values that the chart is tested with, by name.
///
/// # Panics
/// There are none.
#[must_use]
pub fn matrix() -> Vec<(String, String)> {
    let folder = chart().join("ci");
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found: Vec<_> = entries
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), text(&entry.path())))
        .collect();
    found.sort();
    assert!(found.len() > 4, "{} holds only {} files", folder.display(), found.len());
    found
}

/// Copies a folder with all that is in it.
///
/// # Panics
/// It cannot be copied.
pub fn copy(from: &Path, to: &Path) {
    let failed = |error: std::io::Error| -> ! { panic!("{} to {}: {error}", from.display(), to.display()) };
    fs::create_dir_all(to).unwrap_or_else(|error| failed(error));
    for entry in fs::read_dir(from).unwrap_or_else(|error| failed(error)).flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap_or_else(|error| failed(error));
        }
    }
}
