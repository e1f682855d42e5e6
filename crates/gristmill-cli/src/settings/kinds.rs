//! Kinds that others serve: `kinds.NAME.http` or `kinds.NAME.exec`, and what may be said for all of them (`remote.SETTING`)
//! and otherwise for one (`kinds.NAME.SETTING`).

use super::{Fault, Settings, SettingsError, bounded, check, limits, redis};
use config::ValueKind;
use gristmill_remote::exec::exit::{self, ExitTable};
use gristmill_remote::http::signature;
use gristmill_remote::http::status::{self, StatusTable};
use gristmill_remote::{ExecConfig, Form, HttpConfig, HttpVersion, KindConfig, Limits, Remote, Way};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// What is said for a kind alone, with the form of its value.
pub(super) fn own(setting: &str) -> Option<ValueKind> {
    match setting {
        "http" => Some(ValueKind::String(String::new())),
        "exec" => Some(ValueKind::Array(Vec::new())),
        _ => limits::form(setting),
    }
}

/// All of them.
pub(super) const OWN: [&str; 7] =
    ["http", "exec", "max_running", "rate", "rate_burst", "rate_per", "expires_ms"];
/// What has a meaning for one of the two ways only.
const FOR_HTTP: &[&str] =
    &["http_version", "connect_timeout_ms", "ca_file", "token_file", "secret_file", "status"];
const FOR_EXEC: &[&str] = &["exec_form", "folder", "exit"];

/// Name and setting of `kinds.NAME.SETTING`, where a name may hold dots.
pub(super) fn parts(key: &str) -> Option<(&str, &str)> {
    key.strip_prefix("kinds.")?.rsplit_once('.').filter(|(name, _)| !name.is_empty())
}

/// Limits and expiry are said of any kind, also of one in code.
fn is_remote((_, setting): &(&str, &str)) -> bool {
    limits::form(setting).is_none()
}

/// What holds for every kind that does not say otherwise.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoteSection {
    soft_limit_ms: u64,
    hard_limit_ms: u64,
    concurrency: u64,
    max_answer_bytes: u64,
    payload: String,
    interrupted: String,
    http_version: String,
    connect_timeout_ms: u64,
    ca_file: String,
    token_file: String,
    secret_file: String,
    #[serde(deserialize_with = "super::texts_or_commas")]
    status: Vec<String>,
    exec_form: String,
    folder: String,
    #[serde(deserialize_with = "super::texts_or_commas")]
    exit: Vec<String>,
}

impl RemoteSection {
    pub(super) fn entries(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("remote.soft_limit_ms", json!(self.soft_limit_ms)),
            ("remote.hard_limit_ms", json!(self.hard_limit_ms)),
            ("remote.concurrency", json!(self.concurrency)),
            ("remote.max_answer_bytes", json!(self.max_answer_bytes)),
            ("remote.payload", json!(self.payload)),
            ("remote.interrupted", json!(self.interrupted)),
            ("remote.http_version", json!(self.http_version)),
            ("remote.connect_timeout_ms", json!(self.connect_timeout_ms)),
            ("remote.ca_file", json!(self.ca_file)),
            ("remote.token_file", json!(self.token_file)),
            ("remote.secret_file", json!(self.secret_file)),
            ("remote.status", json!(self.status)),
            ("remote.exec_form", json!(self.exec_form)),
            ("remote.folder", json!(self.folder)),
            ("remote.exit", json!(self.exit)),
        ]
    }
}

impl Settings {
    /// The kinds that others serve.
    ///
    /// # Errors
    /// Values that cannot be, or do not go together; files that cannot be read, programs that are not there.
    pub fn remote(&self) -> Result<Remote, SettingsError> {
        let names: BTreeSet<&str> = self
            .of_kinds
            .keys()
            .filter_map(|key| parts(key))
            .filter(is_remote)
            .map(|(name, _)| name)
            .collect();
        let read = |name: &str| Of { settings: self, name }.config();
        let kinds = names.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        Remote::new(kinds).map_err(|error| {
            let of = Of { settings: self, name: &error.kind };
            let key = if error.setting == "kind" { "kinds".into() } else { of.key(error.setting) };
            self.wrong(&key, error.expected, Some(error.got)).into()
        })
    }

