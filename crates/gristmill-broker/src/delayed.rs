//! Jobs for later, as they are kept beside the stream: they have no place before they are due.

use crate::error::CallError;
use crate::reply;
use bytes::Bytes;
use gristmill_job::JobId;
use redis::Value;
use serde_bytes::ByteBuf;
use std::fmt;

/// What names a job in `delayed`: `<seq>:<own>:<id>`. Of those that are due at the same time the lesser goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(Bytes);

impl Member {
    /// The member of the `seq`th job that was ever delayed in its partition.
    #[must_use]
    pub fn new(seq: u64, own_id: bool, id: &JobId) -> Self {
        let mut member = format!("{seq:016}:{}:", u8::from(own_id)).into_bytes();
        member.extend_from_slice(id.as_bytes());
        Self(Bytes::from(member))
    }

    /// As it was read from Redis.
    #[must_use]
    pub fn from_stored(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// As it stands in Redis.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The job's id, and whether it is the producer's. One that somebody wrote by hand is its own id.
    #[must_use]
    pub fn id(&self) -> (JobId, bool) {
        match self.parts() {
            Some((own, at)) => (JobId::from_stored(self.0.slice(at..)), own),
            None => (JobId::from_stored(self.0.clone()), false),
        }
    }

    /// As `promote.lua` reads it, to the byte: both must agree about whose mark is declared.
    fn parts(&self) -> Option<(bool, usize)> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        match self.0.get(digits..digits + 3)? {
            [b':', own @ (b'0' | b'1'), b':'] if digits > 0 => Some((*own == b'1', digits + 3)),
            _ => None,
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// What lies in `delayed_bodies`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// Its key.
    pub key: Bytes,
    /// Its envelope.
    pub envelope: Bytes,
    /// The line ([`crate::state`]) that is stored about it once it has a place; empty for none.
    pub line: Bytes,
}

impl Body {
    /// Reads a record. One that cannot be read is a job without a key, which ends as undecodable once it is due.
    #[must_use]
    pub fn read(record: Bytes) -> Self {
        match rmp_serde::from_slice::<(ByteBuf, ByteBuf, ByteBuf)>(&record) {
            Ok((key, envelope, line)) => Self {
                key: key.into_vec().into(),
                envelope: envelope.into_vec().into(),
                line: line.into_vec().into(),
            },
            Err(_) => Self { key: Bytes::new(), envelope: record, line: Bytes::new() },
        }
    }
}

/// A list of members.
pub(crate) fn members(value: Value) -> Result<Vec<Member>, CallError> {
    let members = reply::list(value, "members of the delayed set")?;
    members.into_iter().map(|member| Ok(Member(reply::bytes(member)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_tells_its_job_and_sorts_by_when_it_was_enqueued() {
        let id = JobId::new("a:1:b").unwrap();
        let first = Member::new(9, true, &id);
        assert_eq!(first.to_string(), "0000000000000009:1:a:1:b");
        assert_eq!(first.id(), (id.clone(), true));
        assert_eq!(Member::new(9, false, &id).id(), (id.clone(), false));
        assert!(first < Member::new(10, false, &id));
    }

    #[test]
    fn a_member_of_foreign_making_is_its_own_id_and_has_no_mark() {
        for foreign in ["", ":1:a", "12", "12:", "12:1", "12:2:a", "x12:1:a", "12:1 a", "1x:1:a"] {
            let member = Member::from_stored(Bytes::from_static(foreign.as_bytes()));
            let (id, own) = member.id();
            assert!(id.as_bytes() == foreign.as_bytes() && !own, "{foreign}");
        }
        assert!(Member::from_stored(Bytes::from_static(b"1:1:")).id().1, "an empty id is one to the script");
    }
}
