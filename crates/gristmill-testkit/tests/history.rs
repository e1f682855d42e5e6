//! The checker against planted violations of every sort, and the files against real kills.

use gristmill_testkit::{
    Error,
    history::{Event, Expectations, History, HistoryWriter, Job, Outcome, Report, check, now_us},
    process::Process,
    seed::{SplitMix64, seed},
};
use std::{env, fs, path::PathBuf, thread, time::Duration};

const SOON: Duration = Duration::from_secs(30);

/// Builds a history: `job` enqueues id `k.v` of key `k`, version `v`.
#[derive(Default, Clone)]
struct Story(Vec<Event>);

impl Story {
    fn job(mut self, key: &str, version: u64) -> Self {
        self.0.push(Event::Enqueued { id: format!("{key}.{version}"), key: key.into(), version });
        self
    }

    fn start(mut self, key: &str, version: u64, node: &str, at_us: u64) -> Self {
        let (id, key, node) = (format!("{key}.{version}"), key.to_owned(), node.to_owned());
        self.0.push(Event::Started { id, key, version, node, attempt: 0, at_us });
        self
    }

    fn end(mut self, key: &str, version: u64, node: &str, at_us: u64, outcome: Outcome) -> Self {
        let (id, key, node) = (format!("{key}.{version}"), key.to_owned(), node.to_owned());
        self.0.push(Event::Ended { id, key, version, node, attempt: 0, at_us, outcome });
        self
    }

    fn run(self, key: &str, version: u64, node: &str, from_us: u64, to_us: u64) -> Self {
        self.start(key, version, node, from_us).end(key, version, node, to_us, Outcome::Done)
    }

    fn check(&self, expected: &Expectations) -> Report {
        check(&History::from_events(self.0.clone()), expected)
    }
}

/// Counts of: lost, missing, doubled, out of order, overlapping, unended, unexplained.
fn counts(report: &Report) -> [u64; 7] {
    let Report { lost, missing, doubled, out_of_order, overlapping, unended, unexplained, .. } = report;
    [lost, missing, doubled, out_of_order, overlapping, unended, unexplained].map(|finding| finding.count)
}

fn clean() -> Story {
    Story::default()
        .job("a", 1)
        .job("a", 2)
        .job("b", 1)
        .run("a", 1, "n", 10, 20)
        .run("a", 2, "n", 20, 30)
        .run("b", 1, "n", 15, 25)
}

#[test]
fn a_clean_history_is_clean() {
    let report = clean().check(&Expectations::new().applied([("a", 2), ("b", 1)]));
    report.assert_clean();
    assert_eq!((report.jobs, report.runs, report.repeated, report.effects_compared), (3, 3, 0, true));
}

#[test]
fn a_job_that_never_succeeded_is_lost() {
    let failed = clean().job("c", 1).start("c", 1, "n", 1).end("c", 1, "n", 2, Outcome::Failed);
    let never = clean().job("c", 1);
    for (story, tries) in [(failed, "(1 runs)"), (never, "(0 runs)")] {
        let report = story.check(&Expectations::new());
        assert_eq!(counts(&report), [1, 0, 0, 0, 0, 0, 0]);
        assert!(report.lost.examples[0].contains("job c.1") && report.lost.examples[0].contains(tries));
        story.check(&Expectations::new().settled_otherwise(["c.1"])).assert_clean();
    }
}

