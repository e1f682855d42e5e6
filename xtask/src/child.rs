//! Running a program: output passed through unchanged, and failures that say what was run and what to do.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long output may still come from a child's own children after its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a command ends: what the person is told, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// `None` when the child has already said what is wrong.
    pub(crate) text: Option<String>,
    pub(crate) code: u8,
}

impl Failure {
    /// Something this machine lacks (exit code 1).
    pub(crate) fn missing(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), code: 1 }
    }

    /// The command line was wrong (exit code 2).
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), code: 2 }
    }
}

/// Runs `command` to its end and hands on its exit code.
pub(crate) fn pass_through(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| not_started(command, &error))?;
    judge(command, status)
}

/// The same for a listener: both outputs, in the order in which they were written, go to standard output and to `hear`.
pub(crate) fn pass_through_heard(command: &mut Command, hear: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
    let mut piped = || -> io::Result<_> {
        let (reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let child = command.spawn();
        // The command keeps its ends of the pipe, and with them the pipe would never end.
        command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
        Ok((child?, reader))
    };
    let (mut child, reader) = piped().map_err(|error| not_started(command, &error))?;
    let (sender, news) = mpsc::channel();
    let ends = sender.clone();
    thread::spawn(move || read(reader, &sender));
    thread::spawn(move || ends.send(News::Ended(child.wait())));
    let status = follow(&news, hear).map_err(|error| not_started(command, &error))?;
    judge(command, status)
}

/// What is told of a child that runs.
enum News {
    Said(Vec<u8>),
    /// Nobody writes any more.
    Silent,
    Ended(io::Result<ExitStatus>),
}

fn read(mut reader: impl Read, sender: &Sender<News>) {
    let mut buffer = [0; 8192];
    loop {
        let news = match reader.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => News::Silent,
            Ok(length) => News::Said(buffer[..length].to_vec()),
        };
        let last = matches!(news, News::Silent);
        if sender.send(news).is_err() || last {
            return;
        }
    }
}

/// Until the child has ended and its output too; a process that it left behind may hold the pipe, and is not waited for.
fn follow(news: &Receiver<News>, hear: &mut dyn FnMut(&[u8])) -> io::Result<ExitStatus> {
    let mut ended = None;
    let mut silent = false;
    let mut output = Some(io::stdout());
    loop {
        let next = match &ended {
            Some(_) => news.recv_timeout(LAST_WORDS).ok(),
            None => news.recv().ok(),
        };
        match next {
            Some(News::Said(bytes)) => {
                hear(&bytes);
                if let Some(mut out) = output.take() {
                    // Of a reader that has gone (`| head`) the child need not die: its exit code still counts.
                    output = out.write_all(&bytes).and_then(|()| out.flush()).is_ok().then_some(out);
                }
            }
            Some(News::Silent) => silent = true,
            Some(News::Ended(status)) => ended = Some(status),
            None => return ended.unwrap_or_else(|| Err(io::Error::other("nobody waits for it"))),
        }
        if silent && let Some(status) = ended.take() {
            return status;
        }
    }
}

fn judge(command: &Command, status: ExitStatus) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    let (code, how) = ending(status);
    Err(Failure { text: Some(format!("{how}: {}", spoken(command))), code })
}

/// Standard output of a short command, or `None` when it cannot be started or fails.
pub(crate) fn answer(program: impl AsRef<Path>, args: &[&str]) -> Option<String> {
    let output =
        Command::new(program.as_ref()).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

fn not_started(command: &Command, error: &std::io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => Failure::missing(format!("`{program}` is not installed or not on PATH")),
        _ => Failure::missing(format!("`{program}` could not be started: {error}")),
    }
}

/// The code to leave with (128 + signal, as a shell does) and how the child ended, in words.
fn ending(status: ExitStatus) -> (u8, String) {
    use std::os::unix::process::ExitStatusExt;
    if let Some(signal) = status.signal() {
        let code = u8::try_from(128 + signal).unwrap_or(1);
        return (code, format!("ended by signal {signal}"));
    }
    let code = status.code().unwrap_or(1);
    let short = u8::try_from(code).ok().filter(|code| *code != 0);
    (short.unwrap_or(1), format!("exit code {code}"))
}

/// The command line, program without its folder.
pub(crate) fn spoken(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![match program.file_name() {
        Some(name) => name.to_string_lossy().into_owned(),
        None => program.display().to_string(),
    }];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childs_exit_code_is_handed_on() {
        let failure = pass_through(Command::new("sh").args(["-c", "exit 7"])).unwrap_err();
        assert_eq!(failure.code, 7);
        assert_eq!(failure.text.as_deref(), Some("exit code 7: sh -c exit 7"));
    }

    #[test]
    fn a_signal_becomes_128_and_its_number() {
        let failure = pass_through(Command::new("sh").args(["-c", "kill -9 $$"])).unwrap_err();
        assert_eq!(failure.code, 137);
    }

    fn heard(script: &str) -> (Result<(), Failure>, String) {
        let mut said = Vec::new();
        let result = pass_through_heard(Command::new("sh").args(["-c", script]), &mut |bytes| {
            said.extend_from_slice(bytes);
        });
        (result, String::from_utf8(said).unwrap())
    }

    #[test]
    fn both_outputs_are_heard_in_the_order_in_which_they_were_written() {
        let (result, said) = heard("echo one; echo two >&2; echo three; echo four >&2; exit 5");
        assert_eq!(said, "one\ntwo\nthree\nfour\n");
        assert_eq!(result.unwrap_err().code, 5);
        assert!(heard("exit 0").0.is_ok());
    }

    #[test]
    fn a_child_that_is_killed_ends_at_once_though_its_own_child_holds_the_pipe() {
        let started = std::time::Instant::now();
        let (result, said) = heard("sleep 60 & echo $!; kill -9 $$");
        assert_eq!(result.unwrap_err().code, 137);
        assert!(started.elapsed() < Duration::from_secs(30));
        pass_through(Command::new("kill").arg(said.trim())).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = pass_through(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(failure.text.unwrap().contains("no-such-program-here"));
        let failure = pass_through_heard(&mut Command::new("no-such-program-here"), &mut |_| {}).unwrap_err();
        assert!(failure.text.unwrap().contains("no-such-program-here"));
        assert_eq!(answer("no-such-program-here", &[]), None);
    }

    #[test]
    fn an_answer_is_only_taken_from_a_success() {
        assert_eq!(answer("sh", &["-c", "echo yes"]).as_deref(), Some("yes"));
        assert_eq!(answer("sh", &["-c", "echo yes; exit 1"]), None);
    }
}
