//! Deploys, played: the chart is rendered with real Helm, its numbers, files, arguments and probes are read from the result,
//! real node processes are started from them, and what a Deployment does to its pods is done to them, under the load of a
//! real history. All promises are checked, and a table of what was seen is written (`rollouts.md` in `target/tmp`).
//!
//! * `deployment`: what a Deployment does about its pods (pure)
//! * `pod`: one pod as a kubelet runs it
//! * `play`: a Deployment that is played
//! * `data`: the load
//! * this file: which deploys

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod data;
mod deployment;
mod play;
mod pod;

use data::Load;
use deployment::Strategy;
use gristmill_chart_tests::helm;
use gristmill_chart_tests::objects::{Release, at};
use gristmill_job::NewJob;
use gristmill_testkit::eventually;
use gristmill_testkit::history::now_us;
use gristmill_testkit::proxy::Proxy;
use gristmill_testkit::seed::{SplitMix64, seed};
use gristmill_testkit::server::{Appendonly, ServerOptions};
use gristmill_tests::fleet::{Fleet, PARTITIONS, QUEUE};
use gristmill_tests::script::{KIND, Script};
use play::{Play, longest_pause};
use pod::Template;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The Deployment of the chart's default pool, in a release named `r`.
const DEPLOYMENT: &str = "r-gristmill-worker-default";
const LONG: Duration = Duration::from_secs(180);
/// Jobs are enqueued in portions of so many, …
const PORTION: usize = 250;
/// … over about this time, so that the load lasts as long as a deploy.
const LOAD: Duration = Duration::from_secs(24);

/// What a test says of the chart beside what every test says.
struct Plan {
    name: &'static str,
    values: &'static str,
    replicas: usize,
    window_s: u64,
    /// How long the longest runs take.
    long_ms: u64,
}

struct Stage {
    plan: Plan,
    fleet: Fleet,
    play: Play,
    load: Load,
    enqueued: Mutex<HashMap<String, u64>>,
    /// How many jobs of the load are fed; others were written otherwise.
    own: usize,
    /// In so many portions, and how many were.
    portions: usize,
    next: AtomicUsize,
    began: Instant,
}

fn share(of: &serde_json::Value, replicas: usize) -> usize {
    match (of.as_u64(), of.as_str().and_then(|text| text.strip_suffix('%'))) {
        (Some(number), _) => usize::try_from(number).unwrap(),
        (None, Some(percent)) => (percent.parse::<usize>().unwrap() * replicas).div_ceil(100),
        other => panic!("neither a number nor a share: {other:?}"),
    }
}

/// The numbers of the rendered Deployment.
fn strategy(release: &Release) -> Strategy {
    let deployment = release.get("Deployment", DEPLOYMENT);
    let replicas = usize::try_from(at(deployment, "/spec/replicas").as_u64().unwrap()).unwrap();
    let rolling =
        |name: &str| share(at(deployment, &format!("/spec/strategy/rollingUpdate/{name}")), replicas);
    Strategy {
        replicas,
        surge: rolling("maxSurge"),
        unavailable: rolling("maxUnavailable"),
        min_ready: Duration::from_secs(at(deployment, "/spec/minReadySeconds").as_u64().unwrap()),
    }
}

fn worker() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_promise-worker"))
}

