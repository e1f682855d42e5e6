//! The two releases of Helm, told by the environment, and what they say to values.

use crate::files;
use crate::objects::Release;
use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

/// The release of Kubernetes that is rendered for where a test does not care.
pub const KUBERNETES: &str = "1.34.0";

/// A program.
#[derive(Debug, Clone)]
pub struct Helm {
    name: &'static str,
    program: PathBuf,
}

impl fmt::Display for Helm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

const KNOWN: [(&str, &str); 2] = [("Helm 3", "GRISTMILL_HELM_3"), ("Helm 4", "GRISTMILL_HELM_4")];

/// Those that are there; for each that is not, the test says that it was skipped.
#[must_use]
pub fn all() -> Vec<Helm> {
    let there = KNOWN.iter().filter_map(|(name, variable)| {
        let program = std::env::var_os(variable).filter(|path| !path.is_empty());
        if program.is_none() {
            skipped(name, &format!("{variable} is not set; `cargo xtask chart` fetches it"));
        }
        Some(Helm { name, program: PathBuf::from(program?) })
    });
    there.collect()
}

/// Runs a test with one Helm, the newest there is: for what does not depend on its release.
pub fn with_one(test: impl Fn(&Helm)) {
    if let Some(helm) = all().last() {
        test(helm);
    }
}

/// Says once for each tool what is not tested. Not `eprintln!`, which a test harness keeps to itself where the test passes.
pub fn skipped(what: &str, why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let first = SAID.lock().map_or(true, |mut said| said.insert(what.to_owned()));
    if first {
        let _ = writeln!(std::io::stderr(), "SKIPPED what is tested with {what}: {why}");
    }
}

impl Helm {
    /// What these values become; release `r` in namespace `jobs`.
    ///
    /// # Panics
    /// Helm refuses them.
    #[must_use]
    pub fn render(&self, values: &str) -> Release {
        self.render_for(KUBERNETES, values)
    }

    /// The same for a release of Kubernetes.
    ///
    /// # Panics
    /// Helm refuses them.
    #[must_use]
    pub fn render_for(&self, kubernetes: &str, values: &str) -> Release {
        Release::parse(&self.text(&["--kube-version", kubernetes], values))
    }

    /// The same by a chart of another version with the same templates.
    ///
    /// # Panics
    /// The chart cannot be copied, or Helm refuses the values.
    #[must_use]
    pub fn at_version(&self, version: &str, values: &str) -> Release {
        let copy = std::env::temp_dir().join(format!("gristmill-chart-{version}-{}", std::process::id()));
        files::copy(&files::chart(), &copy);
        let about = files::text(&copy.join("Chart.yaml"));
        let old = about.lines().find(|line| line.starts_with("version:")).unwrap_or_default();
        let written =
            std::fs::write(copy.join("Chart.yaml"), about.replace(old, &format!("version: {version}")));
        let options = ["--namespace", "jobs", "--kube-version", KUBERNETES];
        let output = self.run_on(&copy, "template", &options, values);
        let removed = std::fs::remove_dir_all(&copy);
        assert!(written.is_ok() && removed.is_ok() && output.status.success(), "{self}: {}", said(&output));
        Release::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// The text that comes out.
    ///
    /// # Panics
    /// Helm refuses them.
    #[must_use]
    pub fn text(&self, options: &[&str], values: &str) -> String {
        let output = self.run("template", &[&["--namespace", "jobs"], options].concat(), values);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{self}: {}\n{values}", said(&output));
        text
    }

    /// What Helm says to values that it refuses.
    ///
    /// # Panics
    /// It takes them.
    #[must_use]
    pub fn refusal(&self, values: &str) -> String {
        let output = self.run("template", &["--kube-version", KUBERNETES], values);
        assert!(!output.status.success(), "{self} takes what it should refuse:\n{values}");
        said(&output)
    }

    /// What it complains of; `None` when nothing.
    #[must_use]
    pub fn lint(&self, values: &str) -> Option<String> {
        let output = self.run("lint", &["--strict"], values);
        (!output.status.success()).then(|| said(&output) + &String::from_utf8_lossy(&output.stdout))
    }

    /// The notes that a person reads after an installation; only Helm 4 shows them without a cluster.
    #[must_use]
    pub fn notes(&self, options: &[&str], values: &str) -> Option<String> {
        let options = [&["--dry-run=client", "--namespace", "jobs"], options].concat();
        let output = self.run("install", &options, values);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then(|| text.split("NOTES:").nth(1).unwrap_or_default().trim().to_owned())
    }

    fn run(&self, command: &str, options: &[&str], values: &str) -> Output {
        self.run_on(&files::chart(), command, options, values)
    }

    fn run_on(&self, chart: &Path, command: &str, options: &[&str], values: &str) -> Output {
        let mut run = Command::new(&self.program);
        run.arg(command);
        if command != "lint" {
            run.arg("r");
        }
        run.arg(chart).args(options).args(["--values", "-"]);
        // No folder of the person who runs the tests, and no cluster.
        run.env("HELM_CACHE_HOME", "/nonexistent").env("KUBECONFIG", "/nonexistent");
        let child = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(values.as_bytes()));
        assert!(matches!(written, Some(Ok(()))), "{self} does not read its values");
        child.wait_with_output().unwrap_or_else(|error| panic!("{self}: {error}"))
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}
