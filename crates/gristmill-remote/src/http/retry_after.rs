//! `Retry-After`: seconds, or a date.

use crate::answer::MAX_WAIT;
use std::time::{Duration, SystemTime};

/// The wait it asks for, cut to a day; nothing where it says neither.
pub(crate) fn wait(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        value.parse().map_or(MAX_WAIT, Duration::from_secs)
    } else {
        httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default()
    };
    Some(wait.min(MAX_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_no_wait_is_longer_than_a_day() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let cases = [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("99999999999999999999999", Some(86400)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:49:38 GMT", Some(1)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 2100 00:00:00 GMT", Some(86400)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ];
        for (text, seconds) in cases {
            assert_eq!(wait(text, now), seconds.map(Duration::from_secs), "{text:?}");
        }
    }
}
