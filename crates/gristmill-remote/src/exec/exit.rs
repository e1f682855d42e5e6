//! What an exit code means (the codes of sysexits.h), as a table that a kind may override.

use crate::config::overrides;
use crate::outcome::Outcome;

/// Code, its name in sysexits.h, and its outcome. Every other code is unknown. `docs/HANDLERS.md` shows the same.
pub const TABLE: &[(u8, &str, Outcome)] = &[
    (0, "EX_OK", Outcome::Done),
    // Says that the command line is wrong, which is the node's configuration and not the job.
    (64, "EX_USAGE", Outcome::Unknown),
    (65, "EX_DATAERR", Outcome::Permanent),
    (66, "EX_NOINPUT", Outcome::Permanent),
    (67, "EX_NOUSER", Outcome::Permanent),
    (68, "EX_NOHOST", Outcome::Permanent),
    (69, "EX_UNAVAILABLE", Outcome::Transient),
    (70, "EX_SOFTWARE", Outcome::Unknown),
    (71, "EX_OSERR", Outcome::Transient),
    (72, "EX_OSFILE", Outcome::Unknown),
    (73, "EX_CANTCREAT", Outcome::Transient),
    (74, "EX_IOERR", Outcome::Transient),
    (75, "EX_TEMPFAIL", Outcome::Transient),
    (76, "EX_PROTOCOL", Outcome::Permanent),
    (77, "EX_NOPERM", Outcome::Unknown),
    (78, "EX_CONFIG", Outcome::Unknown),
];

/// What is expected of an override.
pub const EXPECTED: &str = "CODE=OUTCOME, such as 3=discard; a code is 0 to 255, an outcome done, discard, transient, \
                            unknown, permanent or review";

/// The table, and what a kind says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitTable(Vec<(u8, Outcome)>);

impl ExitTable {
    /// The table with these overrides.
    ///
    /// # Errors
    /// The text that is no override; [`EXPECTED`] says what would be.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        overrides(texts, |code| code.parse().ok()).map(Self)
    }

    /// What `code` means.
    #[must_use]
    pub fn outcome(&self, code: u8) -> Outcome {
        let own = self.0.iter().find(|(at, _)| *at == code).map(|(_, outcome)| *outcome);
        let known = || TABLE.iter().find(|(at, ..)| *at == code).map(|(.., outcome)| *outcome);
        own.or_else(known).unwrap_or(Outcome::Unknown)
    }
}

/// The code with its name, where it has one.
pub(crate) fn named(code: u8) -> String {
    match TABLE.iter().find(|(at, ..)| *at == code) {
        Some((_, name, _)) => format!("{code} ({name})"),
        None => code.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_holds_and_other_codes_are_unknown() {
        let table = ExitTable::default();
        assert_eq!([0, 65, 75, 1, 255].map(|code| table.outcome(code)), {
            use Outcome::{Done, Permanent, Transient, Unknown};
            [Done, Permanent, Transient, Unknown, Unknown]
        });
        assert_eq!((named(75), named(3)), ("75 (EX_TEMPFAIL)".into(), "3".into()));
    }

    #[test]
    fn overrides_win_and_what_is_none_is_named() {
        let table = ExitTable::new(&["3=discard".into(), "0 = review".into()]).unwrap();
        assert_eq!([3, 0].map(|code| table.outcome(code)), [Outcome::Discard, Outcome::Review]);
        for bad in ["3", "256=done", "-1=done", "3=fine", ""] {
            assert_eq!(ExitTable::new(&[bad.into()]).unwrap_err(), format!("{bad:?}"));
        }
    }
}
