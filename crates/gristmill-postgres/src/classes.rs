//! Which errors of Postgres pass by themselves. The table is in `docs/POSTGRES.md`, and a test compares the two.

use gristmill_job::ErrorClass::{self, Permanent, Transient, Unknown};
use std::error::Error;

/// What is known of a SQLSTATE, or of all that begin with it. The longest that fits counts; of what is not listed nothing is
/// known.
pub const SQLSTATES: &[(&str, ErrorClass, &str)] = &[
    ("08", Transient, "the connection failed"),
    ("0A", Permanent, "a feature that Postgres does not have"),
    ("21", Permanent, "more rows than there may be"),
    ("22", Permanent, "a value that does not fit"),
    ("23", Permanent, "a constraint is violated"),
    ("25006", Transient, "the server is read-only, as a standby is: a failover is under way"),
    ("25P03", Transient, "the transaction was idle for too long"),
    ("25P04", Transient, "the transaction took too long"),
    ("28", Transient, "the login was refused; somebody has to mend it, and jobs should be there then"),
    (
        "40",
        Transient,
        "serialization failure or deadlock: the transaction was rolled back for another's sake",
    ),
    ("40002", Permanent, "a constraint is violated at commit"),
    ("42601", Permanent, "the statement is no SQL"),
    ("44", Permanent, "a view's check option is violated"),
    ("53", Transient, "the server lacks memory, disk or connections"),
    ("54", Permanent, "beyond a limit of Postgres"),
    ("55006", Transient, "an object is in use"),
    ("55P03", Transient, "a lock could not be had in time"),
    ("57", Transient, "the server is stopped, restarted or cancelled the statement"),
    ("57P04", Unknown, "the database was dropped"),
    ("58", Transient, "the server's system failed"),
];

/// The class of a SQLSTATE.
#[must_use]
pub fn of_sqlstate(code: &str) -> ErrorClass {
    let fits = SQLSTATES.iter().filter(|(start, ..)| code.starts_with(start));
    fits.max_by_key(|(start, ..)| start.len()).map_or(Unknown, |(_, class, _)| *class)
}

/// The class of an error, if it is one of sqlx. Runs with a [`Tx`](crate::Tx) heed it by themselves; for handlers that use a
/// pool of their own, `Registry::classify_by(gristmill_postgres::classify)`.
#[must_use]
pub fn classify(error: &(dyn Error + 'static)) -> Option<ErrorClass> {
    error.downcast_ref::<sqlx::Error>().map(of_error)
}

pub(crate) fn of_error(error: &sqlx::Error) -> ErrorClass {
    use sqlx::Error as E;
    match error {
        E::Database(error) => error.code().map_or(Unknown, |code| of_sqlstate(&code)),
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed => Transient,
        E::Encode(_) | E::InvalidArgument(_) => Permanent,
        _ => Unknown,
    }
}

/// Whether a lock could not be had in time.
pub(crate) fn is_lock_wait(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}
