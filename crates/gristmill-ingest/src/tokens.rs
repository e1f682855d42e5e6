//! Who may ask: tokens of a file, kept as tags under a key that is made at the start, and compared in constant time. The
//! file is read again when it changes; what cannot be read changes nothing.

use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::{TokensRead, TokensUnread};
use ring::hmac::{self, Key, Tag};
use ring::rand::SystemRandom;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A token that is shorter can be guessed.
const SHORTEST_BYTES: usize = 16;

pub(crate) struct Tokens {
    file: PathBuf,
    key: Key,
    known: RwLock<Known>,
}

struct Known {
    text: Tag,
    tokens: Vec<Tag>,
}

impl Tokens {
    /// Reads them for the first time.
    ///
    /// # Errors
    /// What is wrong with the file; its tokens are not in the words.
    pub(crate) fn open(file: PathBuf) -> Result<Self, String> {
        let key = Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| "the system gives no random numbers".to_owned())?;
        let text = read(&file)?;
        let known = Known::of(&text, &key)?;
        Ok(Self { file, key, known: RwLock::new(known) })
    }

    /// Whether this is one of them. Every one is compared, so that the time tells nothing.
    pub(crate) fn allow(&self, token: &[u8]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let each = known.tokens.iter().map(|tag| hmac::verify(&self.key, token, tag.as_ref()).is_ok());
        each.fold(false, |any, this| any | this)
    }

    /// Follows the file, for as long as it is polled.
    pub(crate) async fn follow(&self, telemetry: &Telemetry) {
        let mut last_complaint = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.look() {
                Ok(Some(count)) => {
                    telemetry.tell(&TokensRead { file: &self.file.display(), count: count as u64 });
                }
                Ok(None) => {}
                Err(why) if last_complaint.as_ref() == Some(&why) => continue,
                Err(why) => {
                    telemetry.tell(&TokensUnread { why: &why });
                    last_complaint = Some(why);
                    continue;
                }
            }
            last_complaint = None;
        }
    }

    /// How many there are now, where the file changed.
    fn look(&self) -> Result<Option<usize>, String> {
        let text = read(&self.file)?;
        {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            if hmac::verify(&self.key, text.as_bytes(), known.text.as_ref()).is_ok() {
                return Ok(None);
            }
        }
        let known = Known::of(&text, &self.key).map_err(|why| format!("{}: {why}", self.file.display()))?;
        let count = known.tokens.len();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(Some(count))
    }
}

fn read(file: &PathBuf) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

impl Known {
    fn of(text: &str, key: &Key) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let token = line.trim();
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            if token.len() < SHORTEST_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(format!(
                    "line {}: expected a token of {SHORTEST_BYTES} or more visible ASCII characters without spaces, got {} bytes",
                    at + 1,
                    token.len()
                ));
            }
            tokens.push(hmac::sign(key, token.as_bytes()));
        }
        match tokens.is_empty() {
            true => Err("expected a token on each line, got none".into()),
            false => Ok(Self { text: hmac::sign(key, text.as_bytes()), tokens }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_tokens_are_read_or_refused_without_their_tokens() {
        let key = Key::new(hmac::HMAC_SHA256, b"for the test");
        let count = |text: &str| Known::of(text, &key).map(|known| known.tokens.len());
        assert_eq!(count("# of the shop\n0123456789abcdef\r\n\n  another-token-of-length \n"), Ok(2));
        for bad in ["", "# none\n\n", "short-secret", "0123456789abcdef and more", "0123456789abcdéf"] {
            let why = count(bad).unwrap_err();
            assert!(why.contains("expected") && !why.contains("secret") && !why.contains("0123"), "{why}");
        }
    }

    #[test]
    fn a_token_is_allowed_whole_and_a_changed_file_counts_only_where_it_can_be_read() {
        let file = std::env::temp_dir().join(format!("gristmill-tokens-{}", std::process::id()));
        std::fs::write(&file, "token-number-one\ntoken-number-two\n").unwrap();
        let tokens = Tokens::open(file.clone()).unwrap();
        let allowed = |text: &str| tokens.allow(text.as_bytes());
        assert!(allowed("token-number-one") && allowed("token-number-two"));
        for wrong in ["", "token-number-on", "token-number-one ", "token-number-three", "TOKEN-NUMBER-ONE"] {
            assert!(!allowed(wrong), "{wrong}");
        }
        assert_eq!(tokens.look(), Ok(None));
        std::fs::write(&file, "token-number-two\ntoken-number-three\n").unwrap();
        assert_eq!(tokens.look(), Ok(Some(2)));
        assert!(!allowed("token-number-one") && allowed("token-number-three"));
        std::fs::write(&file, "").unwrap();
        assert!(tokens.look().is_err() && allowed("token-number-three"));
        std::fs::remove_file(&file).unwrap();
        assert!(tokens.look().is_err() && allowed("token-number-three"));
    }
}
