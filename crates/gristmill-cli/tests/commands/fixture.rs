//! Running the program and reading what it said.

use gristmill_testkit::process::{Output, Process, ProcessOptions};
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::server::{Appendonly, Server, ServerOptions};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For anything that should take a moment.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A private server, and the program pointed at it.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    folder: PathBuf,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(ServerOptions::new().appendonly(Appendonly::Everysec))
    }

    pub(crate) fn with(options: ServerOptions) -> Self {
        let server = Server::start(options).unwrap();
        let folder =
            std::env::temp_dir().join(format!("gristmill-cli-{}-{}", std::process::id(), server.port()));
        std::fs::create_dir_all(&folder).unwrap();
        Self { server, folder }
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The program without handlers, to its end.
    #[track_caller]
    pub(crate) fn run(&self, args: &str) -> Said {
        self.run_from(args, Path::new("/dev/null"))
    }

    /// The same with something on standard input.
    #[track_caller]
    pub(crate) fn run_from(&self, args: &str, stdin: &Path) -> Said {
        let url = self.server.url();
        run(ProcessOptions::new(gristmill())
            .args(["--redis", url.as_str()])
            .args(args.split_whitespace())
            .stdin(stdin))
    }

    /// The program by way of a proxy that loses the answer of this script, once it was executed. The script's source may stand
    /// in several files of the broker.
    #[track_caller]
    pub(crate) fn run_unanswered(&self, script: &[&str], args: &str) -> Said {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gristmill-broker/src/lua");
        let read = |part: &&str| std::fs::read_to_string(folder.join(part).with_extension("lua")).unwrap();
        let source: String = script.iter().map(read).collect();
        let hash = self.server.command(&["SCRIPT", "LOAD", &source]).unwrap();
        let proxy = Proxy::start(self.server.port()).unwrap();
        let fault = proxy.cut_after_next_request(hash.as_str().unwrap());
        let said = run(ProcessOptions::new(gristmill())
            .args(["--redis", proxy.url().as_str()])
            .args(args.split_whitespace()));
        assert!(fault.struck(), "the script was not called: {said:?}");
        said
    }

    /// A node with handlers that do what they should not, ready. Leases are short.
    pub(crate) fn stubborn_node(&self, more: &str) -> Process {
        let node = self.stubborn(&format!("node --queues q:4 {more}"));
        node.wait_line(|line| line.text.contains(" ready "), SOON).unwrap();
        node
    }

    pub(crate) fn stubborn_path(&self) -> PathBuf {
        stubborn()
    }

    pub(crate) fn stubborn(&self, args: &str) -> Process {
        let url = self.server.url();
        let set = ["--redis", &url, "--set", "lease.ttl_ms=1500", "--set", "lease.renewal_ms=300"];
        let margin = ["--set", "lease.margin_ms=450"];
        let options =
            ProcessOptions::new(self.stubborn_path()).args(set).args(margin).args(args.split_whitespace());
        options.spawn().unwrap()
    }

    /// Jobs of a kind with an empty payload, one for each key.
    #[track_caller]
    pub(crate) fn enqueue(&self, kind: &str, keys: &[&str]) {
        let line = |key: &&str| {
            format!(
                "{{\"id\":\"{kind}-{key}\",\"key\":\"{key}\",\"version\":1,\"kind\":\"{kind}\",\"payload\":{{}}}}\n"
            )
        };
        let file = self.file("jobs", keys.iter().map(line).collect::<String>().as_bytes());
        let said = self.run(&format!("enqueue q --create --partitions 4 --from {}", file.display()));
        assert_eq!(said.code, 0, "{said:?}");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

pub(crate) fn gristmill() -> &'static str {
    env!("CARGO_BIN_EXE_gristmill")
}

/// Cargo builds examples beside the tests, but tells nobody where.
fn stubborn() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples/stubborn");
    assert!(path.is_file(), "{} is not built: `cargo build -p gristmill-cli --examples`", path.display());
    path
}

#[track_caller]
pub(crate) fn run(options: ProcessOptions) -> Said {
    let mut process = options.spawn().unwrap();
    let status = process.wait(SOON).unwrap();
    let of = |from| {
        let lines = process.lines().into_iter().filter(|line| line.from == from).map(|line| line.text);
        lines.collect::<Vec<_>>().join("\n")
    };
    Said { code: status.code().unwrap_or(-1), out: of(Output::Stdout), err: of(Output::Stderr) }
}

/// The lines of standard output of a process that has ended.
pub(crate) fn out(process: &Process) -> Vec<String> {
    process.lines().into_iter().filter(|line| line.from == Output::Stdout).map(|line| line.text).collect()
}
