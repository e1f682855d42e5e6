//! Recurring jobs: `schedules.NAME.SETTING`, and what may be said for all of them (`schedule.SETTING`).

use super::{Fault, Settings, SettingsError, check};
use config::{Value, ValueKind};
use gristmill_schedule::{CatchUp, Overlap, Schedule, ScheduleError, Timing, TimingError};
use serde::Deserialize;
use serde_json::{Map, Number, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// What holds for every schedule that does not say otherwise.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScheduleSection {
    timezone: String,
    catch_up: String,
    catch_up_window_ms: u64,
    overlap: String,
}

impl ScheduleSection {
    pub(super) fn entries(&self) -> Vec<(&'static str, serde_json::Value)> {
        vec![
            ("schedule.timezone", json!(self.timezone)),
            ("schedule.catch_up", json!(self.catch_up)),
            ("schedule.catch_up_window_ms", json!(self.catch_up_window_ms)),
            ("schedule.overlap", json!(self.overlap)),
        ]
    }
}

/// What may be said of one schedule; a payload may be anything.
const TEXTS: [&str; 9] =
    ["queue", "kind", "cron", "every", "anchor", "timezone", "key", "catch_up", "overlap"];
const WINDOW: &str = "catch_up_window_ms";
const ENABLED: &str = "enabled";
const PAYLOAD: &str = "payload";

/// What is said of each, by its name and the setting.
pub(super) type OfSchedules = BTreeMap<String, BTreeMap<String, ValueKind>>;

/// Takes the schedules out of the settings, and complains about each by itself.
pub(super) fn take(
    all: &mut config::Map<String, Value>,
    origins: &mut BTreeMap<String, String>,
    faults: &mut Vec<Fault>,
) -> OfSchedules {
    let mut found = OfSchedules::new();
    let Some(section) = all.remove("schedules") else { return found };
    let origin = check::spelled("schedules", section.origin());
    let ValueKind::Table(schedules) = section.kind else {
        let (expected, got) = ("a section for each schedule".into(), check::shown(&section.kind));
        faults.push(Fault::WrongValue { key: "schedules".into(), expected, got, origin });
        return found;
    };
    for (name, value) in schedules {
        let key = format!("schedules.{name}");
        let origin = check::spelled(&key, value.origin());
        let ValueKind::Table(settings) = value.kind else {
            let (expected, got) = ("a section with settings of its own".into(), check::shown(&value.kind));
            faults.push(Fault::WrongValue { key, expected, got, origin });
            continue;
        };
        let of = found.entry(name).or_default();
        for (setting, value) in settings {
            let key = format!("{key}.{setting}");
            let origin = check::spelled(&key, value.origin());
            let like = match setting.as_str() {
                PAYLOAD => None,
                WINDOW => Some(ValueKind::I64(0)),
                ENABLED => Some(ValueKind::Boolean(true)),
                text if TEXTS.contains(&text) => Some(ValueKind::String(String::new())),
                _ => {
                    let known = TEXTS.into_iter().chain([WINDOW, ENABLED, PAYLOAD]);
                    let known: Vec<String> = known.map(|known| key.replace(&setting, known)).collect();
                    let suggestion = check::nearest(&key, known.iter());
                    faults.push(Fault::UnknownKey { key, origin, suggestion });
                    continue;
                }
            };
            if let Some(Err((expected, got))) = like.map(|like| check::fits(&key, &like, &value.kind)) {
                faults.push(Fault::WrongValue { key, expected, got, origin });
                continue;
            }
            origins.insert(key, origin);
            of.insert(setting, value.kind);
        }
    }
    found
}

