//! Every key known and every value of its type. What is known, and of which type, is read from the built-in defaults.

use super::layers::{self, BUILT_IN, PREFIX, SEPARATOR};
use super::{Fault, SettingsError, kinds, queue, schedules};
use config::{Config, Source, Value, ValueKind};
use std::collections::BTreeMap;

/// Keys whose values are never shown.
pub(super) const SECRET: &[&str] = &["redis.url", "postgres.url"];

/// What is known of settings that are well.
pub(super) struct Checked {
    /// Where each value came from, by its key.
    pub(super) origins: BTreeMap<String, String>,
    /// What is said for one queue alone, by its key.
    pub(super) of_queues: BTreeMap<String, ValueKind>,
    /// What is said for one kind alone, by its key.
    pub(super) of_kinds: BTreeMap<String, ValueKind>,
    /// What is said of schedules.
    pub(super) of_schedules: schedules::OfSchedules,
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
    let mut faults = Vec::new();
    let (mut origins, mut of_queues, mut of_kinds) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let (mut all, mut given) = (read(merged)?, BTreeMap::new());
    let of_schedules = schedules::take(&mut all, &mut origins, &mut faults);
    flatten("", all, &mut given);

    for (key, value) in given {
        let origin = spelled(&key, value.origin());
        let like = Like::of(&key, &known);
        match like.as_ref().map(|like| fits(&key, &like.default, &value.kind)) {
            Some(Ok(())) => {
                match like.map(|like| like.whose) {
                    Some(Whose::Queue) => drop(of_queues.insert(key.clone(), value.kind)),
                    Some(Whose::Kind) => drop(of_kinds.insert(key.clone(), value.kind)),
                    Some(Whose::All) | None => {}
                }
                origins.insert(key, origin);
            }
            Some(Err((expected, got))) => faults.push(Fault::WrongValue { key, expected, got, origin }),
            None if known.keys().any(|known| known.starts_with(&format!("{key}."))) || key == "kinds" => {
                let (expected, got) =
                    ("a section with settings of its own".into(), kind_of(&value.kind).to_owned());
                faults.push(Fault::WrongValue { key, expected, got, origin });
            }
            None => {
                let suggestion = match kinds::parts(&key) {
                    Some((name, _)) => nearest(&key, of_kind(name, &known).iter()),
                    None => nearest(&key, known.keys()),
                };
                faults.push(Fault::UnknownKey { key, origin, suggestion });
            }
        }
    }
    if faults.is_empty() {
        Ok(Checked { origins, of_queues, of_kinds, of_schedules })
    } else {
        Err(SettingsError { faults })
    }
}

/// The setting whose form a key has.
struct Like {
    default: ValueKind,
    whose: Whose,
}

/// For whom a setting is said.
enum Whose {
    All,
    Queue,
    Kind,
}

impl Like {
    fn of(key: &str, known: &BTreeMap<String, Value>) -> Option<Self> {
        let like = |key: &str, whose| known.get(key).map(|value| Self { default: value.kind.clone(), whose });
        if let Some((_, setting)) = kinds::parts(key) {
            let own = kinds::own(setting).map(|default| Self { default, whose: Whose::Kind });
            return own.or_else(|| like(&format!("remote.{setting}"), Whose::Kind));
        }
        like(key, Whose::All).or_else(|| like(&queue::general(key)?, Whose::Queue))
    }
}

/// Every key there may be for one kind.
fn of_kind(name: &str, known: &BTreeMap<String, Value>) -> Vec<String> {
    let general = known.keys().filter_map(|key| key.strip_prefix("remote."));
    general.chain(kinds::OWN).map(|setting| format!("kinds.{name}.{setting}")).collect()
}

/// Leaves by their full key. An empty section has none.
fn flatten(section: &str, table: config::Map<String, Value>, leaves: &mut BTreeMap<String, Value>) {
    for (name, value) in table {
        let key = if section.is_empty() { name } else { format!("{section}.{name}") };
        match value.kind {
            ValueKind::Table(table) => flatten(&key, table, leaves),
            // A name with dots has two spellings, a table of that name and tables in tables: the later layer wins.
            _ if leaves.get(&key).is_some_and(|there| layer(there) > layer(&value)) => {}
            _ => {
                leaves.insert(key, value);
            }
        }
    }
}

/// How late a layer the value is from.
fn layer(value: &Value) -> u8 {
    match value.origin() {
        None => 0,
        Some("the environment") => 2,
        Some(origin) if origin == "dev" || origin.starts_with("--") => 3,
        Some(_) => 1,
    }
}

/// The variable, where the layer is the environment.
pub(super) fn spelled(key: &str, origin: Option<&str>) -> String {
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
pub(super) fn fits(key: &str, default: &ValueKind, value: &ValueKind) -> Result<(), (String, String)> {
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
        (ValueKind::Float(_), value) => match value {
            ValueKind::Float(_) | ValueKind::I64(_) | ValueKind::U64(_) => Ok(()),
            ValueKind::String(text) if text.parse::<f64>().is_ok_and(f64::is_finite) => Ok(()),
            _ => refused("a number"),
        },
        (ValueKind::Array(_), ValueKind::String(_)) => Ok(()),
        (ValueKind::Array(_), ValueKind::Array(texts))
            if texts.iter().all(|text| matches!(text.kind, ValueKind::String(_))) =>
        {
            Ok(())
        }
        (ValueKind::Array(_), _) => refused("a list of texts, or one text with commas"),
        (ValueKind::Boolean(_), ValueKind::Boolean(_)) => Ok(()),
        (ValueKind::Boolean(_), ValueKind::String(text)) if matches!(text.as_str(), "true" | "false") => {
            Ok(())
        }
        (ValueKind::Boolean(_), _) => refused("true or false"),
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
pub(super) fn nearest<'a>(key: &str, known: impl Iterator<Item = &'a String>) -> Option<String> {
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
