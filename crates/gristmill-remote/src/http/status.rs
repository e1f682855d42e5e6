//! What a status means, as a table that a kind may override.

use crate::config::overrides;
use crate::outcome::Outcome;

/// Each status or class of them with its outcome; the first that fits counts. `docs/HANDLERS.md` shows the same.
pub const TABLE: &[(&str, Outcome)] = &[
    // What the request is, or where it is sent, is wrong on our side or not there yet: mending it saves the jobs.
    ("401", Outcome::Unknown),
    ("403", Outcome::Unknown),
    ("404", Outcome::Unknown),
    ("405", Outcome::Unknown),
    ("407", Outcome::Unknown),
    ("408", Outcome::Transient),
    ("421", Outcome::Transient),
    ("423", Outcome::Transient),
    ("425", Outcome::Transient),
    ("429", Outcome::Transient),
    ("2xx", Outcome::Done),
    ("3xx", Outcome::Unknown),
    ("4xx", Outcome::Permanent),
    ("5xx", Outcome::Transient),
];

/// What is expected of an override.
pub const EXPECTED: &str = "STATUS=OUTCOME, such as 404=done or 4xx=transient; a status is 200 to 599 or 2xx to 5xx, an \
                            outcome done, discard, transient, unknown, permanent or review";

/// The table, and what a kind says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusTable(Vec<(Statuses, Outcome)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statuses {
    One(u16),
    Class(u16),
}

impl Statuses {
    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix("xx") {
            Some(class) => class.parse().ok().filter(|class| (2..=5).contains(class)).map(Self::Class),
            None => text.parse().ok().filter(|status| (200..=599).contains(status)).map(Self::One),
        }
    }
}

impl StatusTable {
    /// The table with these overrides.
    ///
    /// # Errors
    /// The text that is no override; [`EXPECTED`] says what would be.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        overrides(texts, Statuses::parse).map(Self)
    }

    /// What `status` means: an override of that status, one of its class, the table's own.
    #[must_use]
    pub fn outcome(&self, status: u16) -> Outcome {
        let own = |wanted: Statuses| self.0.iter().find(|(at, _)| *at == wanted).map(|(_, outcome)| *outcome);
        own(Statuses::One(status)).or_else(|| own(Statuses::Class(status / 100))).unwrap_or_else(|| {
            let fits = |row: &str| match Statuses::parse(row) {
                Some(Statuses::One(one)) => one == status,
                Some(Statuses::Class(class)) => class == status / 100,
                None => false,
            };
            TABLE.iter().find(|(row, _)| fits(row)).map_or(Outcome::Unknown, |(_, outcome)| *outcome)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_for_what_it_names_and_what_nobody_names_is_unknown() {
        let table = StatusTable::default();
        for (status, outcome) in [
            (200, Outcome::Done),
            (204, Outcome::Done),
            (302, Outcome::Unknown),
            (400, Outcome::Permanent),
            (404, Outcome::Unknown),
            (409, Outcome::Permanent),
            (410, Outcome::Permanent),
            (422, Outcome::Permanent),
            (408, Outcome::Transient),
            (429, Outcome::Transient),
            (500, Outcome::Transient),
            (599, Outcome::Transient),
            (101, Outcome::Unknown),
            (700, Outcome::Unknown),
        ] {
            assert_eq!(table.outcome(status), outcome, "{status}");
        }
        assert!(TABLE.iter().all(|(row, _)| Statuses::parse(row).is_some()));
    }

    #[test]
    fn an_override_of_a_status_wins_over_one_of_its_class_and_both_over_the_table() {
        let table = StatusTable::new(&["4xx=transient".into(), "404 = done".into()]).unwrap();
        let all = [404, 410, 401, 500].map(|status| table.outcome(status));
        assert_eq!(all, [Outcome::Done, Outcome::Transient, Outcome::Transient, Outcome::Transient]);
    }

    #[test]
    fn what_is_no_override_is_named() {
        for bad in ["404", "404=ok", "1xx=done", "199=done", "600=done", "=done", "x=done", ""] {
            assert_eq!(StatusTable::new(&[bad.into()]).unwrap_err(), format!("{bad:?}"));
        }
    }
}
