//! Every key known and every value of its type. What is known, and of which type, is read from the built-in defaults.

use super::layers::{self, BUILT_IN, PREFIX, SEPARATOR};
use super::{Fault, SettingsError, queue};
use config::{Config, Source, Value, ValueKind};
use std::collections::BTreeMap;

/// Keys whose values are never shown.
pub(super) const SECRET: &[&str] = &["redis.url"];

/// What is known of settings that are well.
pub(super) struct Checked {
    /// Where each value came from, by its key.
    pub(super) origins: BTreeMap<String, String>,
    /// What is said for one queue alone, by its key.
    pub(super) of_queues: BTreeMap<String, ValueKind>,
}

/// Complains about everything at once.
pub(super) fn check(merged: &Config) -> Result<Checked, SettingsError> {
    let read = |config: &Config| {
        config.collect().map_err(|error| SettingsError::from(Fault::Layer(format!("the settings: {error}"))))
    };
    let defaults =
        layers::built_in().build().map_err(|e| Fault::Layer(format!("the built-in defaults: {e}")))?;
    let mut known = BTreeMap::new();
    flatten("", read(&defaults)?, &mut known);
    let mut given = BTreeMap::new();
    flatten("", read(merged)?, &mut given);

    let mut faults = Vec::new();
    let (mut origins, mut of_queues) = (BTreeMap::new(), BTreeMap::new());
    for (key, value) in given {
        let origin = spelled(&key, value.origin());
        let general = queue::general(&key).filter(|_| !known.contains_key(&key));
        match known.get(general.as_ref().unwrap_or(&key)) {
            Some(default) => {
                if let Err((expected, got)) = fits(&key, &default.kind, &value.kind) {
                    faults.push(Fault::WrongValue { key, expected, got, origin });
                } else {
                    if general.is_some() {
                        of_queues.insert(key.clone(), value.kind);
                    }
                    origins.insert(key, origin);
                }
            }
            None if known.keys().any(|known| known.starts_with(&format!("{key}."))) => {
                let (expected, got) =
                    ("a section with settings of its own".into(), kind_of(&value.kind).to_owned());
                faults.push(Fault::WrongValue { key, expected, got, origin });
            }
            None => {
                let suggestion = nearest(&key, known.keys());
                faults.push(Fault::UnknownKey { key, origin, suggestion });
            }
        }
    }
    if faults.is_empty() { Ok(Checked { origins, of_queues }) } else { Err(SettingsError { faults }) }
}

/// Leaves by their full key. An empty section has none.
fn flatten(section: &str, table: config::Map<String, Value>, leaves: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = if section.is_empty() { name } else { format!("{section}.{name}") };
        match value.kind {
            ValueKind::Table(table) => flatten(&key, table, leaves),
            _ => {
                leaves.insert(key, value);
            }
        }
    }
}

/// The variable, where the layer is the environment.
fn spelled(key: &str, origin: Option<&str>) -> String {
    match origin {
        None => BUILT_IN.into(),
        Some("the environment") => {
            let name = key.to_uppercase().replace('.', SEPARATOR);
            format!("the variable {PREFIX}{SEPARATOR}{name}")
        }
        Some(other) => other.into(),
    }
}

/// Whether a value can stand where `default` stands; else what was expected and what came.
fn fits(key: &str, default: &ValueKind, value: &ValueKind) -> Result<(), (String, String)> {
    let refused = |expected: &str| {
        let got = if SECRET.contains(&key) { kind_of(value).into() } else { shown(value) };
        Err((expected.to_owned(), got))
    };
    match (default, value) {
        (ValueKind::I64(_) | ValueKind::U64(_), value) => match whole(value) {
            Some(_) => Ok(()),
            None if key.ends_with("_ms") => refused("a whole number of milliseconds"),
            None if key.ends_with("bytes") => refused("a whole number of bytes"),
            None => refused("a whole number"),
        },
        (ValueKind::Array(_), ValueKind::String(_)) => Ok(()),
        (ValueKind::Array(_), ValueKind::Array(texts))
            if texts.iter().all(|text| matches!(text.kind, ValueKind::String(_))) =>
        {
            Ok(())
        }
        (ValueKind::Array(_), _) => refused("a list of texts, or one text with commas"),
        (ValueKind::String(_), ValueKind::String(_)) => Ok(()),
        _ => refused("a text"),
    }
}

pub(super) fn whole(value: &ValueKind) -> Option<u64> {
    match value {
        ValueKind::I64(number) => u64::try_from(*number).ok(),
        ValueKind::U64(number) => Some(*number),
        ValueKind::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
    // What TOML can hold; the limits proper are far below.
    .filter(|number| i64::try_from(*number).is_ok())
}

pub(super) fn shown(value: &ValueKind) -> String {
    match value {
        ValueKind::String(text) => format!("{text:?}"),
        ValueKind::Array(values) => {
            let shown: Vec<String> = values.iter().map(|value| shown(&value.kind)).collect();
            format!("[{}]", shown.join(", "))
        }
        ValueKind::Nil => "nothing".into(),
        other => other.to_string(),
    }
}

fn kind_of(value: &ValueKind) -> &'static str {
    match value {
        ValueKind::Array(_) => "a list",
        ValueKind::Boolean(_) => "a truth value",
        ValueKind::String(_) => "a text",
        _ => "a number",
    }
}

/// The known key that was probably meant: the same last word in another section, or few letters changed.
fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> Option<String> {
    let last = key.rsplit('.').next().unwrap_or(key);
    let far = |known: &str| match known.rsplit('.').next() {
        Some(name) if name == last => 1,
        _ => distance(key, known),
    };
    let (distance, found) = known.map(|known| (far(known), known)).min()?;
    (distance <= 3.max(key.len() / 4)).then(|| found.clone())
}

/// Letters to insert, remove or change (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
