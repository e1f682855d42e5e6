//! The address of Redis, its password and its certificates. Messages here never show a password.

use super::{Fault, Settings, SettingsError};
use gristmill_broker::RedisConfig;
use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

const TIMEOUTS_MS: RangeInclusive<u64> = 1..=600_000;
const FORMS: &str = "redis://[user[:password]@]host[:port][/db], rediss://… for TLS, or unix:///path";

pub(super) fn config(settings: &Settings) -> Result<RedisConfig, SettingsError> {
    let section = &settings.redis;
    let mut url = section.url.clone();
    let mut key = "redis.url";
    if !section.url_file.is_empty() {
        if settings.is_given("redis.url") {
            let given =
                format!("{:?} beside a redis.url from {}", section.url_file, settings.origin("redis.url"));
            return Err(settings
                .wrong("redis.url_file", "either the URL or a file with it".into(), Some(given))
                .into());
        }
        key = "redis.url_file";
        url = secret(settings, key, &section.url_file)?;
    }
    if let Err(came) = check_url(&url) {
        return Err(settings.wrong(key, FORMS.into(), Some(came)).into());
    }
    if !section.password_file.is_empty() {
        let password = secret(settings, "redis.password_file", &section.password_file)?;
        url = with_password(&url, &password).ok_or_else(|| {
            let expected = format!("no password file, since {key} holds a password already");
            settings.wrong("redis.password_file", expected, None)
        })?;
    }
    let mut config = RedisConfig::new(url);
    if !section.ca_file.is_empty() {
        if !config.url.starts_with("rediss://") {
            let expected =
                format!("to be used with a {key} that begins with rediss://, or there is no TLS at all");
            return Err(settings.wrong("redis.ca_file", expected, None).into());
        }
        let pem = fs::read(&section.ca_file)
            .map_err(|e| unreadable(settings, "redis.ca_file", &section.ca_file, &e))?;
        if !pem.windows(11).any(|window| window == b"-----BEGIN ") {
            let got = format!("{:?} without a `-----BEGIN` line", section.ca_file);
            return Err(settings
                .wrong("redis.ca_file", "a file with certificates in PEM form".into(), Some(got))
                .into());
        }
        config.ca_pem = Some(pem);
    }
    for (key, ms) in [
        ("redis.connect_timeout_ms", section.connect_timeout_ms),
        ("redis.response_timeout_ms", section.response_timeout_ms),
    ] {
        if !TIMEOUTS_MS.contains(&ms) {
            return Err(settings.wrong(key, "1 to 600000 ms".into(), Some(format!("{ms} ms"))).into());
        }
    }
    config.connect_timeout = Duration::from_millis(section.connect_timeout_ms);
    config.response_timeout = Duration::from_millis(section.response_timeout_ms);
    Ok(config)
}

/// The text of a file that holds one secret; a line end behind it does not belong to it.
pub(super) fn secret(settings: &Settings, key: &str, path: &str) -> Result<String, SettingsError> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(settings, key, path, &error))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() || text.contains('\n') {
        let got =
            format!("{path:?} with {}", if text.is_empty() { "nothing in it" } else { "several lines" });
        return Err(settings.wrong(key, "a file with one line".into(), Some(got)).into());
    }
    Ok(text.to_owned())
}

pub(super) fn unreadable(settings: &Settings, key: &str, path: &str, error: &std::io::Error) -> Fault {
    settings.wrong(key, "a file that can be read".into(), Some(format!("{path:?}: {error}")))
}

/// What is wrong with an address, in words that hold nothing of it that may be secret.
fn check_url(url: &str) -> Result<(), String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err("a text without ://".into());
    };
    match scheme {
        "redis" | "rediss" => {}
        "unix" | "redis+unix" if rest.starts_with('/') => return Ok(()),
        "unix" | "redis+unix" => return Err("unix:// without an absolute path".into()),
        _ => return Err("another scheme in front of ://".into()),
    }
    let rest = rest.split(['?', '#']).next().unwrap_or(rest);
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let (address, db) = rest.split_once('/').unwrap_or((rest, ""));
    if !db.is_empty() && db.parse::<u32>().is_err() {
        return Err("a database that is no number".into());
    }
    let (host, port) = match address.rsplit_once(':') {
        // The colons of an address such as [::1] are its own.
        Some((_, port)) if port.ends_with(']') => (address, None),
        Some((host, port)) => (host, Some(port)),
        None => (address, None),
    };
    if host.is_empty() {
        return Err("an address without a host".into());
    }
    match port {
        Some(port) if port.parse::<u16>().is_err() => Err("a port that is not 0 to 65535".into()),
        _ => Ok(()),
    }
}

/// The address with a password put in; `None` if it has one.
fn with_password(url: &str, password: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let password = percent_encoded(password);
    if scheme.ends_with("unix") {
        let separator = if rest.contains('?') { '&' } else { '?' };
        return (!rest.contains("pass=")).then(|| format!("{scheme}://{rest}{separator}pass={password}"));
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rsplit_once('@') {
        Some((user, _)) if user.contains(':') => None,
        Some((user, host)) => Some(format!("{scheme}://{user}:{password}@{host}{}", &rest[end..])),
        None => Some(format!("{scheme}://:{password}@{rest}")),
    }
}

/// All but unreserved characters.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_put_where_none_is() {
        let cases = [
            ("redis://db", "redis://:p%2Fw@db"),
            ("rediss://u@db:1/2", "rediss://u:p%2Fw@db:1/2"),
            ("unix:///r.sock?db=1", "unix:///r.sock?db=1&pass=p%2Fw"),
        ];
        for (url, expected) in cases {
            assert_eq!(with_password(url, "p/w").as_deref(), Some(expected));
        }
        assert_eq!(with_password("redis://u:old@db", "new"), None);
        assert_eq!(with_password("unix:///r?pass=old", "new"), None);
    }

    #[test]
    fn addresses_that_cannot_be_are_named_without_their_secrets() {
        for good in ["redis://h", "rediss://u:p@h:6380/3", "redis://[::1]:6379", "redis://[::1]", "unix:///a"]
        {
            assert_eq!(check_url(good), Ok(()), "{good}");
        }
        let bad = [
            "",
            "h:6379",
            "http://u:secret@h",
            "redis://",
            "redis://:secret@",
            "redis://h:port",
            "redis://h/x",
            "unix://a",
        ];
        for bad in bad {
            assert!(!check_url(bad).unwrap_err().contains("secret"), "{bad}");
        }
    }
}
