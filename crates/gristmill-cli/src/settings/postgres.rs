//! The database of handlers, relay and probes: `postgres.SETTING`. Messages here never show a password.

use super::Settings;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "read and shown, and of use to nobody"))]
pub(super) struct PostgresSection {
    url: String,
    url_file: String,
    max_connections: u64,
    lock_wait_ms: u64,
    idle_limit_ms: u64,
    relay: bool,
    prune_inbox_after_days: u64,
}

impl PostgresSection {
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("postgres.url", json!(without_secrets(&self.url))),
            ("postgres.url_file", json!(self.url_file)),
            ("postgres.max_connections", json!(self.max_connections)),
            ("postgres.lock_wait_ms", json!(self.lock_wait_ms)),
            ("postgres.idle_limit_ms", json!(self.idle_limit_ms)),
            ("postgres.relay", json!(self.relay)),
            ("postgres.prune_inbox_after_days", json!(self.prune_inbox_after_days)),
        ]
    }
}

/// Without user, password and options: any of them may hold a secret.
fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return if url.is_empty() { String::new() } else { "…".into() };
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
}

/// What a node is told to do about the outbox.
#[cfg(feature = "postgres")]
#[derive(Debug, Clone)]
pub(crate) struct RelaySettings {
    pub(crate) database: gristmill_postgres::Database,
    /// Inbox rows of this age are removed.
    pub(crate) prune_after: Option<std::time::Duration>,
}

#[cfg(feature = "postgres")]
mod database {
    use super::{RelaySettings, Settings};
    use crate::settings::{SettingsError, redis};
    use gristmill_postgres::Database;
    use std::ops::RangeInclusive;
    use std::time::Duration;

    const CONNECTIONS: RangeInclusive<u64> = 1..=10_000;
    const WAIT_MS: RangeInclusive<u64> = 1..=86_400_000;
    const DAYS: RangeInclusive<u64> = 0..=36_500;

    impl Settings {
        /// The database that the settings name, for handlers (`Registry::state`); `None` where they name none. Its pool is of
        /// `postgres.max_connections`.
        ///
        /// # Errors
        /// A URL that cannot be, a file that cannot be read, numbers out of bounds.
        pub fn database(&self) -> Result<Option<Database>, SettingsError> {
            let section = &self.postgres;
            for (key, value, within) in [
                ("postgres.max_connections", section.max_connections, CONNECTIONS),
                ("postgres.lock_wait_ms", section.lock_wait_ms, WAIT_MS),
                ("postgres.idle_limit_ms", section.idle_limit_ms, WAIT_MS),
            ] {
                if !within.contains(&value) {
                    let expected = format!("{} to {}", within.start(), within.end());
                    return Err(self.wrong(key, expected, None).into());
                }
            }
            let Some((key, url)) = self.database_url()? else { return Ok(None) };
            // The library's own words may hold parts of the URL.
            let expected = "postgres://user@host/database".to_owned();
            let got = Some("a text that cannot be read so".to_owned());
            let database = Database::new(&url).map_err(|_| self.wrong(key, expected, got))?;
            let connections = u32::try_from(section.max_connections).unwrap_or(u32::MAX);
            Ok(Some(
                database
                    .max_connections(connections)
                    .lock_wait(Duration::from_millis(section.lock_wait_ms))
                    .idle_limit(Duration::from_millis(section.idle_limit_ms)),
            ))
        }

        fn database_url(&self) -> Result<Option<(&'static str, String)>, SettingsError> {
            let section = &self.postgres;
            if section.url_file.is_empty() {
                return Ok((!section.url.is_empty()).then(|| ("postgres.url", section.url.clone())));
            }
            // A command that was given a database by hand means that one.
            if self.origin("postgres.url") == "--database" {
                return Ok(Some(("postgres.url", section.url.clone())));
            }
            if !section.url.is_empty() {
                let given = format!(
                    "{:?} beside a postgres.url from {}",
                    section.url_file,
                    self.origin("postgres.url")
                );
                let expected = "either the URL or a file with it".to_owned();
                return Err(self.wrong("postgres.url_file", expected, Some(given)).into());
            }
            let key = "postgres.url_file";
            Ok(Some((key, redis::secret(self, key, &section.url_file)?)))
        }

        /// The relay that a node runs beside its handlers, where it is asked to.
        ///
        /// # Errors
        /// A relay without a database, and what [`Settings::database`] refuses.
        pub(crate) fn relay(&self) -> Result<Option<RelaySettings>, SettingsError> {
            let prune_after = self.prune_inbox_after()?;
            if !self.postgres.relay {
                return Ok(None);
            }
            match self.database()? {
                Some(database) => Ok(Some(RelaySettings { database, prune_after })),
                None => {
                    let expected = "false, or a database in postgres.url or postgres.url_file".to_owned();
                    Err(self.wrong("postgres.relay", expected, None).into())
                }
            }
        }

        /// The age at which relays remove inbox rows.
        ///
        /// # Errors
        /// More than a hundred years.
        pub(crate) fn prune_inbox_after(&self) -> Result<Option<Duration>, SettingsError> {
            let days = self.postgres.prune_inbox_after_days;
            if !DAYS.contains(&days) {
                let expected = "0 (kept) to 36500 days".to_owned();
                return Err(self.wrong("postgres.prune_inbox_after_days", expected, None).into());
            }
            Ok((days > 0).then(|| Duration::from_secs(days * 24 * 3600)))
        }
    }
}

#[cfg(not(feature = "postgres"))]
impl Settings {
    /// What a program without Postgres cannot do.
    ///
    /// # Errors
    /// A relay or a database that is asked for.
    pub(crate) fn refuse_postgres(&self) -> Result<(), super::SettingsError> {
        let expected = || "false or empty: this program was built without the feature `postgres`".to_owned();
        if self.postgres.relay {
            return Err(self.wrong("postgres.relay", expected(), None).into());
        }
        match self.postgres.url.is_empty() && self.postgres.url_file.is_empty() {
            true => Ok(()),
            false => Err(self.wrong("postgres.url", expected(), None).into()),
        }
    }
}

#[cfg(all(test, feature = "postgres"))]
#[path = "postgres_tests.rs"]
mod tests;
