//! A job handed to a kind as a node does it, and what came of it.

use gristmill_handler::{Answer, Cancellation, Delivery, Registry, RunFuture, Started};
use gristmill_job::{ContentType, JobLimits, NewJob, Place, QueueName, UnixMillis};
use gristmill_remote::exec::exit::ExitTable;
use gristmill_remote::http::status::StatusTable;
use gristmill_remote::{ExecConfig, Form, HttpConfig, HttpVersion, KindConfig, Limits, Remote, Way};
use std::path::PathBuf;
use std::time::Duration;

/// The kind of every test.
pub(crate) const KIND: &str = "price.changed";
/// For anything that should take a moment.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn kind(way: Way) -> KindConfig {
    KindConfig {
        kind: KIND.into(),
        way,
        limits: Limits { soft: None, hard: SOON },
        concurrency: None,
        max_answer_bytes: 64 * 1024,
        as_json: false,
        review: false,
    }
}

pub(crate) fn http(url: &str) -> HttpConfig {
    HttpConfig {
        url: url.into(),
        version: HttpVersion::Auto,
        connect_timeout: ms(5000),
        ca_pem: None,
        token: None,
        secrets: Vec::new(),
        status: StatusTable::default(),
    }
}

/// A kind that is served by that address.
pub(crate) fn at(url: &str) -> KindConfig {
    kind(Way::Http(http(url)))
}

/// A kind that is served by `sh` with this script, once per job or for many.
pub(crate) fn sh(form: Form, script: &str) -> KindConfig {
    let command = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
    kind(Way::Exec(ExecConfig { command, folder: None, form, exit: ExitTable::default() }))
}

/// With other limits.
pub(crate) fn within(soft: Option<u64>, hard: u64, config: KindConfig) -> KindConfig {
    KindConfig { limits: Limits { soft: soft.map(ms), hard: ms(hard) }, ..config }
}

/// A folder of one test, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gristmill-remote-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }

    /// Until the file holds so many lines.
    pub(crate) async fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let look = async {
            loop {
                let lines: Vec<String> = self.read(name).lines().map(str::to_owned).collect();
                if lines.len() >= count {
                    return lines;
                }
                // not a wait: a pause between two looks, under a deadline
                tokio::time::sleep(ms(5)).await;
            }
        };
        tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("{name}: {:?}", self.read(name)))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether a process of that number is there and no zombie.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

/// Until none of these processes is left, not even as a zombie of ours.
pub(crate) async fn all_gone(pids: &[String]) {
    let there = |pid: &&String| std::path::Path::new(&format!("/proc/{}", pid.trim())).exists();
    let look = async {
        while pids.iter().any(|pid| there(&pid)) {
            // not a wait: a pause between two looks, under a deadline
            tokio::time::sleep(ms(5)).await;
        }
    };
    let left = || pids.iter().filter(there).map(|pid| (pid, lives(pid))).collect::<Vec<_>>();
    tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("left: {:?}", left()));
}

pub(crate) fn job(payload: &str) -> NewJob {
    let job = NewJob::from_bytes(KIND, "sku-1", payload.to_owned(), ContentType::Json).unwrap();
    job.with_id("a1").unwrap().with_version(7)
}

pub(crate) struct Kind {
    registry: Registry,
    remote: Remote,
}

impl Kind {
    pub(crate) fn new(config: KindConfig) -> Self {
        // As in a container whose first process is the node: what loses its parent becomes our child.
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let remote = Remote::new(vec![config]).unwrap();
        let registry = remote.add_to(Registry::new());
        registry.check().unwrap();
        Self { registry, remote }
    }

    /// A run and the handle that stops it.
    pub(crate) fn start(&self, job: &NewJob) -> (RunFuture, Cancellation) {
        let cancellation = Cancellation::new();
        let encoded = job.encode(UnixMillis(1), JobLimits::default()).unwrap();
        let delivery = Delivery {
            id: encoded.id,
            key: encoded.key,
            envelope: encoded.envelope,
            place: Place { ms: 1, seq: 0 },
            attempt: 3,
            recovered: false,
            reconcile: false,
            cancellation: cancellation.clone(),
            queue: QueueName::new("prices").unwrap(),
            trace: None,
        };
        match self.registry.start(delivery, 1 << 20) {
            Started::Run { future, .. } => (future, cancellation),
            other @ Started::Refused { .. } => panic!("{other:?}"),
        }
    }

    /// Ends what stays.
    pub(crate) async fn close(&self) {
        self.remote.close().await;
    }

    pub(crate) async fn run(&self, job: &NewJob) -> Answer {
        self.start(job).0.await
    }

    /// What became of a job with a small payload, in a word, and the error.
    pub(crate) async fn ask(&self) -> (String, String) {
        told(&self.run(&job("{\"price\":1}")).await)
    }
}

/// `done`, the class of the error, or `snoozed`, `discarded`, `review`; and the text.
pub(crate) fn told(answer: &Answer) -> (String, String) {
    match answer {
        Answer::Done(_) => ("done".into(), String::new()),
        Answer::Failed(failure) => (failure.class.as_str().into(), failure.chain.join(": ")),
        Answer::Snoozed(wait) => ("snoozed".into(), format!("{} ms", wait.as_millis())),
        Answer::Duplicate => ("duplicate".into(), String::new()),
        Answer::Stale(text) => ("stale".into(), text.clone()),
        Answer::Discarded(text) => ("discarded".into(), text.clone()),
        Answer::RunAgain => ("again".into(), String::new()),
        Answer::Review(text) => ("review".into(), text.clone()),
    }
}

pub(crate) fn said(word: &str) -> impl Fn(&(String, String)) -> bool + '_ {
    move |(outcome, _)| outcome == word
}