#[test]
fn effects_are_counted_per_key() {
    let missing = clean().check(&Expectations::new().applied([("a", 1), ("b", 1)]));
    assert_eq!(counts(&missing), [0, 1, 0, 0, 0, 0, 0]);
    let unnamed = clean().check(&Expectations::new().applied([("a", 2)]));
    assert_eq!(counts(&unnamed), [0, 1, 0, 0, 0, 0, 0]);
    let doubled = clean().check(&Expectations::new().applied([("a", 4), ("b", 1)]));
    assert_eq!(counts(&doubled), [0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(doubled.doubled.examples, ["key a: 2 effects were due, 4 were applied"]);
    // One too many here does not make up for one too few there.
    let both = clean().check(&Expectations::new().applied([("a", 1), ("b", 2)]));
    assert_eq!(counts(&both), [0, 1, 1, 0, 0, 0, 0]);
    let invented = clean().check(&Expectations::new().applied([("a", 2), ("b", 1), ("z", 1)]));
    assert_eq!(counts(&invented), [0, 0, 1, 0, 0, 0, 0]);
    // Enqueued twice under one id is one job.
    clean().job("a", 1).check(&Expectations::new().applied([("a", 2), ("b", 1)])).assert_clean();
}

#[test]
fn a_newer_version_first_is_out_of_order() {
    let story = Story::default().job("a", 1).job("a", 2).run("a", 2, "n", 10, 20).run("a", 1, "n", 20, 30);
    let report = story.check(&Expectations::new());
    assert_eq!(counts(&report), [0, 0, 0, 1, 0, 0, 0]);
    assert!(
        report.out_of_order.examples[0].contains("job a.1")
            && report.out_of_order.examples[0].contains("after job a.2")
    );
    story.check(&Expectations::new().order_not_promised(["a.1"])).assert_clean();
}

#[test]
fn a_newer_version_between_an_older_ones_attempts_is_out_of_order() {
    let story =
        Story::default().job("a", 1).job("a", 2).start("a", 1, "n", 1).end("a", 1, "n", 2, Outcome::Failed);
    let broken = story.clone().run("a", 2, "n", 3, 4).run("a", 1, "n", 5, 6);
    assert_eq!(counts(&broken.check(&Expectations::new())), [0, 0, 0, 1, 0, 0, 0]);
    story.run("a", 1, "n", 3, 4).run("a", 2, "n", 5, 6).check(&Expectations::new()).assert_clean();
}

#[test]
fn recovery_may_repeat_a_version_but_not_go_back_for_the_first_time() {
    let story = clean().run("a", 1, "m", 40, 50);
    let report = story.check(&Expectations::new());
    report.assert_clean();
    assert_eq!(report.repeated, 1);
}

#[test]
fn two_runs_of_a_key_at_once_overlap() {
    let next = Story::default().job("a", 1).job("a", 2).run("a", 1, "n", 10, 20).run("a", 2, "n", 19, 30);
    let report = next.check(&Expectations::new());
    assert_eq!(counts(&report), [0, 0, 0, 0, 1, 0, 0]);
    assert!(
        report.overlapping.examples[0].contains("job a.2")
            && report.overlapping.examples[0].contains("while job a.1")
    );
    let same = Story::default().job("a", 1).run("a", 1, "n", 10, 20).run("a", 1, "m", 19, 30);
    assert_eq!(counts(&same.check(&Expectations::new())), [0, 0, 0, 0, 1, 0, 0]);
    // A long run overlaps all that starts in it, also behind a short one.
    let long = Story::default().job("a", 1).job("a", 2).job("a", 3);
    let long = long.run("a", 1, "n", 0, 100).run("a", 2, "n", 10, 20).run("a", 3, "n", 30, 40);
    assert_eq!(counts(&long.check(&Expectations::new())), [0, 0, 0, 0, 2, 0, 0]);
}

#[test]
fn a_killed_run_ends_with_its_process() {
    let story = Story::default().job("a", 1).start("a", 1, "dead", 10).run("a", 1, "m", 60, 70);
    story.check(&Expectations::new().killed("dead", 50)).assert_clean();
    let before_the_kill = story.check(&Expectations::new().killed("dead", 65));
    assert_eq!(counts(&before_the_kill), [0, 0, 0, 0, 1, 0, 0]);
    let not_killed = story.check(&Expectations::new().killed("m", 90));
    assert_eq!(counts(&not_killed), [0, 0, 0, 0, 1, 1, 0]);
    assert!(not_killed.unended.examples[0].contains("on dead"));
}

#[test]
fn a_kill_does_not_excuse_a_run_that_had_ended() {
    let story = Story::default().job("a", 1).job("a", 2).run("a", 1, "dead", 10, 40).run("a", 2, "m", 30, 50);
    assert_eq!(counts(&story.check(&Expectations::new().killed("dead", 20))), [0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn only_a_stopped_process_is_excused_for_what_it_had_begun() {
    let story = Story::default().job("a", 1).job("a", 2).run("a", 1, "old", 10, 5_000);
    let story = story.run("a", 1, "new", 2_000, 2_100).run("a", 2, "new", 2_200, 2_300);
    let report = story.check(&Expectations::new().paused("old", 100, 4_900));
    report.assert_clean();
    assert_eq!((report.excused_overlaps, report.repeated), (2, 1));
    for other in
        [Expectations::new().paused("old", 2_250, 4_900), Expectations::new().paused("other", 100, 4_900)]
    {
        assert!(story.check(&other).overlapping.count > 0);
    }
    let late =
        Story::default().job("a", 1).job("a", 2).run("a", 1, "new", 50, 60).run("a", 2, "new", 70, 200);
    let late = late.run("a", 1, "old", 100, 110);
    late.check(&Expectations::new().paused("old", 10, 99)).assert_clean();
    assert_eq!(counts(&late.check(&Expectations::new())), [0, 0, 0, 0, 1, 0, 0]);
    // The late start may also come just before that of the true owner; but not long after it was resumed.
    let early = |at| {
        Story::default().job("a", 1).run("a", 1, "old", at, at + 50).run("a", 1, "new", at + 20, at + 30)
    };
    early(120).check(&Expectations::new().paused("old", 10, 99)).assert_clean();
    let too_late = early(1_000_200).check(&Expectations::new().paused("old", 10, 99));
    assert_eq!(counts(&too_late), [0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn what_nobody_enqueued_is_unexplained() {
    let stranger = clean().run("z", 9, "n", 1, 2);
    assert_eq!(counts(&stranger.check(&Expectations::new())), [0, 0, 0, 0, 0, 0, 1]);
    let half = clean().end("a", 1, "unknown", 99, Outcome::Done);
    assert_eq!(counts(&half.check(&Expectations::new())), [0, 0, 0, 0, 0, 0, 1]);
}

#[test]
#[should_panic(expected = "nothing was checked")]
fn an_empty_history_is_not_clean() {
    Story::default().check(&Expectations::new()).assert_clean();
}

#[test]
fn examples_are_limited_and_counts_are_not() {
    let story = (1..=50).fold(Story::default(), |story, version| story.job("a", version));
    let report = story.check(&Expectations::new().examples(3));
    assert_eq!((report.lost.count, report.lost.examples.len()), (50, 3));
    assert!(report.to_string().contains("lost: 50"), "{report}");
}

#[test]
fn the_order_of_lines_and_files_does_not_matter() {
    let mut rng = SplitMix64::new(seed());
    let story = clean().run("a", 1, "m", 40, 50).job("c", 1).run("b", 1, "m", 20, 22);
    let before = story.check(&Expectations::new());
    for _ in 0..50 {
        let mut shuffled = story.clone();
        rng.shuffle(&mut shuffled.0);
        let report = shuffled.check(&Expectations::new());
        assert_eq!((counts(&report), report.repeated), (counts(&before), before.repeated));
    }
}

/// A file that is removed at the end, also by a panic.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(env::temp_dir().join(format!("gristmill-history-{}-{name}.jsonl", std::process::id())))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn what_is_written_is_read() {
    let file = TempFile::new("written");
    let writer = HistoryWriter::open(&file.0).unwrap();
    let job = Job::new("i\n\"d", "schlüssel", u64::MAX);
    let before = now_us();
    writer.enqueued(&job).unwrap();
    writer.start(&job, "n#1", 2).unwrap().end(Outcome::Done).unwrap();
    drop(writer.start(&job, "n#2", 3).unwrap());
    let history = History::read([&file.0]).unwrap();
    assert_eq!((history.enqueued.as_slice(), history.torn_lines), (&[job][..], 0));
    let ends: Vec<_> =
        history.runs.iter().map(|run| (run.node.as_str(), run.attempt, run.ended.unwrap())).collect();
    let (("n#1", 2, (first, Outcome::Done)), ("n#2", 3, (second, Outcome::Stopped))) = (ends[0], ends[1])
    else {
        panic!("{ends:?}");
    };
    assert!(before <= history.runs[0].started_us && history.runs[0].started_us <= first);
    assert!(first <= second && second <= now_us());
}

#[test]
fn a_torn_line_is_counted_and_swallows_nothing() {
    let file = TempFile::new("torn");
    let writer = HistoryWriter::open(&file.0).unwrap();
    writer.enqueued(&Job::new("1", "ü", 1)).unwrap();
    let whole = fs::read(&file.0).unwrap();
    for cut in 2..whole.len() - 1 {
        // A process was killed after `cut` bytes; another goes on with the same file.
        fs::write(&file.0, &whole[..cut]).unwrap();
        let history = History::read([&file.0]).unwrap();
        assert_eq!((history.enqueued.len(), history.torn_lines), (0, 1), "cut after {cut} bytes, at the end");
        HistoryWriter::open(&file.0).unwrap().enqueued(&Job::new("2", "k", 1)).unwrap();
        let history = History::read([&file.0]).unwrap();
        assert_eq!((history.enqueued.len(), history.torn_lines), (1, 1), "cut after {cut} bytes");
    }
}

#[test]
fn a_line_that_is_no_event_is_an_error_with_its_number() {
    let file = TempFile::new("bad");
    for bad in ["{\"event\":\"exploded\"}", "hello", "{\"event\":\"enqueued\",\"id\":1}"] {
        fs::write(&file.0, format!("\n\n{bad}\n")).unwrap();
        let error = History::read([&file.0]).unwrap_err();
        assert!(matches!(error, Error::BadHistory { line: 3, .. }), "{bad}: {error}");
    }
    assert!(matches!(History::read(["/nowhere/at/all"]), Err(Error::Io { .. })));
}

const CHILD: &str = "GRISTMILL_TESTKIT_HISTORY";

#[test]
#[ignore = "the child that the next test starts and kills"]
fn child_that_writes() {
    let path = env::var_os(CHILD).expect("only for the test below");
    let writer = HistoryWriter::open(path).unwrap();
    let node = std::process::id().to_string();
    println!("writing");
    for version in 1.. {
        let job = Job::new(format!("{node}.{version}"), node.clone(), version);
        writer.enqueued(&job).unwrap();
        writer.start(&job, &node, 0).unwrap().end(Outcome::Done).unwrap();
    }
}

#[test]
fn several_killed_processes_share_a_file() {
    let file = TempFile::new("shared");
    let spawn = || {
        let args = ["--exact", "child_that_writes", "--ignored", "--nocapture"];
        Process::spawn(env::current_exe().unwrap(), args, [(CHILD, &file.0)]).unwrap()
    };
    let mut children: Vec<_> = (0..3).map(|_| spawn()).collect();
    let mut expected = Expectations::new();
    for child in &mut children {
        child.wait_line(|line| line.text.contains("writing"), SOON).unwrap();
    }
    let size = || fs::metadata(&file.0).map_or(0, |meta| meta.len());
    for child in &mut children {
        let before = size();
        gristmill_testkit::eventually(SOON, "the file to grow", || (size() > before + 50_000).then_some(()));
        expected = expected.killed(child.pid().to_string(), now_us());
        child.kill().unwrap();
    }
    let history = History::read([&file.0]).unwrap();
    let report = check(&history, &expected);
    // The last job of each may be unfinished; everything before is whole.
    assert!(report.lost.count <= 3 && report.torn_lines <= 3, "{report}");
    assert!(report.out_of_order.count + report.overlapping.count + report.unended.count == 0, "{report}");
    assert!(report.jobs > 100, "{report}");
}

#[test]
fn the_clock_is_shared_by_threads_and_never_goes_back() {
    let mut last = now_us();
    for _ in 0..100 {
        let there = thread::spawn(now_us).join().unwrap();
        assert!(there >= last);
        last = now_us();
        assert!(last >= there);
    }
}
