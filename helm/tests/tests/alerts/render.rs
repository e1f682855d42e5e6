//! The alerts as helm renders them, in a chart that is made for it: what is tested is the file, whoever includes it.

use crate::tools::{folder, helm, helm_folder, read, run};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As the chart's own template includes it.
const TEMPLATE: &str = "\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ .Release.Name }}
spec:
  {{- tpl (.Files.Get \"files/alerts.yaml\") . | nindent 2 }}
";

pub(crate) const NAMESPACE: &str = "prod";

/// The default values: the chart's, or the part of them that lies apart until the chart has them.
pub(crate) fn values() -> PathBuf {
    let apart = helm_folder().join("values-fragment-alerts.yaml");
    if apart.exists() { apart } else { helm_folder().join("gristmill/values.yaml") }
}

pub(crate) struct Chart {
    helm: PathBuf,
    pub(crate) folder: PathBuf,
}

/// An alert as Prometheus will have it.
#[derive(Debug)]
pub(crate) struct Alert {
    pub(crate) name: String,
    pub(crate) expr: String,
    pub(crate) severity: String,
    pub(crate) annotations: Value,
}

impl Chart {
    /// None without helm, and then the test says so.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let helm = helm(test)?;
        let folder = folder(test);
        let file = |path: &str, text: &str| {
            let path = folder.join("chart").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        file("Chart.yaml", "apiVersion: v2\nname: alerts\nversion: 0.0.0\n");
        file("templates/rules.yaml", TEMPLATE);
        file("files/alerts.yaml", &read(&helm_folder().join("gristmill/files/alerts.yaml")));
        file("values.yaml", &read(&values()));
        Some(Self { helm, folder })
    }

    /// The `spec` of the rendered object, or why helm refused.
    pub(crate) fn render(&self, more: &[&str]) -> Result<Value, String> {
        let mut command = Command::new(&self.helm);
        command.args(["template", "mill"]).arg(self.folder.join("chart")).args(["--namespace", NAMESPACE]);
        let text = run(command.args(["--show-only", "templates/rules.yaml"]).args(more))?;
        let mut object: Value =
            serde_saphyr::from_str(&text).map_err(|error| format!("no YAML: {error}\n{text}"))?;
        Ok(object["spec"].take())
    }

    /// Renders into `rules.yaml` in a folder, for promtool.
    pub(crate) fn rules_for_promtool(&self, folder: &Path, more: &[&str]) -> PathBuf {
        let path = folder.join("rules.yaml");
        fs::create_dir_all(folder).unwrap();
        // JSON is YAML.
        fs::write(&path, self.render(more).unwrap().to_string()).unwrap();
        path
    }

    pub(crate) fn alerts(&self) -> Vec<Alert> {
        let spec = self.render(&[]).unwrap();
        let groups = spec["groups"].as_array().unwrap();
        let alerts: Vec<Alert> =
            groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).map(alert).collect();
        assert!(alerts.len() >= 12, "too few: {alerts:?}");
        alerts
    }
}

impl Drop for Chart {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

fn alert(rule: &Value) -> Alert {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("no text in {rule}")).to_owned();
    Alert {
        name: text(&rule["alert"]),
        expr: text(&rule["expr"]),
        severity: text(&rule["labels"]["severity"]),
        annotations: rule["annotations"].clone(),
    }
}
