//! What the arguments of a run do after its handler's answer. An argument that opened something (a transaction) leaves
//! here how it is closed, so that no handler can forget it.

use crate::delivery::Answer;
use crate::error::HandlerError;
use std::pin::Pin;

/// What is done after the handler's answer, and has the last word on it.
///
/// It is dropped without being asked where the run is stopped, or panics: dropping must undo what was opened.
pub trait Close: Send {
    /// Takes the handler's answer and gives the one that counts: an answer stays good only if closing went well.
    fn close(self: Box<Self>, answer: Result<Answer, HandlerError>) -> Closing;
}

/// How something is closed; see [`Close`].
pub type Closing = Pin<Box<dyn Future<Output = Result<Answer, HandlerError>> + Send>>;

/// What the arguments of one run have opened. Costs nothing while that is nothing.
#[derive(Default)]
pub struct Scope(Vec<Box<dyn Close>>);

impl Scope {
    /// Leaves something to be done after the handler's answer; what came last is closed first.
    pub fn leave(&mut self, close: impl Close + 'static) {
        self.0.push(Box::new(close));
    }

    pub(crate) async fn close(
        mut self,
        mut answer: Result<Answer, HandlerError>,
    ) -> Result<Answer, HandlerError> {
        while let Some(close) = self.0.pop() {
            answer = close.close(answer).await;
        }
        answer
    }
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("open", &self.0.len()).finish()
    }
}
