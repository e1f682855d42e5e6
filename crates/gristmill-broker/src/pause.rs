//! pause: a queue, a kind or a key of which nothing starts. Written by people, read by every node ([`crate::pauses`]) with its beat
//! and before the first start of a tenure. Ends by the Redis clock, or by [`crate::resume`].

use crate::error::CallError;
use crate::keys;
use crate::lease::acquire::millis;
use crate::link::Connection;
use crate::reply::Words;
use crate::said::Said;
use crate::script::PAUSE;
use bytes::Bytes;
use gristmill_job::{Key, QueueName, UnixMillis};
use std::fmt;
use std::time::Duration;

/// Most pauses of a queue at a time: every node reads all of them with every beat.
pub const MAX_PAUSES: usize = 256;
/// Longest pause with an end.
pub const MAX_PAUSE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// What is paused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// All of the queue: nothing of it is claimed either.
    Queue,
    /// A kind. A job of it that stands first of its key stops the key.
    Kind(String),
    /// A key.
    Key(Key),
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    /// Of what.
    pub target: Target,
    /// Since when, by the Redis clock.
    pub since: UnixMillis,
    /// Until when; `None` until somebody resumes it.
    pub until: Option<UnixMillis>,
    /// Who paused it, and why. The time in it is `since`.
    pub said: Said,
}

/// What became of a pause that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paused {
    /// It stands.
    Paused {
        /// Since when.
        since: UnixMillis,
        /// Until when.
        until: Option<UnixMillis>,
        /// Whether it stood before; then its end and its reason are new, and its beginning is not.
        again: bool,
    },
    /// There are [`MAX_PAUSES`] already.
    Full,
}

impl Target {
    /// The field of the hash.
    #[must_use]
    pub fn field(&self) -> Bytes {
        match self {
            Self::Queue => Bytes::from_static(b"queue"),
            Self::Kind(kind) => Bytes::from(format!("kind:{kind}")),
            Self::Key(key) => [b"key:", key.as_bytes()].concat().into(),
        }
    }

    /// Reads a field; `None` for one that is not ours.
    #[must_use]
    pub fn parse(field: &Bytes) -> Option<Self> {
        if field.as_ref() == b"queue" {
            return Some(Self::Queue);
        }
        if field.starts_with(b"key:") {
            return Some(Self::Key(Key::from_stored(field.slice(4..))));
        }
        let kind = field.strip_prefix(b"kind:")?;
        Some(Self::Kind(std::str::from_utf8(kind).ok()?.to_owned()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue => f.write_str("queue"),
            Self::Kind(kind) => write!(f, "kind {kind}"),
            Self::Key(key) => write!(f, "key {key}"),
        }
    }
}

impl Pause {
    /// Reads a field and its value; `None` for what is not ours.
    pub(crate) fn parse(field: &Bytes, value: &Bytes) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let mut words = text.splitn(3, ' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (since, until) = (UnixMillis(number()?), number()?);
        let said = Said::parse(&format!("{}/{}", since.0, words.next()?));
        let until = (until > 0).then_some(UnixMillis(until));
        Some(Self { target: Target::parse(field)?, since, until, said })
    }
}

impl Connection {
    /// Pauses `target` for `length`, at most [`MAX_PAUSE`]; `None`: until it is resumed.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, ask again.
    pub async fn pause(
        &self,
        queue: &QueueName,
        target: &Target,
        length: Option<Duration>,
        said: &Said,
    ) -> Result<Paused, CallError> {
        // A length of 0 would have no end.
        let length = length.map_or(0, |length| millis(length.min(MAX_PAUSE)).max(1));
        let mut script = PAUSE.call(&[keys::paused(queue).as_bytes()]);
        script.arg(target.field().as_ref()).arg(length).arg(said.words()).arg(MAX_PAUSES);
        let mut words = Words::read(self.one(script).await?, "the answer of pause")?;
        match words.tag() {
            "paused" => {
                let (since, until) = (words.next_number()?, words.next_number()?);
                let until = (until > 0).then_some(UnixMillis(until));
                Ok(Paused::Paused { since: UnixMillis(since), until, again: words.next_text()? == "1" })
            }
            "full" => Ok(Paused::Full),
            _ => Err(words.unknown("paused or full")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_paused_survives_its_writing_and_what_is_not_ours_is_none() {
        for target in [
            Target::Queue,
            Target::Kind("charge".into()),
            Target::Key(Key::from_stored(Bytes::from_static(b"\xff kind:x"))),
            Target::Key(Key::from_stored(Bytes::new())),
        ] {
            assert_eq!(Target::parse(&target.field()), Some(target));
        }
        for foreign in [&b""[..], b"queues", b"kind", b"kind:\xff", b"x:y"] {
            assert_eq!(Target::parse(&Bytes::copy_from_slice(foreign)), None, "{foreign:?}");
        }
        let of =
            |value: &'static [u8]| Pause::parse(&Bytes::from_static(b"queue"), &Bytes::from_static(value));
        let pause = of(b"5 0 me@home/no%20more").unwrap();
        assert_eq!((pause.since, pause.until, pause.said.why.as_str()), (UnixMillis(5), None, "no more"));
        assert_eq!(of(b"5 9 me/").unwrap().until, Some(UnixMillis(9)));
        for foreign in [&b"x"[..], b"5", b"5 0", b"-1 0 a/b", b"\xff"] {
            assert!(of(foreign).is_none(), "{foreign:?}");
        }
    }
}