    /// What is said for single kinds, to be shown; of an address nothing that may be secret.
    pub(super) fn kind_entries(&self) -> impl Iterator<Item = (String, Value)> {
        self.of_kinds.iter().map(|(key, value)| {
            let value = match value {
                ValueKind::String(text) if key.ends_with(".http") => json!(shown_address(text)),
                ValueKind::Array(_) => json!(texts(value)),
                other => {
                    check::whole(other).map_or_else(|| json!(texts(other).join(",")), |number| json!(number))
                }
            };
            (key.clone(), value)
        })
    }
}

fn shown_address(text: &str) -> String {
    match text.split_once(['?', '#']) {
        _ if text.contains('@') => "(an address with `@`)".into(),
        Some((front, _)) => format!("{front}?…"),
        None => text.into(),
    }
}

/// A list of texts, or one text with commas, as the environment has it.
fn texts(value: &ValueKind) -> Vec<String> {
    match value {
        ValueKind::Array(values) => {
            values.iter().filter_map(|value| value.clone().into_string().ok()).collect()
        }
        ValueKind::String(text) => {
            text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// What is said about one kind.
struct Of<'a> {
    settings: &'a Settings,
    name: &'a str,
}

impl Of<'_> {
    fn own(&self, setting: &str) -> Option<&ValueKind> {
        self.settings.of_kinds.get(&format!("kinds.{}.{setting}", self.name))
    }

    /// The key by which it was said: the kind's own, or that for all.
    fn key(&self, setting: &str) -> String {
        match self.own(setting).is_some() || OWN.contains(&setting) {
            true => format!("kinds.{}.{setting}", self.name),
            false => format!("remote.{setting}"),
        }
    }

    fn text(&self, setting: &str, general: &str) -> String {
        match self.own(setting) {
            Some(ValueKind::String(text)) => text.clone(),
            _ => general.to_owned(),
        }
    }

    fn number(&self, setting: &str, general: u64) -> u64 {
        self.own(setting).and_then(check::whole).unwrap_or(general)
    }

    fn list(&self, setting: &str, general: &[String]) -> Vec<String> {
        self.own(setting).map_or_else(|| general.to_vec(), texts)
    }

    fn wrong(&self, setting: &str, expected: impl Into<String>, got: Option<String>) -> Fault {
        self.settings.wrong(&self.key(setting), expected.into(), got)
    }

    /// One of some words, each with its meaning.
    fn word<T: Copy>(&self, setting: &str, general: &str, words: &[(&str, T)]) -> Result<T, Fault> {
        let word = self.text(setting, general);
        words.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.wrong(setting, known.join(" or "), Some(format!("{word:?}")))
        })
    }

    fn config(&self) -> Result<KindConfig, SettingsError> {
        let section = &self.settings.remote;
        let (http, exec) = (self.text("http", ""), self.list("exec", &[]));
        let way = match (http.is_empty(), exec.is_empty()) {
            (false, true) => Way::Http(self.http(http)?),
            (true, false) => Way::Exec(self.exec(exec)?),
            (false, false) => {
                let expected = format!("nothing beside kinds.{}.http: a kind is served by one", self.name);
                return Err(self.wrong("exec", expected, None).into());
            }
            (true, true) => {
                let own = self
                    .settings
                    .of_kinds
                    .keys()
                    .find(|key| parts(key).is_some_and(|(name, _)| name == self.name));
                let key = own.cloned().unwrap_or_else(|| format!("kinds.{}", self.name));
                let expected =
                    "`http` (an address) or `exec` (a program and its arguments) beside it, or as its value";
                return Err(self.settings.wrong(&key, expected.into(), None).into());
            }
        };
        let (foreign, belongs) = match way {
            Way::Http(_) => (FOR_EXEC, "exec"),
            Way::Exec(_) => (FOR_HTTP, "http"),
        };
        if let Some(setting) = foreign.iter().find(|setting| self.own(setting).is_some()) {
            return Err(self.wrong(setting, format!("to be used with `{belongs}`"), None).into());
        }
        let hard = Duration::from_millis(self.number("hard_limit_ms", section.hard_limit_ms));
        let soft = match self.number("soft_limit_ms", section.soft_limit_ms) {
            0 => Some(hard * 5 / 6).filter(|soft| !soft.is_zero()),
            ms => Some(Duration::from_millis(ms)),
        };
        let places = self.number("concurrency", section.concurrency);
        Ok(KindConfig {
            kind: self.name.to_owned(),
            way,
            limits: Limits { soft, hard },
            concurrency: (places > 0).then(|| bounded(places)),
            max_answer_bytes: bounded(self.number("max_answer_bytes", section.max_answer_bytes)),
            as_json: self.word("payload", &section.payload, &[("as_sent", false), ("json", true)])?,
            review: self.word("interrupted", &section.interrupted, &[("rerun", false), ("review", true)])?,
        })
    }

    fn http(&self, url: String) -> Result<HttpConfig, SettingsError> {
        let section = &self.settings.remote;
        let versions = [("auto", HttpVersion::Auto), ("1", HttpVersion::One), ("2", HttpVersion::Two)];
        let file =
            |setting: &str, general: &str| Some(self.text(setting, general)).filter(|path| !path.is_empty());
        let unreadable = |setting: &str, path: &str, error: &std::io::Error| {
            redis::unreadable(self.settings, &self.key(setting), path, error)
        };
        let ca_pem = match file("ca_file", &section.ca_file) {
            // One for all kinds is not for those without TLS.
            Some(path) if self.own("ca_file").is_some() || url.starts_with("https:") => {
                Some(std::fs::read(&path).map_err(|error| unreadable("ca_file", &path, &error))?)
            }
            _ => None,
        };
        let token = match file("token_file", &section.token_file) {
            Some(path) => Some(redis::secret(self.settings, &self.key("token_file"), &path)?),
            None => None,
        };
        let secrets = match file("secret_file", &section.secret_file) {
            Some(path) => self.secrets(&path)?,
            None => Vec::new(),
        };
        let connect_timeout =
            Duration::from_millis(self.number("connect_timeout_ms", section.connect_timeout_ms));
        if connect_timeout.is_zero() {
            return Err(self.wrong("connect_timeout_ms", "1 ms or more", Some("0 ms".into())).into());
        }
        Ok(HttpConfig {
            url,
            version: self.word("http_version", &section.http_version, &versions)?,
            connect_timeout,
            ca_pem,
            token,
            secrets,
            status: StatusTable::new(&self.list("status", &section.status))
                .map_err(|got| self.wrong("status", status::EXPECTED, Some(got)))?,
        })
    }

    /// One on each line.
    fn secrets(&self, path: &str) -> Result<Vec<Vec<u8>>, SettingsError> {
        let key = self.key("secret_file");
        let text = std::fs::read_to_string(path)
            .map_err(|error| redis::unreadable(self.settings, &key, path, &error))?;
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        let secrets: Vec<Vec<u8>> = lines
            .map(|line| {
                signature::secret(line)
                    .map_err(|expected| self.wrong("secret_file", expected, Some(format!("{path:?}"))))
            })
            .collect::<Result<_, _>>()?;
        if secrets.is_empty() {
            let expected = "a file with a secret on each line";
            return Err(self
                .wrong("secret_file", expected, Some(format!("{path:?} with nothing in it")))
                .into());
        }
        Ok(secrets)
    }

    fn exec(&self, command: Vec<String>) -> Result<ExecConfig, SettingsError> {
        let section = &self.settings.remote;
        let forms = [("once", Form::Once), ("lines", Form::Lines)];
        let folder = self.text("folder", &section.folder);
        Ok(ExecConfig {
            command,
            folder: (!folder.is_empty()).then(|| folder.into()),
            form: self.word("exec_form", &section.exec_form, &forms)?,
            exit: ExitTable::new(&self.list("exit", &section.exit))
                .map_err(|got| self.wrong("exit", exit::EXPECTED, Some(got)))?,
        })
    }
}
