//! One pod, as a kubelet runs it: the container's arguments, environment and mounted files from the rendered chart, its probes
//! over real HTTP, SIGTERM, and SIGKILL at the end of the grace period.

use gristmill_chart_tests::objects::{Release, at};
use gristmill_testkit::history::now_us;
use gristmill_testkit::process::{Process, ProcessOptions};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A pod template, read from a Deployment.
pub(crate) struct Template {
    args: Vec<String>,
    env: Vec<(String, Value)>,
    /// Where each volume is mounted, and the files that lie there.
    mounts: Vec<(String, BTreeMap<String, String>)>,
    pub(crate) startup: Probe,
    pub(crate) live: Probe,
    pub(crate) ready: Probe,
    pub(crate) grace: Duration,
}

/// A probe by HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Probe {
    path: String,
    period: Duration,
    timeout: Duration,
    failures: u64,
}

fn seconds(value: &Value) -> Duration {
    Duration::from_secs(value.as_u64().unwrap_or_else(|| panic!("no number of seconds: {value}")))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl Probe {
    fn read(container: &Value, name: &str) -> Self {
        let probe = at(container, &format!("/{name}"));
        Self {
            path: text(at(probe, "/httpGet/path")),
            period: seconds(at(probe, "/periodSeconds")),
            timeout: seconds(at(probe, "/timeoutSeconds")),
            failures: at(probe, "/failureThreshold").as_u64().unwrap_or(3),
        }
    }

    /// Whether the answer comes in time and is one of success.
    fn asks(&self, address: SocketAddr) -> bool {
        self.try_ask(address).unwrap_or(false)
    }

    fn try_ask(&self, address: SocketAddr) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, self.timeout)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.write_all(
            format!("GET {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n", self.path).as_bytes(),
        )?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head.starts_with(b"HTTP/1.1 2") || head.starts_with(b"HTTP/1.1 3"))
    }
}

impl Template {
    pub(crate) fn read(release: &Release, deployment: &str) -> Self {
        let spec = at(release.get("Deployment", deployment), "/spec/template/spec");
        let container = at(spec, "/containers/0");
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let volumes: BTreeMap<String, BTreeMap<String, String>> = list(at(spec, "/volumes"))
            .iter()
            .map(|volume| (text(at(volume, "/name")), files(release, volume)))
            .collect();
        let mounts = list(at(container, "/volumeMounts"))
            .iter()
            .map(|mount| (text(at(mount, "/mountPath")), volumes[&text(at(mount, "/name"))].clone()))
            .collect();
        Self {
            args: list(at(container, "/args")).iter().map(text).collect(),
            env: list(at(container, "/env"))
                .iter()
                .map(|env| (text(at(env, "/name")), env.clone()))
                .collect(),
            mounts,
            startup: Probe::read(container, "startupProbe"),
            live: Probe::read(container, "livenessProbe"),
            ready: Probe::read(container, "readinessProbe"),
            grace: seconds(at(spec, "/terminationGracePeriodSeconds")),
        }
    }
}

/// The files of a volume of the chart's own; of others none, as nobody here has them.
fn files(release: &Release, volume: &Value) -> BTreeMap<String, String> {
    let (kind, name) = match (at(volume, "/secret/secretName"), at(volume, "/configMap/name")) {
        (Value::String(name), _) => ("Secret", name),
        (_, Value::String(name)) => ("ConfigMap", name),
        _ => return BTreeMap::new(),
    };
    let object = release.get(kind, name);
    let entries = at(object, "/data").as_object().into_iter().chain(at(object, "/stringData").as_object());
    let all: BTreeMap<String, String> =
        entries.flatten().map(|(key, value)| (key.clone(), text(value))).collect();
    let items = ["/secret/items", "/configMap/items"].map(|path| at(volume, path).as_array().cloned());
    match items.into_iter().flatten().next() {
        Some(items) => {
            items.iter().map(|item| (text(at(item, "/path")), all[&text(at(item, "/key"))].clone())).collect()
        }
        None => all,
    }
}

/// What probes have found.
#[derive(Default)]
struct Health {
    started: AtomicBool,
    ready_since: Mutex<Option<Instant>>,
    /// Liveness failed as often as it takes.
    dead: AtomicBool,
    live_failures: AtomicU64,
}

/// A running pod.
pub(crate) struct Pod {
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) incarnation: String,
    health: Arc<Health>,
    over: Arc<AtomicBool>,
    prober: Option<JoinHandle<()>>,
    /// When it was told to leave, and by when it must be gone.
    leaving: Option<(Instant, Duration)>,
    pub(crate) grace: Duration,
    folder: PathBuf,
}

/// How a pod ended.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) took: Duration,
    /// It was not gone by the end of the grace period.
    pub(crate) killed: bool,
    pub(crate) finished: u64,
    pub(crate) handed_back: u64,
    pub(crate) abandoned: u64,
    pub(crate) code: Option<i32>,
}