impl Stage {
    /// Renders, and starts the first pods; `None`, said loudly, without Helm.
    fn set(plan: Plan, reached: impl FnOnce(&Fleet) -> Vec<(&'static str, String)>) -> Option<Self> {
        Self::set_with(plan, worker(), reached)
    }

    /// The same, with another program in the first pods.
    fn set_with(
        plan: Plan,
        program: PathBuf,
        reached: impl FnOnce(&Fleet) -> Vec<(&'static str, String)>,
    ) -> Option<Self> {
        let helm = helm::all().pop()?;
        let mut random = SplitMix64::new(seed());
        let fleet = Fleet::start(ServerOptions::new().appendonly(Appendonly::Everysec));
        let values = format!(
            "redis: {{url: '{url}'}}
drain: {{windowSeconds: {window}, graceSeconds: 2, marginSeconds: 2}}
probes:
  startup: {{periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 60}}
  ready: {{periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 3}}
config:
  lease: {{ttl_ms: 3000, renewal_ms: 600, margin_ms: 900}}
  retry: {{base_ms: 100}}
worker:
  replicas: {replicas}
  queues: ['{QUEUE}:{PARTITIONS}']
  slots: 40
  {more}
",
            url = fleet.url(),
            window = plan.window_s,
            replicas = plan.replicas,
            more = plan.values,
        );
        let release = helm.render(&values);
        let more = reached(&fleet);
        let folder = fleet.folder().join("pods");
        let play = Play::new(strategy(&release), Template::read(&release, DEPLOYMENT), program, folder, more);
        let load = Load::new(&mut random, plan.long_ms);
        let mut stage = Self {
            plan,
            play,
            own: load.jobs.len(),
            portions: load.jobs.len().div_ceil(PORTION),
            load,
            enqueued: Mutex::default(),
            next: AtomicUsize::new(0),
            began: Instant::now(),
            fleet,
        };
        stage.play.until(&mut stage.fleet, LONG, "first pods", |_, _| true);
        stage.began = Instant::now();
        Some(stage)
    }

    /// Enqueues what is due by now.
    fn feed(&self) {
        let portions = self.portions;
        let due = (self.began.elapsed().as_secs_f64() / LOAD.as_secs_f64() * portions as f64) as usize;
        while self.next.load(Ordering::SeqCst) < due.min(portions) {
            let portion = self.next.fetch_add(1, Ordering::SeqCst);
            let jobs = &self.load.jobs[portion * PORTION..self.own.min((portion + 1) * PORTION)];
            self.fleet.enqueue(jobs.to_vec());
            let now = now_us();
            let ids = jobs.iter().map(|job| (job.id.as_ref().unwrap().to_string(), now));
            self.enqueued.lock().unwrap().extend(ids);
        }
    }

    /// Feeds until jobs run.
    fn wait_under_load(&mut self) {
        self.look_until("the load to begin", |stage| stage.fleet.history().runs.len() > 500);
    }

    /// Looks and feeds until something is so.
    fn look_until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        eventually(LONG, what, || {
            self.feed();
            self.play.look(&mut self.fleet);
            is(self).then_some(())
        });
    }

    fn is_fed(&self) -> bool {
        self.next.load(Ordering::SeqCst) >= self.portions
    }

    /// Looks and feeds until the Deployment is as it should be.
    fn settle_down(&mut self, what: &str) {
        let began = Instant::now();
        loop {
            self.feed();
            self.play.look(&mut self.fleet);
            if self.play.is_done() {
                return;
            }
            assert!(began.elapsed() < LONG, "no {what} within {LONG:?}");
            // not a wait: the pace of the controller
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// The rest of the load, the end of all work, and every promise. Gives a row of the table.
    fn judge(mut self) {
        while !self.is_fed() {
            self.settle_down("rest of the load");
            // not a wait: the pace of the producer
            std::thread::sleep(Duration::from_millis(50));
        }
        self.fleet.wait_settled_within(LONG);
        self.play.remove(&mut self.fleet);
        assert_eq!(self.fleet.dead().len(), 0, "no job died");
        let report = self.fleet.assert_effects(&self.load.jobs);
        self.load.assert_truth(&self.fleet);
        let (pause, of) = longest_pause(&self.fleet.history(), &self.enqueued.lock().unwrap());
        let ended = &self.play.ended;
        let sum = |of: fn(&pod::Ended) -> u64| ended.iter().map(of).sum::<u64>();
        let mut took: Vec<Duration> = ended.iter().map(|ended| ended.took).collect();
        took.sort_unstable();
        let row = format!(
            "| {} | {} | {} | {} | {} | {} | {} | {:.1} to {:.1} s | {:.1} s ({of}) |\n",
            self.plan.name,
            report.jobs,
            report.runs,
            self.play.most_pods,
            sum(|ended| ended.finished),
            sum(|ended| ended.handed_back),
            ended.iter().filter(|ended| ended.killed).count(),
            took.first().copied().unwrap_or_default().as_secs_f64(),
            took.last().copied().unwrap_or_default().as_secs_f64(),
            pause.as_secs_f64(),
        );
        tell(&row);
    }
}

/// Adds a row to the table, which is shared by the tests of a run.
fn tell(row: &str) {
    static ROWS: Mutex<String> = Mutex::new(String::new());
    let mut rows = ROWS.lock().unwrap();
    rows.push_str(row);
    let head = "| deploy | jobs | runs | pods at most | finished in drains | handed back | killed | drains took | longest pause of a key |\n|---|---|---|---|---|---|---|---|---|\n";
    println!("{head}{row}");
    let file = format!("{}/rollouts.md", env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(file, format!("{head}{rows}")).unwrap();
}

/// Rolls all pods, once the load has begun.
fn roll(plan: Plan) {
    let Some(mut stage) = Stage::set(plan, |_| Vec::new()) else { return };
    stage.wait_under_load();
    stage.play.roll();
    stage.settle_down("rollout");
    assert!(stage.play.old.is_empty());
    assert!(stage.play.ended.iter().all(|ended| ended.abandoned == 0), "every run could be stopped");
    assert!(
        stage.play.ended.iter().all(|ended| ended.killed || ended.code == Some(0)),
        "{:?}",
        stage.play.ended
    );
    stage.judge();
}

/// New pods first, one at a time, a while apart: what the chart does where nobody says otherwise.
#[test]
fn a_rollout_with_one_pod_more() {
    roll(Plan {
        name: "surge 1, unavailable 0",
        values: "minReadySeconds: 3",
        replicas: 3,
        window_s: 5,
        long_ms: 2000,
    });
}

/// Old pods go first, and all of them are leaving while all new ones run.
#[test]
fn a_rollout_with_one_pod_less() {
    let values = "maxSurge: 0\n  maxUnavailable: 1\n  minReadySeconds: 0";
    roll(Plan { name: "surge 0, unavailable 1", values, replicas: 3, window_s: 5, long_ms: 2000 });
}

/// Runs are longer than the drain window: they are stopped and handed back, uncharged.
#[test]
fn a_rollout_whose_longest_runs_outlast_the_drain() {
    let values = "maxSurge: 3\n  minReadySeconds: 0";
    roll(Plan { name: "all at once, long runs", values, replicas: 3, window_s: 1, long_ms: 6000 });
}

/// A pod stands still when it is told to leave, and is killed when its grace period is over.
#[test]
fn a_rollout_in_which_a_pod_does_not_leave_by_itself() {
    let values = "minReadySeconds: 0";
    let plan = Plan { name: "one pod frozen, killed", values, replicas: 3, window_s: 2, long_ms: 500 };
    let Some(mut stage) = Stage::set(plan, |_| Vec::new()) else { return };
    stage.wait_under_load();
    let from = now_us();
    let pod = &mut stage.play.new[0];
    pod.process.pause().unwrap();
    let frozen = pod.incarnation.clone();
    stage.play.roll();
    stage.settle_down("rollout");
    stage.fleet.cut_off_named(&frozen, from, now_us());
    let killed: Vec<_> = stage.play.ended.iter().filter(|ended| ended.killed).collect();
    // window + grace + margin, as the chart computes it
    assert!(killed.len() == 1 && killed[0].took >= Duration::from_secs(6), "{:?}", stage.play.ended);
    stage.judge();
}

/// New pods that cannot reach Redis never get ready: the old ones stay and work, until the mistake is taken back.
#[test]
fn a_rollout_to_a_wrong_address_stops_and_is_rolled_back() {
    let plan = Plan {
        name: "wrong address, rolled back",
        values: "minReadySeconds: 0",
        replicas: 3,
        window_s: 3,
        long_ms: 500,
    };
    let Some(mut stage) = Stage::set(plan, |_| Vec::new()) else { return };
    stage.wait_under_load();
    let wrong = vec![
        ("GRISTMILL__REDIS__URL_FILE", String::new()),
        ("GRISTMILL__REDIS__URL", "redis://127.0.0.1:1".to_owned()),
    ];
    let right = std::mem::replace(&mut stage.play.more, wrong);
    stage.play.roll();
    let began = Instant::now();
    stage.look_until("a while in which nothing changes", |_| began.elapsed() > Duration::from_secs(5));
    assert_eq!((stage.play.old.len(), stage.play.new.len()), (3, 1), "one pod more, and it is not ready");
    assert!(stage.play.new[0].ready_for().is_none() && stage.play.ended.is_empty());
    stage.play.more = right;
    stage.play.roll();
    stage.settle_down("rollout of what is right");
    stage.judge();
}

/// Envelopes of the release before (without what came later) and of the next (with what nobody here knows) are read by pods
/// of either template. With `GRISTMILL_OLD_WORKER`, the path of a `promise-worker` of another release, the old pods are its.
#[test]
fn a_rollout_between_two_releases() {
    let values = "maxSurge: 0\n  maxUnavailable: 1\n  minReadySeconds: 0";
    let plan = Plan { name: "two releases", values, replicas: 3, window_s: 5, long_ms: 1000 };
    let old = std::env::var_os("GRISTMILL_OLD_WORKER").map(PathBuf::from);
    if old.is_none() {
        helm::skipped(
            "a binary of another release",
            "GRISTMILL_OLD_WORKER names none; envelopes alone are of another",
        );
    }
    let Some(mut stage) = Stage::set_with(plan, old.unwrap_or_else(worker), |_| Vec::new()) else { return };
    stage.wait_under_load();
    let mut others = foreign_jobs("before");
    others.iter().for_each(|(job, envelope)| stage.fleet.write_as(job, envelope));
    stage.play.program = worker();
    stage.play.roll();
    stage.look_until("a new pod", |stage| stage.play.new.iter().any(|pod| pod.ready_for().is_some()));
    let later = foreign_jobs("amid");
    later.iter().for_each(|(job, envelope)| stage.fleet.write_as(job, envelope));
    others.extend(later);
    stage.settle_down("rollout");
    stage.load.truth.extend(others.iter().map(|(job, _)| (job.key.to_string(), Some("read".to_owned()))));
    stage.load.jobs.extend(others.into_iter().map(|(job, _)| job));
    stage.judge();
}

/// Jobs in envelopes that this release would not write.
fn foreign_jobs(when: &str) -> Vec<(NewJob, Vec<u8>)> {
    let script = Script { effect: true, state: Some("read".into()), ..Script::default() };
    let payload = serde_json::to_vec(&script).unwrap();
    // MessagePack by hand, since no encoder of ours would write these.
    let text = |text: &str| [&[0xd9, text.len() as u8], text.as_bytes()].concat();
    let bytes = |bytes: &[u8]| [&[0xc5, (bytes.len() >> 8) as u8, bytes.len() as u8], bytes].concat();
    let mut jobs = Vec::new();
    for n in 0..40_u64 {
        let job = Fleet::job(&format!("{when}-{n}"), &format!("foreign {when} {n}"), 1, &script);
        let mut fields = vec![("t", text(KIND)), ("n", vec![1]), ("p", bytes(&payload)), ("c", text("j"))];
        if n % 2 == 0 {
            // Of the next release: in another order, and with more than is known.
            fields.reverse();
            fields.push(("z", [vec![0x81], text("future"), vec![0xc0]].concat()));
            fields.push(("priority", vec![7]));
        }
        let mut envelope = vec![0x81 + fields.len() as u8];
        envelope.extend([text("v"), vec![1]].concat());
        envelope.extend(fields.into_iter().flat_map(|(name, value)| [text(name), value].concat()));
        jobs.push((job, envelope));
    }
    jobs
}

/// From one pod to six and back to two.
#[test]
fn scaling_up_and_down() {
    let plan = Plan {
        name: "1, 6, 2 replicas",
        values: "minReadySeconds: 0",
        replicas: 1,
        window_s: 5,
        long_ms: 2000,
    };
    let Some(mut stage) = Stage::set(plan, |_| Vec::new()) else { return };
    stage.wait_under_load();
    stage.play.strategy.replicas = 6;
    stage.settle_down("six pods");
    assert_eq!(stage.play.new.len(), 6);
    stage.look_until("partitions for each of the six", |stage| stage.fleet.owners().len() == 6);
    stage.play.strategy.replicas = 2;
    stage.settle_down("two pods");
    stage.judge();
}

/// One deploy, and in its middle the network between all pods and Redis is gone for longer than a lease.
#[test]
fn a_rollout_without_a_network_for_a_while() {
    let plan = Plan {
        name: "no network for 5 s",
        values: "minReadySeconds: 2",
        replicas: 3,
        window_s: 5,
        long_ms: 2000,
    };
    let mut proxy = None;
    let set = Stage::set(plan, |fleet| {
        let through = Proxy::start(fleet.server.port()).unwrap();
        let url = fleet.server.url_at(through.port());
        proxy = Some(through);
        // The file of the chart's Secret is for pods with a network.
        vec![("GRISTMILL__REDIS__URL_FILE", String::new()), ("GRISTMILL__REDIS__URL", url)]
    });
    let (Some(mut stage), Some(proxy)) = (set, proxy) else { return };
    stage.wait_under_load();
    stage.play.roll();
    let (began, from) = (Instant::now(), now_us());
    let mut cut = false;
    while began.elapsed() < Duration::from_secs(7) {
        if !cut && began.elapsed() > Duration::from_secs(2) {
            proxy.refuse();
            cut = true;
        }
        stage.feed();
        stage.play.look(&mut stage.fleet);
        // not a wait: how long the network is gone
        std::thread::sleep(Duration::from_millis(100));
    }
    proxy.pass();
    let pods: Vec<String> =
        stage.play.old.iter().chain(&stage.play.new).map(|pod| pod.incarnation.clone()).collect();
    stage.settle_down("rollout");
    for pod in pods {
        stage.fleet.cut_off_named(&pod, from, now_us());
    }
    stage.judge();
}
