//! A body in bounded memory and time.

use crate::response::Refusal;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use std::time::Duration;

/// How much of a body that is refused is read past, so that its sender hears the answer instead of a reset, and how long.
const READ_PAST_BYTES: usize = 16 * 1024 * 1024;
const READ_PAST_FOR: Duration = Duration::from_secs(2);

/// All of it, no larger than `limit` bytes, within `time`.
pub(crate) async fn whole(body: &mut Incoming, limit: usize, time: Duration) -> Result<Vec<u8>, Refusal> {
    let read = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refusal::broken_body(&error.to_string()))?;
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > limit - bytes.len() {
                return Err(Refusal::body_too_large(limit));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    match tokio::time::timeout(time, read).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::slow_body(time)),
    }
}

/// Reads past what is left.
pub(crate) async fn past(body: &mut Incoming) {
    if body.is_end_stream() {
        return;
    }
    let read = async {
        let mut left = READ_PAST_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            let bytes = frame.data_ref().map_or(0, |data| data.len());
            match left.checked_sub(bytes) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(READ_PAST_FOR, read).await;
}