/// A port that nobody has at the moment.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Pod {
    /// Starts the container's program; `more` wins over the environment of the template.
    pub(crate) fn start(
        template: &Template,
        program: &Path,
        folder: &Path,
        name: &str,
        more: &[(&str, String)],
    ) -> Self {
        let folder = folder.join(name);
        let mut moved = Vec::new();
        for (mount, files) in &template.mounts {
            let here = folder.join(mount.trim_start_matches('/'));
            std::fs::create_dir_all(&here).unwrap();
            for (file, content) in files {
                std::fs::write(here.join(file), content).unwrap();
            }
            moved.push((mount.clone(), here.display().to_string()));
        }
        // A path below a mount is where the mount's files were put.
        let here = |text: &str| {
            let mount = moved.iter().filter(|(mount, _)| text.starts_with(mount.as_str()));
            let longest = mount.max_by_key(|(mount, _)| mount.len());
            longest.map_or_else(|| text.to_owned(), |(mount, here)| text.replacen(mount.as_str(), here, 1))
        };
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let value = |env: &Value| match at(env, "/value") {
            Value::String(value) => here(value),
            _ => match at(env, "/valueFrom/fieldRef/fieldPath").as_str() {
                Some("metadata.name") => name.to_owned(),
                Some("spec.nodeName") => "node-1".to_owned(),
                other => panic!("{other:?}: what a kubelet would say of {env}, nobody knows here"),
            },
        };
        let mut env: BTreeMap<String, String> =
            template.env.iter().map(|(name, env)| (name.clone(), value(env))).collect();
        env.insert("GRISTMILL__HEALTH__LISTEN".into(), address.to_string());
        env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let args: Vec<String> = template.args.iter().map(|arg| here(arg)).collect();
        let process = ProcessOptions::new(program).args(&args).envs(&env).spawn().unwrap();
        let incarnation = format!("{name}#{}", process.pid());
        let (health, over) = (Arc::new(Health::default()), Arc::new(AtomicBool::new(false)));
        let prober = {
            let (health, over) = (Arc::clone(&health), Arc::clone(&over));
            let probes = (template.startup.clone(), template.live.clone(), template.ready.clone());
            std::thread::spawn(move || probe(&probes, address, &health, &over))
        };
        Self {
            name: name.to_owned(),
            process,
            incarnation,
            health,
            over,
            prober: Some(prober),
            leaving: None,
            grace: template.grace,
            folder,
        }
    }

    pub(crate) fn ready_for(&self) -> Option<Duration> {
        self.health.ready_since.lock().unwrap().map(|since| since.elapsed())
    }

    /// Its liveness probe failed as often as it takes for a kubelet to kill it.
    pub(crate) fn is_dead(&self) -> bool {
        self.health.dead.load(Ordering::SeqCst)
    }

    /// SIGTERM; from now on it has the grace period.
    pub(crate) fn terminate(&mut self) {
        self.process.terminate().unwrap();
        self.leaving = Some((Instant::now(), self.grace));
    }

    /// Whether it is gone, by itself or, past its grace period, by SIGKILL; and when it was killed, by the history's clock.
    pub(crate) fn gone(&mut self) -> Option<(Ended, Option<u64>)> {
        let (since, grace) = self.leaving?;
        if let Some(status) = self.process.try_wait().unwrap() {
            return Some((self.ended(since.elapsed(), false, status.code()), None));
        }
        if since.elapsed() < grace {
            return None;
        }
        let at = now_us();
        self.process.kill().unwrap();
        Some((self.ended(since.elapsed(), true, None), Some(at)))
    }

    fn ended(&self, took: Duration, killed: bool, code: Option<i32>) -> Ended {
        let lines = self.process.lines();
        let line = lines.iter().rev().find(|line| line.text.starts_with("drained: "));
        let number = |name: &str| {
            let words = line.iter().flat_map(|line| line.text.split_whitespace());
            let mut pairs = words.filter_map(|word| word.split_once('='));
            pairs.find(|(word, _)| *word == name).and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
        };
        let (finished, handed_back) = (number("finished"), number("handed_back"));
        Ended { took, killed, finished, handed_back, abandoned: number("abandoned"), code }
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(prober) = self.prober.take() {
            let _ = prober.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Startup until it succeeds, then the other two, each at its own pace.
fn probe(
    (startup, live, ready): &(Probe, Probe, Probe),
    address: SocketAddr,
    health: &Health,
    over: &AtomicBool,
) {
    let mut failed = 0;
    while !startup.asks(address) {
        failed += 1;
        if failed >= startup.failures {
            return health.dead.store(true, Ordering::SeqCst);
        }
        if pause(startup.period, over) {
            return;
        }
    }
    health.started.store(true, Ordering::SeqCst);
    let (mut next_live, mut next_ready) = (Instant::now(), Instant::now());
    let (mut live_failures, mut ready_failures) = (0, 0);
    loop {
        let now = Instant::now();
        if now >= next_ready {
            next_ready = now + ready.period;
            let answer = ready.asks(address);
            ready_failures = if answer { 0 } else { ready_failures + 1 };
            let mut since = health.ready_since.lock().unwrap();
            if answer {
                since.get_or_insert_with(Instant::now);
            } else if ready_failures >= ready.failures {
                *since = None;
            }
        }
        if now >= next_live {
            next_live = now + live.period;
            live_failures = if live.asks(address) { 0 } else { live_failures + 1 };
            health.live_failures.fetch_max(live_failures, Ordering::SeqCst);
            if live_failures >= live.failures {
                health.dead.store(true, Ordering::SeqCst);
            }
        }
        if pause(next_live.min(next_ready).saturating_duration_since(Instant::now()), over) {
            return;
        }
    }
}

/// Until the next probe; whether the pod is over meanwhile.
fn pause(time: Duration, over: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if over.load(Ordering::SeqCst) {
            return true;
        }
        // not a wait: the pace of a probe
        std::thread::sleep(Duration::from_millis(20).min(time));
    }
    over.load(Ordering::SeqCst)
}
