//! Reading answers: tagged words, never positions guessed. Whatever does not fit is an error that shows what came.

use crate::error::CallError;
use crate::fence::Refusal;
use bytes::Bytes;
use redis::Value;

/// An answer that no release of ours gives.
pub(crate) fn unexpected(what: &str, value: &Value) -> CallError {
    let mut shown = format!("{value:?}");
    if shown.len() > 200 {
        shown = shown.chars().take(200).collect();
        shown.push('…');
    }
    CallError::Unexpected(format!("expected {what}, got {shown}"))
}

/// A list; a server error becomes the call's error.
pub(crate) fn list(value: Value, what: &str) -> Result<Vec<Value>, CallError> {
    match value {
        Value::Array(values) => Ok(values),
        Value::ServerError(error) => Err(CallError::from(redis::RedisError::from(error))),
        other => Err(unexpected(what, &other)),
    }
}

/// Bytes of a string of either form.
pub(crate) fn bytes(value: Value) -> Result<Bytes, CallError> {
    match value {
        Value::BulkString(bytes) => Ok(Bytes::from(bytes)),
        Value::SimpleString(text) => Ok(Bytes::from(text)),
        Value::Okay => Ok(Bytes::from_static(b"OK")),
        Value::ServerError(error) => Err(CallError::from(redis::RedisError::from(error))),
        other => Err(unexpected("a string", &other)),
    }
}

/// Text.
pub(crate) fn text(value: Value) -> Result<String, CallError> {
    let bytes = bytes(value)?;
    String::from_utf8(bytes.into())
        .map_err(|e| CallError::Unexpected(format!("expected text, got {:?}", e.as_bytes())))
}

/// A number, as an integer or in digits.
pub(crate) fn number(value: Value) -> Result<u64, CallError> {
    match value {
        Value::Int(n) => u64::try_from(n).map_err(|_| unexpected("a number of 0 or more", &Value::Int(n))),
        Value::BulkString(digits) => std::str::from_utf8(&digits)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| unexpected("digits", &Value::BulkString(digits.clone()))),
        Value::ServerError(error) => Err(CallError::from(redis::RedisError::from(error))),
        other => Err(unexpected("a number", &other)),
    }
}

/// The words of a tagged reply.
pub(crate) struct Words {
    tag: String,
    rest: std::vec::IntoIter<Value>,
}

impl Words {
    pub(crate) fn read(value: Value, what: &str) -> Result<Self, CallError> {
        let mut rest = list(value, what)?.into_iter();
        let tag = text(rest.next().unwrap_or(Value::Nil))?;
        Ok(Self { tag, rest })
    }

    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    pub(crate) fn next(&mut self) -> Value {
        self.rest.next().unwrap_or(Value::Nil)
    }

    pub(crate) fn next_text(&mut self) -> Result<String, CallError> {
        text(self.next())
    }

    pub(crate) fn next_number(&mut self) -> Result<u64, CallError> {
        number(self.next())
    }

    /// The next value as one word per thing that was sent, each read by `read`.
    pub(crate) fn next_answers<T>(
        &mut self,
        sent: usize,
        read: impl FnMut(Value) -> Result<T, CallError>,
    ) -> Result<Vec<T>, CallError> {
        let answers = list(self.next(), "a list of answers")?;
        if answers.len() != sent {
            let came = answers.len();
            return Err(CallError::Unexpected(format!("expected {sent} answers, got {came}")));
        }
        answers.into_iter().map(read).collect()
    }

    /// The rest, one value each.
    pub(crate) fn rest(self) -> impl Iterator<Item = Value> {
        self.rest
    }

    /// `fenced` and `gap`, which every guarded script may answer.
    pub(crate) fn refusal(&mut self) -> Result<Option<Refusal>, CallError> {
        match self.tag.as_str() {
            "fenced" => Ok(Some(Refusal::Fenced { owner: self.next_text()? })),
            "gap" => Ok(Some(Refusal::Gap { last: self.next_number()? })),
            _ => Ok(None),
        }
    }

    /// The error for a word that is none of those expected.
    pub(crate) fn unknown(&self, expected: &str) -> CallError {
        CallError::Unexpected(format!("expected {expected}, got {:?}", self.tag))
    }
}
