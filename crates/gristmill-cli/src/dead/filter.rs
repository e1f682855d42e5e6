//! Which dead letters are meant.

use super::kind;
use clap::Args;
use gristmill_broker::dead::{DeadFound, DeadRange};
use gristmill_job::UnixMillis;
use std::time::Duration;

/// All that is given must be so.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Only jobs of this kind
    #[arg(long)]
    kind: Option<String>,
    /// Only with this class of error, as `dead list` shows it
    #[arg(long)]
    class: Option<String>,
    /// Only jobs of this key
    #[arg(long)]
    key: Option<String>,
    /// Only dead for longer than this: 90s, 15m, 36h, 7d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    older_than: Option<Duration>,
    /// Only dead for less than this
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    newer_than: Option<Duration>,
    /// Only with this text somewhere in the error or its sources
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

/// A filter, and the reason it looks for: one command calls that `--reason`, the other `--dead-reason`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) filter: Filter,
    pub(crate) reason: Option<String>,
}

impl Wanted {
    pub(crate) fn takes_all(&self) -> bool {
        self.words().is_empty()
    }

    /// What it asks for, `name=value` each.
    pub(crate) fn words(&self) -> Vec<String> {
        let Filter { kind, class, key, older_than, newer_than, error } = &self.filter;
        let ms = |age: &Option<Duration>| age.map(|age| format!("{}ms", age.as_millis()));
        let all = [
            ("kind", kind.clone()),
            ("dead-reason", self.reason.clone()),
            ("class", class.clone()),
            ("key", key.clone()),
            ("older-than", ms(older_than)),
            ("newer-than", ms(newer_than)),
            ("error", error.clone()),
        ];
        all.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect()
    }

    /// The range of times of death that it allows, seen from `now`.
    pub(crate) fn range(&self, now: UnixMillis) -> DeadRange {
        let before = |age: &Option<Duration>| {
            age.map(|age| {
                UnixMillis(now.0.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)))
            })
        };
        DeadRange {
            since: before(&self.filter.newer_than),
            until: before(&self.filter.older_than),
            ..DeadRange::default()
        }
    }

    /// Whether a letter, of the right age, is meant. One whose record cannot be read says nothing of itself.
    pub(crate) fn takes(&self, found: &DeadFound) -> bool {
        let Filter { kind: of_kind, class, key, error, .. } = &self.filter;
        let content = [of_kind, &self.reason, class, key, error];
        let Ok(letter) = &found.letter else { return content.iter().all(|wanted| wanted.is_none()) };
        let is = |wanted: &Option<String>, it: &str| wanted.as_deref().is_none_or(|wanted| wanted == it);
        is(&self.reason, letter.reason.as_str())
            && is(class, letter.class.as_deref().unwrap_or_default())
            && key.as_deref().is_none_or(|key| key.as_bytes() == letter.key)
            && error.as_deref().is_none_or(|text| letter.error.join(": ").contains(text))
            && (of_kind.is_none() || *of_kind == kind(&letter.envelope))
    }
}

/// `90s`, `15m`, `36h`, `7d`, `500ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let ms: Option<u64> = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    ms.zip(number)
        .and_then(|(ms, number)| number.checked_mul(ms))
        .map(Duration::from_millis)
        .ok_or_else(|| "expected a whole number and a unit, such as 90s, 15m, 36h or 7d".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_broker::dead::DeadPosition;
    use gristmill_job::{DeadLetter, DeadReason, JobLimits, NewJob, QueueName};

    fn found() -> DeadFound {
        let job = NewJob::new("charge", "k", &1).unwrap();
        let envelope = job.encode(UnixMillis(1), JobLimits::default()).unwrap().envelope.to_vec();
        let letter = DeadLetter {
            job: b"j".to_vec(),
            key: b"k".to_vec(),
            envelope,
            place: "1-0".into(),
            turn: 0,
            reason: DeadReason::Exhausted,
            error: vec!["cannot charge".into(), "connection refused".into()],
            class: Some("transient".into()),
            attempts: 10,
            node: "n".into(),
            at: UnixMillis(1),
            ..DeadLetter::default()
        };
        let queue = QueueName::new("q").unwrap();
        let position = DeadPosition { at: UnixMillis(1), queue, partition: 0, id: "l".into() };
        DeadFound { position, record: letter.encode().unwrap().into(), letter: Ok(letter) }
    }

    fn wanted(name: &str, value: &str) -> Wanted {
        let value = Some(value.to_owned());
        let mut wanted = Wanted::default();
        match name {
            "kind" => wanted.filter.kind = value,
            "class" => wanted.filter.class = value,
            "key" => wanted.filter.key = value,
            "error" => wanted.filter.error = value,
            _ => wanted.reason = value,
        }
        wanted
    }

    #[test]
    fn each_word_takes_what_it_says_and_nothing_else() {
        let found = found();
        assert!(Wanted::default().takes(&found) && Wanted::default().takes_all());
        for (name, right, wrong) in [
            ("kind", "charge", "charg"),
            ("reason", "exhausted", "permanent"),
            ("class", "transient", "permanent"),
            ("key", "k", "K"),
            ("error", "charge: connection", "refused by"),
        ] {
            assert!(wanted(name, right).takes(&found), "{name}={right}");
            assert!(!wanted(name, wrong).takes(&found), "{name}={wrong}");
            assert!(wanted(name, right).words()[0].ends_with(&format!("{name}={right}")));
            let unreadable = DeadFound { letter: Err("gone".into()), ..found.clone() };
            assert!(!wanted(name, right).takes(&unreadable), "{name}: what cannot be read is not taken");
            assert!(Wanted::default().takes(&unreadable));
        }
        let mut both = wanted("kind", "charge");
        both.reason = Some("permanent".into());
        assert!(!both.takes(&found), "all of it must be so");
    }

    #[test]
    fn ages_are_counted_from_now() {
        let mut wanted = Wanted::default();
        wanted.filter.older_than = Some(duration("2s").unwrap());
        wanted.filter.newer_than = Some(duration("1m").unwrap());
        let range = wanted.range(UnixMillis(100_000));
        assert_eq!((range.since, range.until), (Some(UnixMillis(40_000)), Some(UnixMillis(98_000))));
        assert_eq!(wanted.words(), ["older-than=2000ms", "newer-than=60000ms"]);
        assert_eq!(duration("7d").unwrap().as_secs(), 604_800);
        for wrong in ["", "7", "d", "1.5h", "-1s", "7 d", "99999999999999999999s", "18446744073709551615d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