/// A value of TOML as JSON; what JSON has no form for (a number that is none) is nothing.
fn as_json(value: &ValueKind) -> serde_json::Value {
    match value {
        ValueKind::Nil => serde_json::Value::Null,
        ValueKind::Boolean(truth) => json!(truth),
        ValueKind::I64(number) => json!(number),
        ValueKind::U64(number) => json!(number),
        ValueKind::Float(number) => Number::from_f64(*number).map_or(serde_json::Value::Null, Into::into),
        ValueKind::String(text) => json!(text),
        ValueKind::Array(values) => values.iter().map(|value| as_json(&value.kind)).collect(),
        ValueKind::Table(table) => {
            let rows = table.iter().map(|(name, value)| (name.clone(), as_json(&value.kind)));
            serde_json::Value::Object(rows.collect::<Map<_, _>>())
        }
        other => json!(other.to_string()),
    }
}

impl Settings {
    /// The schedules that the settings define, in order of name.
    ///
    /// # Errors
    /// Every schedule that cannot be, and what is said for all of them.
    pub fn schedules(&self) -> Result<Vec<Schedule>, SettingsError> {
        let mut faults = Vec::new();
        let nobody = BTreeMap::new();
        // What is said for all is judged also where there is none.
        faults.extend(Of { settings: self, name: "", own: &nobody }.rules().err());
        let mut schedules = Vec::new();
        for (name, own) in &self.of_schedules {
            match (Of { settings: self, name, own }).schedule() {
                Ok(schedule) => schedules.push(schedule),
                Err(fault) if faults.contains(&fault) => {}
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() { Ok(schedules) } else { Err(SettingsError { faults }) }
    }

    /// What is said of single schedules, to be shown.
    pub(super) fn schedule_entries(&self) -> impl Iterator<Item = (String, serde_json::Value)> {
        self.of_schedules.iter().flat_map(|(name, own)| {
            let shown = move |(setting, value): (&String, &ValueKind)| {
                let value = check::whole(value).filter(|_| setting == WINDOW);
                let value = value.map_or_else(|| as_json(&own[setting]), |number| json!(number));
                (format!("schedules.{name}.{setting}"), value)
            };
            own.iter().map(shown)
        })
    }
}

/// What is said of one schedule; of none, where the name is empty.
struct Of<'a> {
    settings: &'a Settings,
    name: &'a str,
    own: &'a BTreeMap<String, ValueKind>,
}

impl Of<'_> {
    fn text(&self, setting: &str) -> Option<&str> {
        match self.own.get(setting) {
            Some(ValueKind::String(text)) => Some(text),
            _ => None,
        }
    }

    /// By which key it was said: the schedule's own, or that for all.
    fn key(&self, setting: &str) -> String {
        match self.name.is_empty() || (!self.own.contains_key(setting) && is_general(setting)) {
            true => format!("schedule.{setting}"),
            false => format!("schedules.{}.{setting}", self.name),
        }
    }

    fn wrong(&self, setting: &str, expected: impl Into<String>, got: Option<String>) -> Fault {
        self.settings.wrong(&self.key(setting), expected.into(), got)
    }

    fn needed(&self, setting: &str) -> Result<&str, Fault> {
        self.text(setting).ok_or_else(|| {
            let (key, expected) = (format!("schedules.{}", self.name), format!("`{setting}` in it"));
            self.settings.wrong(&key, expected, Some("none".into()))
        })
    }

    /// Time zone, catch-up, its window, and overlap.
    fn rules(&self) -> Result<(String, CatchUp, Duration, Overlap), Fault> {
        let general = &self.settings.schedule;
        let zone = self.text("timezone").unwrap_or(&general.timezone);
        Timing::cron("@daily", zone).map_err(|error| self.timing("timezone", &error))?;
        let word = self.text("catch_up").unwrap_or(&general.catch_up);
        let catch_up = CatchUp::parse(word);
        let catch_up = catch_up.ok_or_else(|| self.wrong("catch_up", "skip, last or all", None))?;
        let word = self.text("overlap").unwrap_or(&general.overlap);
        let overlap = Overlap::parse(word).ok_or_else(|| self.wrong("overlap", "allow or skip", None))?;
        let window_ms = self.own.get(WINDOW).and_then(check::whole).unwrap_or(general.catch_up_window_ms);
        if !(10_000..=2_678_400_000).contains(&window_ms) {
            return Err(self.wrong(WINDOW, "10000 to 2678400000 ms (10 s to 31 days)", None));
        }
        Ok((zone.to_owned(), catch_up, Duration::from_millis(window_ms), overlap))
    }

