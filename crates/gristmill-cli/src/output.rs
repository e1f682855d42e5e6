//! Results on standard output: lines, tables, JSON. A reader that went away (`| head`) ends the output, not the program
//! with an error.

use std::io::{self, ErrorKind, Write};

/// Writes a result and flushes it.
///
/// # Errors
/// What the system said, unless the reader went away.
pub(crate) fn print(text: &str) -> io::Result<()> {
    write(format!("{text}\n").as_bytes())
}

/// The same with bytes as they are, and no line end behind them.
///
/// # Errors
/// What the system said, unless the reader went away.
pub(crate) fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// A message on standard error; nobody who could read it is no reason to fail.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Rows under a heading, padded; columns of numbers to the right. The last column is not padded.
pub(crate) struct Table {
    heading: Vec<&'static str>,
    numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Columns; a name that begins with `#` is one of numbers.
    #[must_use]
    pub(crate) fn new(columns: &[&'static str]) -> Self {
        Self {
            heading: columns.iter().map(|name| name.trim_start_matches('#')).collect(),
            numbers: columns.iter().map(|name| name.starts_with('#')).collect(),
            rows: Vec::new(),
        }
    }

    /// One more row. What a terminal would obey is made visible.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| visible(&cell)).collect());
    }

    /// All of it, without a line end behind the last row.
    #[must_use]
    pub(crate) fn render(&self) -> String {
        let heading: Vec<String> = self.heading.iter().map(|name| name.to_uppercase()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heading.len()).map(width).collect();
        let render_line = |line: &&Vec<String>| {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let pad = " ".repeat(widths.get(column).map_or(0, |width| width - cell.chars().count()));
                let numbers = self.numbers.get(column).copied().unwrap_or(false);
                let (before, after) = if numbers { (pad.as_str(), "") } else { ("", pad.as_str()) };
                text.push_str(&format!("{}{before}{cell}{after}", if column == 0 { "" } else { "  " }));
            }
            text.trim_end().to_owned()
        };
        lines.iter().map(render_line).collect::<Vec<_>>().join("\n")
    }
}

/// Control characters escaped: what a producer wrote cannot drive the terminal of who reads it.
#[must_use]
pub(crate) fn visible(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// At most `limit` characters, the last of them an ellipsis where something was cut.
#[must_use]
pub(crate) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some(_) => text.chars().take(limit.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// A duration as a person says it: `850ms`, `12s`, `3m 5s`, `2h 10m`, `4d 3h`.
#[must_use]
pub(crate) fn age(duration: std::time::Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86400, seconds % 86400 / 3600),
    }
}

/// A moment of the past or the future, seen from `now`: `12s ago`, `in 3m 5s`.
#[must_use]
pub(crate) fn when(at: gristmill_job::UnixMillis, now: gristmill_job::UnixMillis) -> String {
    match at > now {
        true => format!("in {}", age(now.age_at(at))),
        false => format!("{} ago", age(at.age_at(now))),
    }
}

/// `name   value`, one a line; what a terminal would obey is made visible.
#[derive(Default)]
pub(crate) struct Lines(String);

impl Lines {
    pub(crate) fn put(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        self.0.push_str(&format!("{:<13}{}", visible(name), visible(value)));
    }

    pub(crate) fn block(&mut self, text: &str) {
        for line in text.lines() {
            self.0.push_str(&format!("\n  {}", visible(line)));
        }
    }

    /// All of it, without a line end behind the last one.
    #[must_use]
    pub(crate) fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_table_lines_up_and_shows_what_a_terminal_would_obey() {
        let mut table = Table::new(&["name", "#jobs", "error"]);
        table.row(vec!["a".into(), "1000".into(), "x".into()]);
        table.row(vec!["long\u{1b}[2J".into(), "1".into(), String::new()]);
        assert_eq!(
            table.render(),
            "NAME           JOBS  ERROR\na              1000  x\nlong\\u{1b}[2J     1"
        );
    }

    #[test]
    fn texts_are_cut_and_ages_spoken() {
        assert_eq!((cut("abcd", 4), cut("abcde", 4)), ("abcd".into(), "abc…".into()));
        let spoken: Vec<String> =
            [850, 12_000, 185_000, 7_800_000, 356_400_000].map(|ms| age(Duration::from_millis(ms))).to_vec();
        assert_eq!(spoken, ["850ms", "12s", "3m 5s", "2h 10m", "4d 3h"]);
    }
}
