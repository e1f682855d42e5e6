//! A finished span.

use gristmill_job::TraceContext;
use std::sync::Arc;
use std::time::SystemTime;

/// What a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A message is made, and this span's context goes with it.
    Producer,
    /// A message is worked on.
    Consumer,
    /// Another service is asked.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Text that many spans share.
    Shared(Arc<str>),
    /// A constant.
    Word(&'static str),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Shared(text)
    }
}

impl From<&'static str> for Value {
    fn from(word: &'static str) -> Self {
        Self::Word(word)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(i64::from(number))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// Attributes, by their names in [`super::words`].
pub type Attributes = Vec<(&'static str, Value)>;

/// Something at a moment of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// What.
    pub name: &'static str,
    /// When.
    pub at: SystemTime,
    /// More of it.
    pub attributes: Attributes,
}

/// A span that this one has to do with.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Which.
    pub context: TraceContext,
    /// The `tracestate` that came with it.
    pub state: String,
    /// How: a word of [`super::words`].
    pub relation: &'static str,
}

/// A span, finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Which it is.
    pub context: TraceContext,
    /// The span it is a part of.
    pub parent: Option<[u8; 8]>,
    /// Its name.
    pub name: String,
    /// What it stands for.
    pub kind: Kind,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// What there is to know about it.
    pub attributes: Attributes,
    /// What happened meanwhile.
    pub events: Vec<SpanEvent>,
    /// What it has to do with.
    pub links: Vec<Link>,
    /// What went wrong, in words; `None` where nothing did.
    pub error: Option<String>,
}

impl Span {
    /// One that ends when it begins, and has nothing to tell yet.
    #[must_use]
    pub fn new(context: TraceContext, name: String, kind: Kind, began: SystemTime) -> Self {
        Self {
            context,
            parent: None,
            name,
            kind,
            began,
            ended: began,
            attributes: Vec::new(),
            events: Vec::new(),
            links: Vec::new(),
            error: None,
        }
    }

    /// With one more attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }
}
