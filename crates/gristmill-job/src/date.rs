//! Times as people and other programs write them: RFC 3339.

use crate::time::UnixMillis;

/// Days of a 400-year era.
const ERA: i64 = 146_097;

impl UnixMillis {
    /// Reads `2026-12-24T08:00:00Z`, also with a part of a second and with an offset (`+01:00`); a part of a millisecond counts
    /// as a whole one.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub fn from_rfc3339(text: &str) -> Result<Self, String> {
        parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!(
                "expected a time from 1970 to 9999 such as 2026-12-24T08:00:00Z or …+01:00, got {shown:?}"
            )
        })
    }

    /// `2026-12-24T08:00:00Z`; with milliseconds where there are some. Beyond the year 9999 its digits alone.
    #[must_use]
    pub fn rfc3339(self) -> String {
        let (seconds, ms) = (self.0 / 1000, self.0 % 1000);
        let (days, of_day) = (seconds / 86_400, seconds % 86_400);
        let Some((year, month, day)) =
            i64::try_from(days).ok().map(civil).filter(|(year, ..)| *year < 10_000)
        else {
            return self.to_string();
        };
        let (hour, minute, second) = (of_day / 3600, of_day % 3600 / 60, of_day % 60);
        let part = if ms == 0 { String::new() } else { format!(".{ms:03}") };
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{part}Z")
    }
}

fn parse(text: &str) -> Option<UnixMillis> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let year = number(date.get(0..4)?)?;
    let month = number(date.get(4..7)?.strip_prefix('-')?)?;
    let day = number(date.get(7..10)?.strip_prefix('-')?)?;
    let hour = number(time.get(0..2)?)?;
    let minute = number(time.get(2..5)?.strip_prefix(':')?)?;
    let second = number(time.get(5..8)?.strip_prefix(':')?)?;
    let digits = rest.strip_prefix('.').map_or(0, |part| part.bytes().take_while(u8::is_ascii_digit).count());
    let (ms, zone) = match rest.strip_prefix('.') {
        Some(_) if !(1..=9).contains(&digits) => return None,
        Some(part) => {
            let nanos = number(part.get(..digits)?)? * 10i64.pow(9 - u32::try_from(digits).ok()?);
            (nanos.div_euclid(1_000_000) + i64::from(nanos % 1_000_000 > 0), part.get(digits..)?)
        }
        None => (0, rest),
    };
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
            let (hours, minutes) = (number(two(hours)?)?, number(two(minutes)?)?);
            (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))?
        }
    };
    let days = days(year, month, day);
    let fits = civil(days) == (year, month, day) && hour < 24 && minute < 60 && second < 60;
    let seconds = days * 86_400 + hour * 3600 + (minute - offset) * 60 + second;
    fits.then(|| u64::try_from(seconds * 1000 + ms).ok().map(UnixMillis))?
}

fn two(text: &str) -> Option<&str> {
    (text.len() == 2).then_some(text)
}

fn number(digits: &str) -> Option<i64> {
    let all = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| all)
}

/// Days since 1970-01-01, of the calendar that is used everywhere, also before it was. Years begin in March, so that the day
/// that comes and goes is their last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The year, month and day that are so many days after 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let years = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * years + years / 4 - years / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (years + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written_everywhere() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-12-24T08:00:00Z", 1_798_099_200_000),
            ("2026-12-24 09:00:00+01:00", 1_798_099_200_000),
            ("2026-12-24t03:30:00.5-04:30", 1_798_099_200_500),
            ("2024-02-29T23:59:59.9990001Z", 1_709_251_200_000),
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
        ] {
            assert_eq!(UnixMillis::from_rfc3339(text), Ok(UnixMillis(ms)), "{text}");
        }
        assert_eq!(UnixMillis(1_798_099_200_000).rfc3339(), "2026-12-24T08:00:00Z");
        assert_eq!(UnixMillis(1_709_251_199_007).rfc3339(), "2024-02-29T23:59:59.007Z");
        assert_eq!(UnixMillis(u64::MAX).rfc3339(), u64::MAX.to_string());
    }

    #[test]
    fn every_day_of_four_hundred_years_comes_back() {
        for day in 0..ERA {
            let at = UnixMillis(day as u64 * 86_400_000 + 12_345_678);
            assert_eq!(UnixMillis::from_rfc3339(&at.rfc3339()), Ok(at));
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-12-24",
            "2026-12-24T08:00:00",
            "2026-12-24T08:00Z",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-00-10T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-12-24T24:00:00Z",
            "2026-12-24T08:60:00Z",
            "2026-12-24T08:00:60Z",
            "2026-12-24T08:00:00.Z",
            "2026-12-24T08:00:00+1:00",
            "2026-12-24T08:00:00+24:00",
            "2026-12-24T08:00:00+0100",
            "1969-12-31T23:59:59Z",
            "2026-12-24T08:00:00Zx",
            "+026-12-24T08:00:00Z",
            "2026-12-24T08:00:00.1234567891Z",
            "２０２６-12-24T08:00:00Z",
            "tomorrow",
        ] {
            assert!(UnixMillis::from_rfc3339(text).is_err(), "{text}");
        }
    }
}
