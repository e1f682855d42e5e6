//! The program of Prometheus that judges rules.

use gristmill_chart_tests::helm::skipped;
use serde_json::Value;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "GRISTMILL_PROMTOOL";

/// promtool, and a folder for what it reads, which is removed where the test passes.
pub(crate) struct Promtool {
    program: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Promtool {
    /// None where it is not there, and then the test says that it was skipped.
    pub(crate) fn find(test: &str) -> Option<Self> {
        let program = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let Some(program) = program else {
            skipped("promtool", &format!("{VARIABLE} is not set; `cargo xtask chart` fetches it"));
            return None;
        };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Some(Self { program, folder })
    }

    /// Writes groups of rules into a folder of their own, under the name that tests know them by.
    pub(crate) fn rules(&self, name: &str, groups: &Value) -> PathBuf {
        let path = self.folder.join(name).join("rules.yaml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // JSON is YAML.
        fs::write(&path, serde_json::json!({ "groups": groups }).to_string()).unwrap();
        path
    }

    /// `promtool check|test rules FILE…`: what it says, as an error where it is not content.
    pub(crate) fn judges(&self, how: &str, files: &[PathBuf]) -> Result<String, String> {
        let output = Command::new(&self.program).args([how, "rules"]).args(files).output();
        let output = output.unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said = text(&output.stdout) + &text(&output.stderr);
        if output.status.success() { Ok(said) } else { Err(said) }
    }
}

impl Drop for Promtool {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}
