//! resume: what was paused may start again.

use crate::error::CallError;
use crate::keys;
use crate::link::Connection;
use crate::pause::{Pause, Target};
use crate::reply::{self, Words};
use crate::said::Said;
use crate::script::RESUME;
use gristmill_job::{QueueName, UnixMillis};

impl Connection {
    /// Resumes `target`; answers the pause that ended, `None` if there was none.
    ///
    /// # Errors
    /// [`CallError`]; where the answer is unknown, ask again.
    pub async fn resume(&self, queue: &QueueName, target: &Target) -> Result<Option<Pause>, CallError> {
        let field = target.field();
        let mut script = RESUME.call(&[keys::paused(queue).as_bytes()]);
        script.arg(field.as_ref());
        let mut words = Words::read(self.one(script).await?, "the answer of resume")?;
        match words.tag() {
            "resumed" => {
                let value = reply::bytes(words.next())?;
                // Whoever wrote it, it is paused no more.
                let unreadable = || Pause {
                    target: target.clone(),
                    since: UnixMillis(0),
                    until: None,
                    said: Said::default(),
                };
                Ok(Some(Pause::parse(&field, &value).unwrap_or_else(unreadable)))
            }
            "nothing" => Ok(None),
            _ => Err(words.unknown("resumed or nothing")),
        }
    }
}
