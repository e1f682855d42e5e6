//! Which servers there are and where their programs come from.

use crate::{Error, guard::find_program};
use std::{env, fmt, path::PathBuf, process::Command};

/// A kind of server to test against. `Redis7` is the floor that the whole suite runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavor {
    /// Redis 7: the program named by `GRISTMILL_REDIS_7`, else `redis-server` on PATH if it is 7.0 or newer.
    Redis7,
    /// Redis 8: the program named by `GRISTMILL_REDIS_8`.
    Redis8,
    /// Valkey 9: the program named by `GRISTMILL_VALKEY_9`.
    Valkey9,
}

impl Flavor {
    /// All flavors, oldest first.
    pub const ALL: [Self; 3] = [Self::Redis7, Self::Redis8, Self::Valkey9];

    /// The flavors whose program is on this machine.
    pub fn available() -> Vec<Self> {
        Self::ALL.into_iter().filter(|flavor| flavor.binary().is_ok()).collect()
    }

    /// The variable that names this flavor's program.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Redis7 => "GRISTMILL_REDIS_7",
            Self::Redis8 => "GRISTMILL_REDIS_8",
            Self::Valkey9 => "GRISTMILL_VALKEY_9",
        }
    }

    /// The program.
    ///
    /// # Errors
    /// [`Error::MissingServer`], which says what was looked at and how to install it. A variable that is set but names no
    /// executable file is an error, never a reason to fall back.
    pub fn binary(self) -> Result<PathBuf, Error> {
        if let Some(given) = env::var_os(self.variable()).filter(|given| !given.is_empty()) {
            return find_program(&given).ok_or_else(|| {
                self.missing(format!("{}={} is no executable file", self.variable(), given.to_string_lossy()))
            });
        }
        if self != Self::Redis7 {
            return Err(self.missing(format!("{} is not set", self.variable())));
        }
        let found = find_program("redis-server").ok_or_else(|| {
            self.missing(format!("{} is not set and there is no redis-server on PATH", self.variable()))
        })?;
        let version = version_of(&found)?;
        if version.starts_with(|first: char| first.is_ascii_digit()) && major(&version) >= 7 {
            Ok(found)
        } else {
            Err(self.missing(format!("redis-server on PATH is version {version}, which is older than 7.0")))
        }
    }

    /// The real version of the program, such as `7.0.15`.
    ///
    /// # Errors
    /// As [`Flavor::binary`], and [`Error::Io`] when it cannot be run.
    pub fn version(self) -> Result<String, Error> {
        version_of(&self.binary()?)
    }

    fn missing(self, found: String) -> Error {
        Error::MissingServer {
            flavor: self.name(),
            found,
            hint: match self {
                Self::Redis7 => ", or put a redis-server of version 7.0 or newer on PATH",
                Self::Redis8 | Self::Valkey9 => ", or name its program in that variable",
            },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Redis7 => "Redis 7",
            Self::Redis8 => "Redis 8",
            Self::Valkey9 => "Valkey 9",
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

/// Both print one line with `v=7.0.15` in it.
fn version_of(program: &std::path::Path) -> Result<String, Error> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(Error::io(format!("cannot run {} --version", program.display())))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_version(&text).ok_or_else(|| Error::StartFailed {
        what: program.display().to_string(),
        reason: "`--version` printed no `v=…`: it is not a Redis or Valkey server".to_owned(),
        output: text,
    })
}

fn parse_version(text: &str) -> Option<String> {
    text.split_whitespace().find_map(|word| word.strip_prefix("v=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_line() {
        let line = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0";
        assert_eq!(parse_version(line).as_deref(), Some("7.0.15"));
        assert_eq!(parse_version("cat (GNU coreutils) 9.1"), None);
        assert_eq!(major("10.1"), 10);
        assert_eq!(major("x"), 0);
    }

    #[test]
    fn a_missing_server_names_the_command_that_installs_it() {
        let message = Flavor::Valkey9.missing("GRISTMILL_VALKEY_9 is not set".into()).to_string();
        assert!(message.contains("cargo xtask servers") && message.contains("Valkey 9"), "{message}");
    }
}
