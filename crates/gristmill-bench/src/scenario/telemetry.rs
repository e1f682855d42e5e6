//! What it costs to be told what a node does: a full queue drained with nothing counted, with metrics, and with traces of which
//! 1 % and all are kept; alternated. The collector reads and forgets; what it costs itself is not the node's.

use crate::failure::{Outcome, ensure};
use crate::ground::Ground;
use crate::jobs::{Ids, check_drained, fill};
use crate::plan::Told;
use crate::rate::median;
use crate::report::{Figures, Table};
use crate::scenario::Side;
use crate::whole::Child;
use gristmill_testkit::server::Appendonly;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

const SIDES: [(Told, &str); 4] = [
    (Told::Nothing, "nothing"),
    (Told::Metrics, "metrics"),
    (Told::Some, "traces of 1 %"),
    (Told::All, "traces of all"),
];

pub(crate) fn run(ground: &Ground, figures: &mut Figures, table: &mut Table) -> Outcome<()> {
    println!("\ndrain, ids made by us, with telemetry");
    let server = ground.server(Appendonly::Off)?;
    let workload = ground.workload(Ids::Ours)?;
    let (plan, url, collector) = (&ground.plan, server.url(), collector()?);
    let mut ratios: [Vec<f64>; SIDES.len()] = Default::default();
    for round in 1..=plan.rounds {
        let mut first: Option<Side> = None;
        // Each round begins with another side, so that none has the best place.
        let mut sides = Vec::new();
        for at in 0..SIDES.len() {
            let at = (at + round) % SIDES.len();
            server.flush()?;
            ground.run(fill(&url, &workload, plan.jobs))?;
            let side = Side::of(&server, || Child::told(plan, &url, SIDES[at].0, &collector, plan.jobs))?;
            let (done, jobs) = (side.get("done"), plan.jobs as f64);
            ensure(done == jobs, || format!("{jobs} jobs were due, {done} were done"))?;
            ground.run(check_drained(&url, &workload.queue))?;
            figures.tell_lost(round, &side.report);
            sides.push((at, side));
        }
        sides.sort_by_key(|(at, _)| *at);
        for (at, side) in sides {
            let base = first.as_ref().unwrap_or(&side);
            side.tell(round, SIDES[at].1, base, plan.jobs);
            ratios[at].push(side.get("rate") / base.get("rate"));
            let (exported, dropped) = (side.get("spans_exported"), side.get("spans_dropped"));
            if exported + dropped > 0.0 {
                println!("           spans: {exported:.0} taken, {dropped:.0} dropped");
            }
            if at == 0 {
                first = Some(side);
            }
        }
    }
    let middle = |at: usize| median(&ratios[at]);
    figures.telemetry_metrics_ratio = Some(middle(1));
    figures.telemetry_traces_1pct_ratio = Some(middle(2));
    figures.telemetry_traces_all_ratio = Some(middle(3));
    for (at, at_least) in [(1, "at least 0.95"), (2, ""), (3, "at least 0.75")] {
        let what = format!("drain with {} of drain with nothing told", SIDES[at].1);
        table.row(what, format!("{:.3}", middle(at)), at_least);
    }
    Ok(())
}

/// Answers every request well, and keeps nothing. It ends with this process.
fn collector() -> Outcome<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || while answer(&stream).is_some() {});
        }
    });
    Ok(format!("http://{address}"))
}

/// One request; `None` at the end.
fn answer(mut stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length: ") {
            length = bytes.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").ok()
}
