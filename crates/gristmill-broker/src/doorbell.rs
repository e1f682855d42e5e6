//! The doorbell: waits for new entries without reading any of them, on a connection of its own.

use crate::error::CallError;
use crate::link::Connection;
use crate::reply;
use gristmill_job::Place;
use redis::Value;
use std::time::Duration;

impl Connection {
    /// Blocks up to `wait` until one of `streams` has an entry behind the place given with it, and returns which of
    /// them do and the place of one such entry. No side effect: may time out, be cancelled or be repeated.
    ///
    /// The connection must be its own, with a response timeout above `wait`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn doorbell(
        &self,
        streams: &[(&str, Place)],
        wait: Duration,
    ) -> Result<Vec<(String, Place)>, CallError> {
        let mut read = redis::cmd("XREAD");
        read.arg("COUNT").arg(1).arg("BLOCK").arg(wait.as_millis().max(1) as u64).arg("STREAMS");
        for (stream, _) in streams {
            read.arg(*stream);
        }
        for (_, from) in streams {
            read.arg(from.to_string());
        }
        let rung = match self.one(read).await? {
            Value::Nil => return Ok(Vec::new()),
            value => reply::list(value, "streams with news")?,
        };
        let mut news = Vec::with_capacity(rung.len());
        for row in rung {
            let mut row = reply::list(row, "a stream and its entries")?.into_iter();
            let stream = reply::text(row.next().unwrap_or(Value::Nil))?;
            let entries = crate::entry::read_all(row.next().unwrap_or(Value::Nil))?;
            news.extend(entries.first().map(|entry| (stream, entry.place)));
        }
        Ok(news)
    }

    /// The server's number for this connection, for [`Connection::wake`].
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn client_id(&self) -> Result<u64, CallError> {
        let mut ask = redis::cmd("CLIENT");
        ask.arg("ID");
        reply::number(self.one(ask).await?)
    }

    /// Ends the wait of the doorbell whose connection has this number; false if it was not waiting.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn wake(&self, client_id: u64) -> Result<bool, CallError> {
        let mut unblock = redis::cmd("CLIENT");
        unblock.arg("UNBLOCK").arg(client_id);
        Ok(reply::number(self.one(unblock).await?)? == 1)
    }
}
