//! A bar that is drawn over itself on a terminal, and a line every tenth of the way elsewhere.

use std::io::{IsTerminal, Write, stdout};

const WIDTH: usize = 30;
const PARTS: usize = 10;

#[derive(Debug)]
pub(crate) struct Progress {
    on_terminal: bool,
    drawn: bool,
    last_part: Option<usize>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { on_terminal: stdout().is_terminal(), drawn: false, last_part: None }
    }

    /// Shows that `done` of `all` are done.
    pub(crate) fn show(&mut self, done: usize, all: usize, words: &str) {
        let all = all.max(1);
        let percent = done * 100 / all;
        if self.on_terminal {
            let full = (done * WIDTH / all).min(WIDTH);
            print!("\r\x1b[2K[{}{}] {percent:3} % {words}", "#".repeat(full), "·".repeat(WIDTH - full));
            self.drawn = true;
            // A terminal that is gone ends the demo by SIGHUP, not here.
            let _ = stdout().flush();
        } else if self.last_part != Some(done * PARTS / all) {
            self.last_part = Some(done * PARTS / all);
            println!("{percent:3} % {words}");
        }
    }

    /// A line of its own: something happened.
    pub(crate) fn say(&mut self, line: &str) {
        self.finish();
        println!("{line}");
    }

    /// Takes the bar away.
    pub(crate) fn finish(&mut self) {
        if self.drawn {
            print!("\r\x1b[2K");
            self.drawn = false;
        }
    }
}
