//! What an API server takes: the definitions of Kubernetes, which refuse unknown fields, and our own of the objects that
//! operators bring.

use crate::files;
use crate::helm::skipped;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The releases that are looked at: the oldest that the chart supports, and then every third.
pub const RELEASES: [&str; 4] = ["1.28", "1.31", "1.34", "1.37"];

/// Kinds that no API server knows by itself. The schemas hold the fields that the chart may write, as KEDA 2.16 and the
/// Prometheus operator 0.80 have them, and no others.
const OPERATORS: [&str; 4] = ["ScaledObject", "PodMonitor", "ServiceMonitor", "PrometheusRule"];

/// The kinds of one release of Kubernetes.
pub struct Kinds {
    release: String,
    definitions: Value,
    compiled: BTreeMap<String, Validator>,
}

impl Kinds {
    /// Reads the definitions of a release; says that the test was skipped where they are not there.
    ///
    /// # Panics
    /// The folder is told and the file cannot be read.
    #[must_use]
    pub fn of(release: &str) -> Option<Self> {
        let variable = "GRISTMILL_KUBERNETES_SCHEMAS";
        let Some(folder) = std::env::var_os(variable).filter(|path| !path.is_empty()) else {
            skipped(
                &format!("Kubernetes {release}"),
                &format!("{variable} is not set; `cargo xtask chart` fetches them"),
            );
            return None;
        };
        let file = PathBuf::from(folder).join(format!("{release}.json"));
        let definitions: Value = serde_json::from_str(&files::text(&file))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Some(Self { release: release.to_owned(), definitions, compiled: BTreeMap::new() })
    }

    /// What this release says against an object; nothing where it takes it.
    ///
    /// # Panics
    /// It knows no such kind.
    pub fn complaints(&mut self, object: &Value) -> Vec<String> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let id = format!("{version} {kind}");
        if !self.compiled.contains_key(&id) {
            let validator = if OPERATORS.contains(&kind.as_str()) {
                let file = files::helm().join(format!("tests/crds/{kind}.json"));
                let schema: Value = serde_json::from_str(&files::text(&file))
                    .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                compile(&schema)
            } else {
                let name = self.definition(&version, &kind);
                compile(&json!({
                    "$schema": "https://json-schema.org/draft/2020-12/schema",
                    "$ref": format!("#/$defs/{name}"),
                    "$defs": self.definitions["$defs"],
                }))
            };
            self.compiled.insert(id.clone(), validator);
        }
        let errors = self.compiled[&id].iter_errors(object);
        errors.map(|error| format!("{id} on {}: {}: {error}", self.release, error.instance_path())).collect()
    }

    fn definition(&self, version: &str, kind: &str) -> String {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let wanted = json!({"group": group, "version": version, "kind": kind});
        let definitions = self.definitions["$defs"].as_object().into_iter().flatten();
        let mut fitting = definitions.filter(|(_, definition)| {
            let names = definition["x-kubernetes-group-version-kind"].as_array();
            names.is_some_and(|names| names.contains(&wanted))
        });
        let found = fitting.next().map(|(name, _)| name.clone());
        found.unwrap_or_else(|| panic!("Kubernetes {} knows no {kind} of {version}", self.release))
    }
}

fn compile(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).unwrap_or_else(|error| panic!("a schema: {error}"))
}
