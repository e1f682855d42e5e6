//! cancel: a person takes back a job that waits. Needs no lease; what is claimed is ended by its owner, who hears of it with its
//! next renewal.

use crate::delayed::Member;
use crate::error::CallError;
use crate::keys::PartitionKeys;
use crate::link::Connection;
use crate::reply::Words;
use crate::script::CANCEL;
use crate::state::Said;
use bytes::Bytes;
use gristmill_job::{JobId, Key, Place};

/// A job to be cancelled, as the caller found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancel {
    /// Where.
    pub stands: Stands,
    /// Its id.
    pub id: JobId,
    /// Its key.
    pub key: Key,
    /// Whether its id is a producer's and so has a mark.
    pub own_id: bool,
    /// Who cancels it, and why; the time in it is not looked at.
    pub said: Said,
}

/// Where a job waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// At a place: in the stream, or back from the dead.
    At(Place),
    /// It is for later, and has no place.
    Delayed(Member),
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was claimed by nobody, and is gone.
    Cancelled,
    /// Its owner ends it without a run, or asks its run to stop; a run that finishes all the same wins.
    Asked,
    /// There is no such job at this place.
    NotWaiting,
}

/// A job that its owner is asked to end, as the list `asked` names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its place.
    pub place: Place,
    /// Its id.
    pub id: JobId,
    /// Its key.
    pub key: Key,
    /// Whether its id is a producer's.
    pub own_id: bool,
}

impl Asked {
    /// What stands behind the place.
    pub(crate) fn record(own_id: bool, id: &JobId, key: &Key) -> Vec<u8> {
        let (id, key) = (id.as_bytes(), key.as_bytes());
        let mut record = format!("{} {} ", u8::from(own_id), id.len()).into_bytes();
        record.extend_from_slice(id);
        record.extend_from_slice(key);
        record
    }

    /// Reads `<place> <own> <bytes of the id> <id><key>`; `None` for what is not ours.
    pub(crate) fn parse(item: &Bytes) -> Option<Self> {
        let mut words = item.splitn(4, |byte| *byte == b' ');
        let place = Place::parse(words.next()?)?;
        let own_id = words.next()? == b"1";
        let length: usize = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        let rest = item.slice_ref(words.next()?);
        (rest.len() >= length).then(|| Self {
            place,
            own_id,
            id: JobId::from_stored(rest.slice(..length)),
            key: Key::from_stored(rest.slice(length..)),
        })
    }
}

impl Connection {
    /// Cancels a job that the caller found at its place. The mark of its id stays for `seen_window_ms`, says who cancelled it,
    /// and absorbs nothing.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, look and ask again.
    pub async fn cancel(
        &self,
        keys: &PartitionKeys,
        seen_window_ms: u64,
        cancel: &Cancel,
    ) -> Result<Cancelled, CallError> {
        let seen = keys.seen(cancel.id.as_bytes());
        let mut script = CANCEL.call(&[
            keys.lease.as_bytes(),
            keys.stream.as_bytes(),
            keys.state.as_bytes(),
            keys.returned.as_bytes(),
            keys.asked.as_bytes(),
            keys.delayed.as_bytes(),
            keys.delayed_bodies.as_bytes(),
            &seen,
        ]);
        let (place, member) = match &cancel.stands {
            Stands::At(place) => (place.to_string(), &b""[..]),
            Stands::Delayed(member) => (String::new(), member.as_bytes()),
        };
        script.arg(place).arg(cancel.id.as_bytes());
        // Redis refuses an expiry of 0.
        script.arg(if cancel.own_id { "1" } else { "0" }).arg(seen_window_ms.max(1));
        script
            .arg(cancel.said.words())
            .arg(Asked::record(cancel.own_id, &cancel.id, &cancel.key))
            .arg(member);
        let words = Words::read(self.one(script).await?, "the answer of cancel")?;
        match words.tag() {
            "cancelled" => Ok(Cancelled::Cancelled),
            "asked" => Ok(Cancelled::Asked),
            "not_waiting" => Ok(Cancelled::NotWaiting),
            _ => Err(words.unknown("cancelled, asked or not_waiting")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_asked_for_survives_its_writing() {
        let place = Place { ms: 5, seq: 1 };
        for (id, key) in [(&b"a b"[..], &b"\xff \x00"[..]), (b"", b""), (b"1 2 3", b"key")] {
            let (id, key) = (JobId::from_stored(id.to_vec().into()), Key::from_stored(key.to_vec().into()));
            let mut item = format!("{place} ").into_bytes();
            item.extend_from_slice(&Asked::record(true, &id, &key));
            assert_eq!(Asked::parse(&item.into()), Some(Asked { place, id, key, own_id: true }));
        }
        for bad in ["", "5-1", "5-1 1 9 short", "x 1 0 ", "5-1 1 x id"] {
            assert_eq!(Asked::parse(&Bytes::from(bad)), None, "{bad}");
        }
    }
}
