//! A signature by which a handler knows that a request is ours, whole, and not old: HMAC-SHA256 as in Standard Webhooks, for
//! which most languages have a library.
//!
//! `Webhook-Signature` is `v1,` and the base64 of the HMAC of `<Webhook-Id>.<Webhook-Timestamp>.<body>`; several with
//! a space between while secrets are changed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// How a secret begins whose rest is base64.
const PREFIX: &str = "whsec_";
/// Shortest secret.
pub const MIN_SECRET_BYTES: usize = 16;

/// Reads a secret as it stands in a file: `whsec_` and base64, or the bytes themselves.
///
/// # Errors
/// What was expected; nothing of the secret.
pub fn secret(text: &str) -> Result<Vec<u8>, &'static str> {
    let bytes = match text.strip_prefix(PREFIX) {
        Some(encoded) => STANDARD.decode(encoded).map_err(|_| "base64 behind whsec_")?,
        None => text.as_bytes().to_vec(),
    };
    if bytes.len() < MIN_SECRET_BYTES { Err("secrets of at least 16 bytes") } else { Ok(bytes) }
}

pub(crate) struct Signer(Vec<hmac::Key>);

impl Signer {
    pub(crate) fn new(secrets: &[Vec<u8>]) -> Self {
        Self(secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect())
    }

    /// The value of `Webhook-Signature`; nothing without secrets.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Option<String> {
        let sign = |key: &hmac::Key| {
            let mut context = hmac::Context::with_key(key);
            context.update(format!("{id}.{timestamp}.").as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        };
        (!self.0.is_empty()).then(|| self.0.iter().map(sign).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn it_is_what_the_specification_says() {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signer = Signer::new(std::slice::from_ref(&secret));
        let signature = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body).unwrap();
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        let both = Signer::new(&[secret, b"another secret of ours".to_vec()]);
        let both = both.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body).unwrap();
        assert!(both.starts_with(&format!("{signature} v1,")) && both.matches(' ').count() == 1, "{both}");
        assert_eq!(Signer::new(&[]).sign("a", 1, b""), None);
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        assert_eq!(secret("whsec_?"), Err("base64 behind whsec_"));
        assert_eq!(secret("short"), Err("secrets of at least 16 bytes"));
        assert_eq!(secret("0123456789abcdef").unwrap(), b"0123456789abcdef");
    }
}
