//! A rendered release: its objects by kind and name.

use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that Helm would send, hooks and tests included.
#[derive(Debug, Clone, PartialEq)]
pub struct Release {
    objects: BTreeMap<(String, String), Value>,
}

impl Release {
    /// Reads documents of YAML.
    ///
    /// # Panics
    /// They are none, a key stands twice in a map, or an object of the same kind and name comes twice.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let mut objects = BTreeMap::new();
        for object in documents.into_iter().filter(|document| !document.is_null()) {
            let word =
                |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
            let id = (word("/kind"), word("/metadata/name"));
            assert!(!id.0.is_empty() && !id.1.is_empty(), "an object without kind or name:\n{object:#}");
            assert!(objects.insert(id.clone(), object).is_none(), "{} {} comes twice", id.0, id.1);
        }
        Self { objects }
    }

    /// All of them, by kind and name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.objects.iter().map(|((kind, name), object)| (kind.as_str(), name.as_str(), object))
    }

    /// One of them.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn get(&self, kind: &str, name: &str) -> &Value {
        self.find(kind, name).unwrap_or_else(|| panic!("no {kind} {name}; there are {:?}", self.names()))
    }

    /// One of them, if it is there.
    #[must_use]
    pub fn find(&self, kind: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), name.to_owned()))
    }

    /// `Kind name` of all.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.objects.keys().map(|(kind, name)| format!("{kind} {name}")).collect()
    }

    /// The names of a kind.
    #[must_use]
    pub fn of(&self, kind: &str) -> Vec<&str> {
        self.objects.keys().filter(|(k, _)| k == kind).map(|(_, name)| name.as_str()).collect()
    }
}

/// The value at `/a/b/0`; null where there is none.
#[must_use]
pub fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}
