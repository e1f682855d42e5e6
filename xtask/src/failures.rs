//! What failed in a run of `cargo test`, out of its output: said again at the end of a log of many thousand lines.
//!
//! Read line by line while it streams. Kept of each test binary are the sections of libtest's `failures:`; the last lines
//! of a binary that ended without any, because a test aborted or left; and what the compiler called an error.

mod section;

use std::collections::VecDeque;
use std::fmt::Write;
use std::mem;

use section::{Section, without_colour};

/// Lines of one test, or of one error of the compiler.
const SECTION_LINES: usize = 60;
/// Lines of all of them; what comes later is named with one line.
const ALL_LINES: usize = 200;
/// Of a binary that ended without saying what failed.
const LAST_LINES: usize = 20;

/// Reads the output and keeps what failed.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// A line that has no end yet.
    unfinished: Vec<u8>,
    /// The test binary that runs, as cargo announced it.
    binary: Option<String>,
    /// Its last lines, in case that it says no more.
    last: VecDeque<String>,
    reading: Reading,
    /// Whether the running binary said itself what failed.
    told: bool,
    found: Vec<Found>,
    /// From `error: 3 targets failed:` on.
    closing: Vec<String>,
}

/// What the coming lines belong to.
#[derive(Debug, Default)]
enum Reading {
    #[default]
    Nothing,
    /// Behind `failures:`, until `test result:`.
    Failures(Vec<String>),
    /// An error of the compiler, until an empty line.
    Error(Vec<String>),
    /// Cargo's words about a binary that did not say what failed, until the next one.
    Ending,
    Closing,
}

#[derive(Debug)]
struct Found {
    binary: Option<String>,
    section: Section,
}

impl Failures {
    /// The next piece of the output, as it came.
    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = mem::take(&mut self.unfinished);
                self.line(without_colour(&String::from_utf8_lossy(&line)).trim_end());
            }
        }
    }

    /// What is said at the end; nothing when nothing failed.
    pub(crate) fn said(mut self) -> String {
        self.hear(b"\n");
        self.close();
        let mut text = String::new();
        let mut left = ALL_LINES;
        let mut binary = None;
        for (place, found) in self.found.iter().enumerate() {
            if place == 0 || binary != found.binary.as_ref() {
                binary = found.binary.as_ref();
                let name = binary.map_or("before any test ran", String::as_str);
                let _ = writeln!(text, "\n==== what failed: {name}\n");
            }
            left -= found.section.write(&mut text, left.min(SECTION_LINES));
        }
        if !self.closing.is_empty() {
            let _ = writeln!(text, "\n{}", self.closing.join("\n"));
        }
        text
    }

    fn line(&mut self, line: &str) {
        if let Some(binary) = announced(line) {
            self.close();
            self.binary = Some(binary);
            self.last.clear();
            self.told = false;
            return;
        }
        if line.starts_with("error: ") && line.ends_with(" failed:") && line.contains(" target") {
            self.close();
            self.reading = Reading::Closing;
        }
        match &mut self.reading {
            Reading::Failures(_) if line.starts_with("test result: ") => self.close(),
            Reading::Error(_) if line.is_empty() => self.close(),
            Reading::Failures(lines) | Reading::Error(lines) => lines.push(line.to_owned()),
            Reading::Closing => self.closing.push(line.to_owned()),
            Reading::Ending => self.remember(line),
            Reading::Nothing => self.begin(line),
        }
    }

    fn begin(&mut self, line: &str) {
        if line == "failures:" && self.binary.is_some() {
            self.reading = Reading::Failures(Vec::new());
        } else if line.contains("error: ") && line.contains("failed, to rerun pass") {
            // With one thread libtest has begun this line: `test name ... error: test failed, …`.
            // Only a binary that has not told what failed is asked for its last words.
            if !self.told {
                self.remember(line);
                self.reading = Reading::Ending;
            }
        } else if self.binary.is_none() && (line.starts_with("error: ") || line.starts_with("error[")) {
            self.reading = Reading::Error(vec![line.to_owned()]);
        } else {
            self.remember(line);
        }
    }

    fn remember(&mut self, line: &str) {
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(line.to_owned());
    }

    /// What was being read is whole.
    fn close(&mut self) {
        let sections = match mem::take(&mut self.reading) {
            Reading::Nothing => return,
            Reading::Closing => {
                self.reading = Reading::Closing;
                return;
            }
            Reading::Failures(lines) => {
                self.told = true;
                section::of_tests(lines)
            }
            Reading::Error(lines) => vec![Section::new(lines)],
            Reading::Ending => vec![Section::new(self.last.drain(..).collect())],
        };
        let binary = &self.binary;
        self.found.extend(sections.into_iter().map(|section| Found { binary: binary.clone(), section }));
    }
}

/// The test binary or the doc tests that cargo announces with this line.
fn announced(line: &str) -> Option<String> {
    let words = line.strip_prefix("     Running ").or_else(|| line.strip_prefix("   Doc-tests "));
    words.map(|_| line.trim_start().to_owned())
}

#[cfg(test)]
#[path = "failures/failures_tests.rs"]
mod tests;
