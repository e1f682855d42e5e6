//! The pod templates of a release: of Deployments, of the hook that migrates, and of the test.

use crate::files;
use crate::helm::Helm;
use crate::objects::{Release, at};
use serde_json::Value;
use std::collections::BTreeMap;

/// One pod template.
#[derive(Debug)]
pub struct Pod<'a> {
    /// `Kind name` of what makes it.
    pub of: String,
    /// `metadata` and `spec`.
    pub template: &'a Value,
}

/// All of a release.
#[must_use]
pub fn all(release: &Release) -> Vec<Pod<'_>> {
    let pod = |(kind, name, object)| {
        let template = match kind {
            "Pod" => Some(object),
            _ => Value::pointer(object, "/spec/template"),
        };
        template.map(|template| Pod { of: format!("{kind} {name}"), template })
    };
    release.iter().filter_map(pod).collect()
}

/// The pods of a Deployment.
///
/// # Panics
/// There is no such Deployment.
#[must_use]
pub fn of_deployment<'a>(release: &'a Release, name: &str) -> Pod<'a> {
    let template = at(release.get("Deployment", name), "/spec/template");
    Pod { of: format!("Deployment {name}"), template }
}

/// Hands a test the pods of every Deployment in every file of values: the file, the release and the pod.
///
/// # Panics
/// There are hardly any, so that nothing would be tested.
pub fn of_every_file(helm: &Helm, mut test: impl FnMut(&str, &Release, &Pod<'_>)) {
    let mut seen = 0;
    for (name, values) in files::matrix() {
        let release = helm.render(&values);
        for deployment in release.of("Deployment") {
            test(&name, &release, &of_deployment(&release, deployment));
            seen += 1;
        }
    }
    assert!(seen > 12, "only {seen} pods");
}

impl<'a> Pod<'a> {
    /// The spec.
    #[must_use]
    pub fn spec(&self) -> &'a Value {
        at(self.template, "/spec")
    }

    /// The containers, those that run before included.
    #[must_use]
    pub fn containers(&self) -> Vec<&'a Value> {
        let list =
            |path| at(self.spec(), path).as_array().map_or_else(Vec::new, |list| list.iter().collect());
        [list("/initContainers"), list("/containers")].concat()
    }

    /// The container of the program.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn program(&self) -> &'a Value {
        let found = self.containers().into_iter().find(|container| container["name"] == "gristmill");
        found.unwrap_or_else(|| panic!("{} has no container named gristmill", self.of))
    }

    /// Its environment: the value, or where it comes from as JSON.
    ///
    /// # Panics
    /// A variable stands twice.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for variable in at(self.program(), "/env").as_array().into_iter().flatten() {
            let name = at(variable, "/name").as_str().unwrap_or_default().to_owned();
            let value = match at(variable, "/value") {
                Value::String(value) => value.clone(),
                _ => at(variable, "/valueFrom").to_string(),
            };
            assert!(found.insert(name.clone(), value).is_none(), "{}: {name} stands twice", self.of);
        }
        found
    }

    /// The arguments of the program.
    #[must_use]
    pub fn arguments(&self) -> Vec<&'a str> {
        at(self.program(), "/args").as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Where each file under `/run/gristmill` comes from: the path, and `SECRET/KEY`.
    #[must_use]
    pub fn secrets(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        let mounts = at(self.program(), "/volumeMounts").as_array();
        for mount in mounts.into_iter().flatten() {
            let volumes = at(self.spec(), "/volumes").as_array();
            let volume = volumes.into_iter().flatten().find(|volume| volume["name"] == mount["name"]);
            let secret = volume.map_or(&Value::Null, |volume| at(volume, "/secret"));
            for item in at(secret, "/items").as_array().into_iter().flatten() {
                let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let path = format!("{}/{}", word(&mount["mountPath"]), word(&item["path"]));
                found.insert(path, format!("{}/{}", word(&secret["secretName"]), word(&item["key"])));
            }
        }
        found
    }
}
