//! Lines with their numbers, from any reader, in bounded memory: a line that is too long is read past, not kept.

use std::io::{self, BufRead};

/// One line, without its line end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Its bytes.
    Text(&'a [u8]),
    /// It was longer than allowed.
    TooLong {
        /// How long it was.
        bytes: u64,
        /// How long it may be.
        limit: usize,
    },
}

pub(super) struct Lines<R> {
    reader: R,
    limit: usize,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(reader: R, limit: usize) -> Self {
        Self { reader, limit, number: 0, line: Vec::new() }
    }

    /// The number of the line that was given last, from 1; 0 before the first.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line; `None` at the end. A last line needs no line end.
    ///
    /// # Errors
    /// What the reader says; what it had of a line by then is dropped.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        self.line.clear();
        let mut bytes = 0u64;
        loop {
            let piece = match self.reader.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() && bytes == 0 {
                return Ok(None);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let text = &piece[..end.unwrap_or(piece.len())];
            // One more than allowed is kept: it may be the `\r` of the line end.
            let room = (self.limit + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            let used = text.len() + usize::from(end.is_some());
            let last = end.is_some() || piece.is_empty();
            bytes += text.len() as u64;
            self.reader.consume(used);
            if last {
                break;
            }
        }
        self.number += 1;
        if bytes <= self.limit as u64 + 1 && self.line.last() == Some(&b'\r') {
            self.line.pop();
            bytes -= 1;
        }
        if self.number == 1 && self.line.starts_with(b"\xef\xbb\xbf") {
            self.line.drain(..3);
            bytes = bytes.saturating_sub(3);
        }
        Ok(Some(if bytes > self.limit as u64 {
            Line::TooLong { bytes, limit: self.limit }
        } else {
            Line::Text(&self.line)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Read};

    fn all(text: &[u8], limit: usize, buffer: usize) -> Vec<String> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, text), limit);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(match line {
                Line::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                Line::TooLong { bytes, .. } => format!("too long: {bytes}"),
            });
        }
        assert_eq!(lines.number(), found.len() as u64);
        found
    }

    #[test]
    fn lines_end_in_every_way_and_at_every_edge_of_the_buffer() {
        for buffer in 1..8 {
            assert_eq!(all(b"", 4, buffer), [""; 0]);
            assert_eq!(all(b"a\n\nbcd", 4, buffer), ["a", "", "bcd"]);
            assert_eq!(all(b"abcd\r\nabcd\n", 4, buffer), ["abcd", "abcd"]);
            assert_eq!(all(b"\xef\xbb\xbfabc\nx\n", 6, buffer), ["abc", "x"]);
            assert_eq!(all(b"abcde\nabcdefgh\r\nx", 4, buffer), ["too long: 5", "too long: 9", "x"]);
            assert_eq!(all(b"\n\n", 4, buffer), ["", ""]);
        }
    }

    #[test]
    fn a_huge_line_is_read_past_and_not_kept() {
        let huge = io::repeat(b'x').take(50_000_000).chain(&b"\nok\n"[..]);
        let mut lines = Lines::new(BufReader::new(huge), 1000);
        assert_eq!(lines.next().unwrap(), Some(Line::TooLong { bytes: 50_000_000, limit: 1000 }));
        assert!(lines.line.capacity() < 10_000, "{} bytes were kept", lines.line.capacity());
        assert_eq!(lines.next().unwrap(), Some(Line::Text(b"ok")));
        assert_eq!(lines.next().unwrap(), None);
    }
}
