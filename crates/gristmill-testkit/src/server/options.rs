//! How a private server is configured: a builder, and the configuration file it becomes.

use super::{certificates::CertificateFiles, flavor::Flavor, snapshot::Snapshot};
use crate::Error;
use std::{fmt, path::Path};

/// When the append-only file is written to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Appendonly {
    /// No append-only file: a kill loses everything.
    Off,
    /// Synced once a second. A killed *process* loses nothing that was answered; a crashed machine up to a second.
    Everysec,
    /// Synced before each answer.
    Always,
}

/// What to start. The defaults: Redis 7, no persistence of any kind, no password, no TLS, no memory limit.
#[derive(Clone)]
pub struct ServerOptions {
    pub(super) flavor: Flavor,
    pub(super) appendonly: Appendonly,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) tls: bool,
    pub(super) snapshot: Option<Snapshot>,
    pub(super) settable_clock: bool,
    maxmemory: Option<(u64, String)>,
    lines: Vec<String>,
}

/// The user through which [`super::Server::command`] speaks when a password is asked for, so that tests may restrict the others.
pub(super) const ADMIN: &str = "testkit";

impl ServerOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            flavor: Flavor::Redis7,
            appendonly: Appendonly::Off,
            user: None,
            password: None,
            tls: false,
            snapshot: None,
            settable_clock: false,
            maxmemory: None,
            lines: Vec::new(),
        }
    }

    /// Which server.
    pub fn flavor(mut self, flavor: Flavor) -> Self {
        self.flavor = flavor;
        self
    }

    /// Whether and how to keep an append-only file.
    pub fn appendonly(mut self, appendonly: Appendonly) -> Self {
        self.appendonly = appendonly;
        self
    }

    /// Asks clients for this password (the user `default`, unless [`ServerOptions::user`] names another).
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Lets in this user with its password, may do everything, and switches the user `default` off.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some(name.into());
        self.password = Some(password.into());
        self
    }

    /// Serves TLS, with certificates made for this server. Clients must trust [`super::Server::ca_path`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Limits memory, in bytes, with an eviction policy such as `noeviction` or `allkeys-lru`.
    pub fn maxmemory(mut self, bytes: u64, policy: impl Into<String>) -> Self {
        self.maxmemory = Some((bytes, policy.into()));
        self
    }

    /// Adds a line of configuration. It comes last and so wins over what was set before.
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Starts with the data of a snapshot.
    pub fn snapshot(mut self, snapshot: &Snapshot) -> Self {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// The configuration file. `appendonly` may differ from the option: a server that loads a snapshot starts without.
    pub(super) fn config(
        &self,
        dir: &Path,
        ports: Ports,
        admin_password: &str,
        appendonly: Appendonly,
        certificates: Option<&CertificateFiles>,
    ) -> Result<String, Error> {
        if self.lines.iter().any(|line| line.contains('\n')) {
            return Err(Error::BadOption("a line of configuration may not contain a line break".to_owned()));
        }
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("port {}", ports.plain),
            format!("dir {}", quoted(&dir.display().to_string())?),
            "daemonize no".to_owned(),
            "save \"\"".to_owned(),
            "appendonly no".to_owned(),
            "enable-debug-command yes".to_owned(),
        ];
        match appendonly {
            Appendonly::Off => {}
            Appendonly::Everysec => {
                lines.extend(["appendonly yes".to_owned(), "appendfsync everysec".to_owned()])
            }
            Appendonly::Always => {
                lines.extend(["appendonly yes".to_owned(), "appendfsync always".to_owned()])
            }
        }
        if let (Some(port), Some(files)) = (ports.tls, certificates) {
            lines.push(format!("tls-port {port}"));
            lines.push(format!("tls-cert-file {}", quoted(&files.cert.display().to_string())?));
            lines.push(format!("tls-key-file {}", quoted(&files.key.display().to_string())?));
            lines.push(format!("tls-ca-cert-file {}", quoted(&files.ca.display().to_string())?));
            lines.push("tls-auth-clients no".to_owned());
        }
        if let Some(password) = &self.password {
            lines.push(user_line(ADMIN, admin_password)?);
            match &self.user {
                Some(user) => lines.extend([user_line(user, password)?, "user default off".to_owned()]),
                None => lines.push(user_line("default", password)?),
            }
        }
        if let Some((bytes, policy)) = &self.maxmemory {
            lines.extend([format!("maxmemory {bytes}"), format!("maxmemory-policy {policy}")]);
        }
        lines.extend(self.lines.iter().cloned());
        Ok(lines.join("\n") + "\n")
    }
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("flavor", &self.flavor)
            .field("appendonly", &self.appendonly)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// The ports of one server. With TLS, `plain` stays open beside it for the testkit's own commands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) plain: u16,
    pub(super) tls: Option<u16>,
}

fn user_line(name: &str, password: &str) -> Result<String, Error> {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '"') {
        return Err(Error::BadOption(format!("a user's name may hold no space or quote, got {name:?}")));
    }
    // `~* &* +@all` before the password: the order of rules does not matter, and the line ends with the secret.
    Ok(format!("user {name} reset on ~* &* +@all {}", quoted(&format!(">{password}"))?))
}

fn quoted(text: &str) -> Result<String, Error> {
    if text.contains(|c: char| c.is_control()) {
        return Err(Error::BadOption("a password or path may hold no control character".to_owned()));
    }
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &ServerOptions) -> Result<String, Error> {
        options.config(Path::new("/d"), Ports { plain: 1, tls: None }, "secret", options.appendonly, None)
    }

    #[test]
    fn a_users_line_comes_last() {
        let text = config(&ServerOptions::new().line("maxclients 7")).unwrap();
        assert!(text.ends_with("\nmaxclients 7\n"), "{text}");
        assert!(!text.contains("user "), "no password was asked for: {text}");
    }

    #[test]
    fn quotes_and_refuses() {
        let text = config(&ServerOptions::new().password(r#"a"b\c"#)).unwrap();
        assert!(text.contains(r#"user default reset on ~* &* +@all ">a\"b\\c""#), "{text}");
        assert!(config(&ServerOptions::new().password("a\nb")).is_err());
        assert!(config(&ServerOptions::new().user("a b", "c")).is_err());
        assert!(config(&ServerOptions::new().line("a\nb")).is_err());
    }

    #[test]
    fn debug_shows_no_password() {
        assert!(!format!("{:?}", ServerOptions::new().password("hunter2")).contains("hunter2"));
    }
}
