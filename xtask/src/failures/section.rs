//! The words of one test that failed, and how they are made short.

use std::fmt::Write;

#[derive(Debug)]
pub(super) struct Section {
    lines: Vec<String>,
}

impl Section {
    pub(super) fn new(lines: Vec<String>) -> Self {
        let mut lines = without_backtraces(lines);
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        Self { lines }
    }

    /// Writes at most `limit` of its lines, and says how many those were.
    pub(super) fn write(&self, text: &mut String, limit: usize) -> usize {
        let Some((head, rest)) = self.lines.split_first() else { return 0 };
        if limit == 0 {
            let _ = writeln!(text, "{head}  (said above, at its place)");
            return 0;
        }
        let shown = what_fits(rest, limit - 1);
        let _ = writeln!(text, "{head}");
        say_left_out(text, shown.start);
        for line in &rest[shown.clone()] {
            let _ = writeln!(text, "{line}");
        }
        say_left_out(text, rest.len() - shown.end);
        text.push('\n');
        1 + shown.len()
    }
}

fn say_left_out(text: &mut String, lines: usize) {
    if lines > 0 {
        let _ = writeln!(text, "[{lines} lines left out]");
    }
}

/// From the first panic on, since later ones mostly follow from it; and what was said before it, as far as there is room.
fn what_fits(lines: &[String], limit: usize) -> std::ops::Range<usize> {
    if lines.len() <= limit {
        return 0..lines.len();
    }
    let fault = lines.iter().position(|line| {
        line.starts_with("Error: ") || (line.starts_with("thread '") && line.contains("panicked at "))
    });
    let start = fault.unwrap_or(0).min(lines.len() - limit);
    start..start + limit
}

/// What libtest says between `failures:` and `test result:`, one section for each test.
pub(super) fn of_tests(mut lines: Vec<String>) -> Vec<Section> {
    // Behind the sections stand the names alone; with --nocapture there are no sections.
    if let Some(names) = lines.iter().rposition(|line| line == "failures:") {
        let names = lines.split_off(names).into_iter().skip(1).filter(|line| !line.is_empty());
        if !lines.iter().any(|line| !line.is_empty()) {
            return names.map(|name| Section::new(vec![name.trim().to_owned()])).collect();
        }
    }
    let mut sections: Vec<Vec<String>> = Vec::new();
    for line in lines {
        let begins = line.starts_with("---- ") && line.ends_with(" ----");
        match sections.last_mut() {
            _ if begins => sections.push(vec![line]),
            Some(section) => section.push(line),
            None => {}
        }
    }
    sections.into_iter().map(Section::new).collect()
}

fn without_backtraces(lines: Vec<String>) -> Vec<String> {
    let mut inside = false;
    lines
        .into_iter()
        .filter(|line| {
            inside = match inside {
                false => line == "stack backtrace:",
                true => is_frame(line),
            };
            !inside && !line.starts_with("note: Some details are omitted, run with `RUST_BACKTRACE=full`")
        })
        .collect()
}

/// `  12: name::of::a::function` or `             at ./src/file.rs:1:2`.
fn is_frame(line: &str) -> bool {
    let words = line.trim_start();
    let number = words.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    line.starts_with(' ') && (number || words.starts_with("at "))
}

/// The line without the sequences that colour it.
pub(super) fn without_colour(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = behind.split_once(|letter: char| letter.is_ascii_alphabetic()).map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    plain
}