    fn timing(&self, setting: &str, error: &TimingError) -> Fault {
        let text = error.to_string();
        let expected = text.strip_prefix("expected ").unwrap_or(&text);
        // What came is told by the fault itself.
        let expected = match (expected.rsplit_once(", got "), error) {
            (Some((expected, _)), TimingError::Cron { why, .. }) => format!("{expected} ({why})"),
            (Some((expected, _)), _) => expected.to_owned(),
            (None, _) => expected.to_owned(),
        };
        self.wrong(setting, expected, None)
    }

    fn schedule(&self) -> Result<Schedule, Fault> {
        let (zone, catch_up, window, overlap) = self.rules()?;
        let timing = match (self.text("cron"), self.text("every")) {
            (Some(cron), None) => {
                if self.text("anchor").is_some() {
                    return Err(self.wrong("anchor", "to be used with `every`", None));
                }
                Timing::cron(cron, &zone).map_err(|error| self.timing("cron", &error))?
            }
            (None, Some(every)) => {
                if self.text("timezone").is_some() {
                    let expected = "to be used with `cron`: an interval goes by no clock on a wall";
                    return Err(self.wrong("timezone", expected, None));
                }
                Timing::every(every, self.text("anchor")).map_err(|error| {
                    let of_anchor = matches!(error, TimingError::Anchor(_));
                    self.timing(if of_anchor { "anchor" } else { "every" }, &error)
                })?
            }
            (Some(_), Some(_)) => {
                let expected = format!("nothing beside schedules.{}.cron", self.name);
                return Err(self.wrong("every", expected, None));
            }
            (None, None) => {
                let (key, expected) = (format!("schedules.{}", self.name), "`cron` or `every` in it");
                return Err(self.settings.wrong(&key, expected.into(), Some("neither".into())));
            }
        };
        let refused = |setting: &str| {
            let (key, own) = (self.key(setting), self.own.contains_key(setting));
            move |error: ScheduleError| {
                let got = (!own).then(|| format!("{:?}", self.name));
                self.settings.wrong(&key, error.to_string(), got)
            }
        };
        let (queue, kind) = (self.needed("queue")?, self.needed("kind")?);
        let probe = |queue: &str, kind: &str| Schedule::new(self.name, queue, kind, timing.clone());
        if let Err(error @ ScheduleError::Name(_)) = probe("q", "k") {
            let key = format!("schedules.{}", self.name);
            return Err(self.settings.wrong(&key, error.to_string(), Some(format!("{:?}", self.name))));
        }
        probe(queue, "k").map_err(refused("queue"))?;
        let mut schedule = probe(queue, kind).map_err(refused("kind"))?;
        if let Some(key) = self.text("key") {
            schedule = schedule.with_key(key).map_err(refused("key"))?;
        }
        if let Some(payload) = self.own.get(PAYLOAD) {
            let error = |error: ScheduleError| self.wrong(PAYLOAD, error.to_string(), Some("more".into()));
            schedule = schedule.with_payload(as_json(payload)).map_err(error)?;
        }
        let enabled = match self.own.get(ENABLED) {
            Some(ValueKind::Boolean(enabled)) => *enabled,
            Some(ValueKind::String(word)) => word == "true",
            _ => true,
        };
        let schedule = schedule.with_catch_up(catch_up, window).map_err(refused(WINDOW))?;
        Ok(schedule.with_overlap(overlap).with_enabled(enabled))
    }
}

fn is_general(setting: &str) -> bool {
    matches!(setting, "timezone" | "catch_up" | WINDOW | "overlap")
}
