//! The table in `main.rs` names tests that exist.

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn names_tests_that_exist() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&here.join("promises"), &mut files);
    sources(&here.join("../crates"), &mut files);
    let named =
        include_str!("main.rs").split('`').skip(1).step_by(2).filter_map(|word| word.split_once("::"));
    let mut count = 0;
    for (module, test) in named {
        let of_module = files
            .iter()
            .filter(|file| file.with_extension("").components().any(|part| part.as_os_str() == module));
        let exists = of_module.clone().any(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            text.contains(&format!("fn {test}("))
        });
        assert!(
            exists,
            "the index names {module}::{test}, which is nowhere in {:?}",
            of_module.collect::<Vec<_>>()
        );
        count += 1;
    }
    assert!(count > 40, "the index could not be read: {count} names");
}
