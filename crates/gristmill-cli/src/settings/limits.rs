//! What is said of any kind, whether it is served in code, by HTTP or by a command: to what it is limited across the fleet
//! (`kinds.NAME.max_running`, `rate`, `rate_burst`, `rate_per`), and when its jobs expire (`kinds.NAME.expires_ms`).

use super::kinds::parts;
use super::{Fault, Settings, check};
use config::ValueKind;
use gristmill_job::{Limit, Rate, RatePer};
use std::collections::BTreeSet;
use std::time::Duration;

const EXPIRES: &str = "expires_ms";

/// The form of such a setting.
pub(super) fn form(setting: &str) -> Option<ValueKind> {
    match setting {
        "max_running" | "rate_burst" | EXPIRES => Some(ValueKind::I64(0)),
        "rate" | "rate_per" => Some(ValueKind::String(String::new())),
        _ => None,
    }
}

impl Settings {
    /// The kinds that are limited, and to what.
    ///
    /// # Errors
    /// Values that cannot be, or do not go together.
    pub fn limits(&self) -> Result<Vec<(String, Limit)>, Fault> {
        let limits = |setting: &str| form(setting).is_some() && setting != EXPIRES;
        let limited = |key: &&String| parts(key).is_some_and(|(_, setting)| limits(setting));
        let keys = self.of_kinds.keys().filter(limited);
        let names: BTreeSet<&str> = keys.filter_map(|key| parts(key)).map(|(name, _)| name).collect();
        names.into_iter().map(|name| Ok((name.to_owned(), self.limit_of(name)?))).collect()
    }

    /// The kinds whose jobs expire, and how long after they became ready.
    ///
    /// # Errors
    /// No time at all.
    pub fn expiries(&self) -> Result<Vec<(String, Duration)>, Fault> {
        let said = self.of_kinds.iter().filter_map(|(key, value)| {
            let (name, _) = parts(key).filter(|(_, setting)| *setting == EXPIRES)?;
            Some((key, name, check::whole(value)?))
        });
        said.map(|(key, name, ms)| match ms {
            0 => Err(self.wrong(key, "1 ms or more".into(), Some("0 ms".into()))),
            ms => Ok((name.to_owned(), Duration::from_millis(ms))),
        })
        .collect()
    }

    fn limit_of(&self, name: &str) -> Result<Limit, Fault> {
        let key = |setting: &str| format!("kinds.{name}.{setting}");
        let own = |setting: &str| self.of_kinds.get(&key(setting));
        let number = |setting: &str, most: u32| match own(setting).and_then(check::whole) {
            None => Ok(None),
            Some(number) => match u32::try_from(number).ok().filter(|it| (1..=most).contains(it)) {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(&key(setting), format!("1 to {most}"), None)),
            },
        };
        let text = |setting: &str| match own(setting) {
            Some(ValueKind::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let max_running = number("max_running", gristmill_job::limit::MAX_LIMIT)?;
        let burst = number("rate_burst", gristmill_job::limit::MAX_BURST)?;
        let Some(said) = text("rate") else {
            return match ["rate_burst", "rate_per"].into_iter().find(|setting| own(setting).is_some()) {
                Some(alone) => Err(self.wrong(&key(alone), format!("{} beside it", key("rate")), None)),
                None => Ok(Limit { max_running, rate: None }),
            };
        };
        let expected = "runs in a second, a minute or an hour, such as 100/s, 5/m or 20/h; 1 to 100000";
        let rate =
            Rate::parse(said).filter(|rate| Limit { max_running, rate: Some(*rate) }.fault().is_none());
        let rate = rate.ok_or_else(|| self.wrong(&key("rate"), expected.into(), None))?;
        let per = match text("rate_per") {
            None => RatePer::Kind,
            Some(word) => RatePer::parse(word)
                .ok_or_else(|| self.wrong(&key("rate_per"), "kind or key".into(), None))?,
        };
        let rate = Rate { burst: burst.unwrap_or(rate.burst), per, ..rate };
        Ok(Limit { max_running, rate: Some(rate) })
    }
}
