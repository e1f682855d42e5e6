//! From an outbox row to the job it describes.

use gristmill_handler::HandlerError;
use gristmill_job::{ContentType, Due, JobId, Kind, NewJob, UnixMillis};
use serde_json::{Map, Value};
use std::time::Duration;

/// What a relay reads of a row.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) key: String,
    pub(crate) version: i64,
    pub(crate) json: Option<String>,
    pub(crate) msgpack: Option<Vec<u8>>,
    pub(crate) headers: Option<String>,
    pub(crate) max_attempts: Option<i32>,
    /// Unix ms.
    pub(crate) due_at: Option<i64>,
    pub(crate) delay_ms: Option<i64>,
    /// From when it is ready; what is over is less than 1.
    pub(crate) expires_in_ms: Option<i64>,
}

pub(crate) type Columns = (
    i64,
    String,
    String,
    String,
    i64,
    Option<String>,
    Option<Vec<u8>>,
    Option<String>,
    Option<i32>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

impl From<Columns> for Row {
    fn from(columns: Columns) -> Self {
        let (
            seq,
            id,
            kind,
            key,
            version,
            json,
            msgpack,
            headers,
            max_attempts,
            due_at,
            delay_ms,
            expires_in_ms,
        ) = columns;
        Self {
            seq,
            id,
            kind,
            key,
            version,
            json,
            msgpack,
            headers,
            max_attempts,
            due_at,
            delay_ms,
            expires_in_ms,
        }
    }
}

impl Row {
    pub(crate) fn payload_bytes(&self) -> usize {
        let json = self.json.as_ref().map_or(0, String::len);
        json + self.msgpack.as_ref().map_or(0, Vec::len)
    }

    /// The job, or why there is none: what was expected, what came. The payload is not shown.
    pub(crate) fn job(&self) -> Result<NewJob, String> {
        let (payload, content_type) = match (&self.json, &self.msgpack) {
            (Some(json), _) => (json.clone().into_bytes(), ContentType::Json),
            (None, Some(bytes)) => (bytes.clone(), ContentType::MessagePack),
            (None, None) => return Err("a row has a payload, this one has none".into()),
        };
        let job = NewJob::from_bytes("outbox", &self.key, payload, content_type);
        let mut job = job.map_err(|error| error.to_string())?;
        job.kind = Kind::new(&self.kind).map_err(|error| error.to_string())?;
        job.id = Some(JobId::new(&self.id).map_err(|error| error.to_string())?);
        job.version = u64::try_from(self.version).map_err(|_| "a version is 0 or more".to_owned())?;
        job.headers = self.headers.as_deref().map_or(Ok(Vec::new()), headers)?;
        job.limits.max_attempts = match self.max_attempts {
            None => None,
            Some(attempts) => Some(u32::try_from(attempts).map_err(|_| "attempts are 1 or more".to_owned())?),
        };
        // Of what is over, nothing is left; it is enqueued all the same, so that it ends where others do, and is counted.
        job.limits.expires_in_ms = self.expires_in_ms.map(|limit| u64::try_from(limit).unwrap_or(0));
        job.due = match (self.due_at, self.delay_ms) {
            // Before 1970 is over, too.
            (Some(at), _) => Due::At(UnixMillis(u64::try_from(at).unwrap_or(0))),
            (None, Some(delay)) => {
                let delay = u64::try_from(delay).map_err(|_| "a delay is 0 ms or more".to_owned())?;
                Due::In(Duration::from_millis(delay))
            }
            (None, None) => Due::Now,
        };
        Ok(job)
    }
}

fn headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let shape = || "headers are a JSON object whose values are text".to_owned();
    let object: Map<String, Value> = serde_json::from_str(text).map_err(|_| shape())?;
    let pair = |(name, value): (String, Value)| match value {
        Value::String(value) => Ok((name, value)),
        _ => Err(shape()),
    };
    object.into_iter().map(pair).collect()
}

/// Headers as the outbox holds them. Of several of one name, the last stays.
pub(crate) fn headers_text(headers: &[(String, String)]) -> Result<String, HandlerError> {
    let object: Map<String, Value> =
        headers.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
    serde_json::to_string(&object).map_err(HandlerError::permanent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            seq: 1,
            id: "id".into(),
            kind: "kind".into(),
            key: "key".into(),
            version: 7,
            json: Some("{\"a\": 1}".into()),
            msgpack: None,
            headers: Some("{\"traceparent\": \"00-1\"}".into()),
            max_attempts: Some(3),
            due_at: None,
            delay_ms: None,
            expires_in_ms: None,
        }
    }

    #[test]
    fn a_row_becomes_the_job_it_describes() {
        let job = row().job().unwrap();
        assert_eq!((job.version, job.content_type), (7, ContentType::Json));
        assert_eq!(&job.payload[..], b"{\"a\": 1}", "as it was written, blanks too");
        assert_eq!(job.headers, [("traceparent".to_owned(), "00-1".to_owned())]);
        assert_eq!(job.limits.max_attempts, Some(3));
        assert_eq!(job.due, Due::Now);
        assert_eq!(job.id.unwrap().as_bytes(), b"id");
    }

    #[test]
    fn a_row_says_when_its_job_is_due() {
        let due = |due_at, delay_ms| Row { due_at, delay_ms, ..row() }.job().map(|job| job.due);
        assert_eq!(due(Some(1_798_099_200_000), None), Ok(Due::At(UnixMillis(1_798_099_200_000))));
        assert_eq!(due(Some(-5), None), Ok(Due::At(UnixMillis(0))), "over");
        assert_eq!(due(None, Some(1500)), Ok(Due::In(Duration::from_millis(1500))));
        assert!(due(None, Some(-1)).is_err());
    }

    #[test]
    fn a_row_says_when_its_job_expires() {
        let limit = |expires_in_ms| Row { expires_in_ms, ..row() }.job().unwrap().limits.expires_in_ms;
        assert_eq!([limit(None), limit(Some(1500)), limit(Some(-5))], [None, Some(1500), Some(0)]);
    }

    #[test]
    fn what_is_no_job_says_why() {
        let refused = |row: Row| row.job().unwrap_err();
        assert!(refused(Row { headers: Some("[1]".into()), ..row() }).contains("object"));
        assert!(refused(Row { headers: Some("{\"a\": 1}".into()), ..row() }).contains("text"));
        assert!(refused(Row { kind: "a b".into(), ..row() }).contains("kind"));
        assert!(refused(Row { json: None, ..row() }).contains("payload"));
        assert!(refused(Row { version: -1, ..row() }).contains("version"));
    }
}
