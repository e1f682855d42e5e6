//! Who did something by hand, when and why, in one word without spaces: `<ms>/<who>/<why>`, the texts in percent-encoding.

use gristmill_job::UnixMillis;
use std::fmt::{self, Write as _};

/// Longest name of who, in bytes; what is longer is cut.
pub const MAX_WHO_BYTES: usize = 100;
/// Longest reason, in bytes; what is longer is cut. The audit log keeps more of it.
pub const MAX_WHY_BYTES: usize = 300;

/// What a person said when asking for something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Said {
    /// When, by the Redis clock.
    pub at: UnixMillis,
    /// Who: `user@host`, as that machine says.
    pub who: String,
    /// Why, in that person's words; may be empty.
    pub why: String,
}

impl Said {
    /// By `who`, for the reason `why`. The time is the script's to fill in.
    #[must_use]
    pub fn new(who: &str, why: &str) -> Self {
        let cut = |text: &str, most: usize| text[..text.floor_char_boundary(most)].to_owned();
        Self { at: UnixMillis(0), who: cut(who, MAX_WHO_BYTES), why: cut(why, MAX_WHY_BYTES) }
    }

    /// The same at another time.
    #[must_use]
    pub fn at(self, at: UnixMillis) -> Self {
        Self { at, ..self }
    }

    /// `<who>/<why>`.
    #[must_use]
    pub fn words(&self) -> String {
        let mut text = String::new();
        encode(&self.who, &mut text);
        text.push('/');
        encode(&self.why, &mut text);
        text
    }

    /// Reads `<ms>/<who>/<why>`. What is missing or not ours is empty.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut words = text.splitn(3, '/');
        let at = UnixMillis(words.next().and_then(|ms| ms.parse().ok()).unwrap_or_default());
        let mut next = || words.next().map(decode).unwrap_or_default();
        Self { at, who: next(), why: next() }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.at.0, self.words())
    }
}

fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"@._-:".contains(&byte) {
            into.push(char::from(byte));
        } else {
            let _ = write!(into, "%{byte:02x}");
        }
    }
}

fn decode(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match digits.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_survives_its_writing_and_is_one_word() {
        for (who, why) in [("me@host", "wrong price: 5 %, not 50%\n/ü"), ("", ""), ("a/b", "%zz %4")] {
            let said = Said::new(who, why).at(UnixMillis(7));
            let text = said.to_string();
            assert!(!text.contains(char::is_whitespace), "{text}");
            assert_eq!(Said::parse(&text), said);
        }
        assert_eq!(Said::parse("x"), Said::default());
        assert_eq!(Said::parse("5/a%2"), Said::new("a%2", "").at(UnixMillis(5)));
        assert_eq!(Said::new("", &"ü".repeat(500)).why.len(), MAX_WHY_BYTES);
    }
}
