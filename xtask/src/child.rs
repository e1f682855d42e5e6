//! Running a program: output passed through unchanged, and failures that say what was run and what to do.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

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

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let failure = pass_through(&mut Command::new("no-such-program-here")).unwrap_err();
        assert!(failure.text.unwrap().contains("no-such-program-here"));
        assert_eq!(answer("no-such-program-here", &[]), None);
    }

    #[test]
    fn an_answer_is_only_taken_from_a_success() {
        assert_eq!(answer("sh", &["-c", "echo yes"]).as_deref(), Some("yes"));
        assert_eq!(answer("sh", &["-c", "echo yes; exit 1"]), None);
    }
}
