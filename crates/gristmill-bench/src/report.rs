//! The figures: the table for people, and the last line for programs.

use crate::whole::Report;
use std::collections::BTreeMap;
use std::fmt;

/// The fields of the last line, in its order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures {
    pub(crate) drain_ratio: Option<f64>,
    pub(crate) drain_of_ceiling: Option<f64>,
    pub(crate) drain_own_ids_ratio: Option<f64>,
    pub(crate) drain_effect_ratio: Option<f64>,
    pub(crate) drain_aof_ratio: Option<f64>,
    pub(crate) enqueue_bulk_ratio: Option<f64>,
    pub(crate) enqueue_bulk_own_ids_ratio: Option<f64>,
    pub(crate) latency_p50_ms: Option<f64>,
    pub(crate) latency_p99_ms: Option<f64>,
    pub(crate) latency_of_bare: Option<f64>,
    pub(crate) node_rss_mb: Option<f64>,
    pub(crate) redis_bytes_per_job: Option<f64>,
    pub(crate) recovery_ms: Option<f64>,
    pub(crate) blocked_key_ratio: Option<f64>,
    pub(crate) fail_once_1pct_ratio: Option<f64>,
    pub(crate) fail_once_20pct_ratio: Option<f64>,
    pub(crate) poison_deaths: Option<f64>,
    pub(crate) poison_recovery_ms: Option<f64>,
    pub(crate) dead_million_ping_p99_ms: Option<f64>,
    /// How many there were.
    pub(crate) dead_letters: Option<f64>,
    pub(crate) telemetry_metrics_ratio: Option<f64>,
    pub(crate) telemetry_traces_1pct_ratio: Option<f64>,
    pub(crate) telemetry_traces_all_ratio: Option<f64>,
    pub(crate) postgres_ratio: Option<f64>,
    pub(crate) http_ratio: Option<f64>,
    /// How many were due at once.
    pub(crate) promote_jobs: Option<f64>,
    pub(crate) promote_ms: Option<f64>,
    pub(crate) promote_block_ms: Option<f64>,
    pub(crate) promote_ping_p99_ms: Option<f64>,
    pub(crate) due_to_start_p50_ms: Option<f64>,
    pub(crate) due_to_start_p99_ms: Option<f64>,
    pub(crate) fairness_alone_p99_ms: Option<f64>,
    pub(crate) fairness_small_p50_ms: Option<f64>,
    pub(crate) fairness_small_p99_ms: Option<f64>,
    /// How many were due in the same second.
    pub(crate) schedules: Option<f64>,
    pub(crate) slot_to_start_p50_ms: Option<f64>,
    pub(crate) slot_to_start_p99_ms: Option<f64>,
    pub(crate) none_ratio: Option<f64>,
    pub(crate) none_of_key: Option<f64>,
    pub(crate) none_recovery_ms: Option<f64>,
    pub(crate) lease_ms: u64,
    /// By cause.
    pub(crate) tenures_lost: BTreeMap<String, u64>,
}

impl Figures {
    /// The same, and says so.
    pub(crate) fn tell_lost(&mut self, round: usize, report: &Report) {
        report.lost.iter().for_each(|(cause, n)| println!("  round {round}  tenures lost: {cause} {n}"));
        self.lost(report);
    }

    /// Adds what a node lost without a fault.
    pub(crate) fn lost(&mut self, report: &Report) {
        for (cause, count) in &report.lost {
            *self.tenures_lost.entry(cause.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |figure: Option<f64>, digits: usize| match figure {
            Some(figure) => format!("{figure:.digits$}"),
            None => "n/a".to_owned(),
        };
        let words = [
            ("drain_ratio", shown(self.drain_ratio, 3)),
            ("drain_of_ceiling", shown(self.drain_of_ceiling, 3)),
            ("drain_own_ids_ratio", shown(self.drain_own_ids_ratio, 3)),
            ("drain_effect_ratio", shown(self.drain_effect_ratio, 3)),
            ("drain_aof_ratio", shown(self.drain_aof_ratio, 3)),
            ("enqueue_bulk_ratio", shown(self.enqueue_bulk_ratio, 3)),
            ("enqueue_bulk_own_ids_ratio", shown(self.enqueue_bulk_own_ids_ratio, 3)),
            ("latency_p50_ms", shown(self.latency_p50_ms, 3)),
            ("latency_p99_ms", shown(self.latency_p99_ms, 3)),
            ("latency_of_bare", shown(self.latency_of_bare, 2)),
            ("node_rss_mb", shown(self.node_rss_mb, 1)),
            ("redis_bytes_per_job", shown(self.redis_bytes_per_job, 1)),
            ("recovery_ms", shown(self.recovery_ms, 0)),
            ("lease_ms", self.lease_ms.to_string()),
            ("tenures_lost", self.tenures_lost.values().sum::<u64>().to_string()),
            ("blocked_key_ratio", shown(self.blocked_key_ratio, 3)),
            ("fail_once_1pct_ratio", shown(self.fail_once_1pct_ratio, 3)),
            ("fail_once_20pct_ratio", shown(self.fail_once_20pct_ratio, 3)),
            ("poison_deaths", shown(self.poison_deaths, 0)),
            ("poison_recovery_ms", shown(self.poison_recovery_ms, 0)),
            ("dead_million_ping_p99_ms", shown(self.dead_million_ping_p99_ms, 3)),
            ("dead_letters", shown(self.dead_letters, 0)),
            ("telemetry_metrics_ratio", shown(self.telemetry_metrics_ratio, 3)),
            ("telemetry_traces_1pct_ratio", shown(self.telemetry_traces_1pct_ratio, 3)),
            ("telemetry_traces_all_ratio", shown(self.telemetry_traces_all_ratio, 3)),
            ("postgres_ratio", shown(self.postgres_ratio, 3)),
            ("http_ratio", shown(self.http_ratio, 3)),
            ("promote_jobs", shown(self.promote_jobs, 0)),
            ("promote_ms", shown(self.promote_ms, 0)),
            ("promote_block_ms", shown(self.promote_block_ms, 2)),
            ("promote_ping_p99_ms", shown(self.promote_ping_p99_ms, 3)),
            ("due_to_start_p50_ms", shown(self.due_to_start_p50_ms, 3)),
            ("due_to_start_p99_ms", shown(self.due_to_start_p99_ms, 3)),
            ("fairness_alone_p99_ms", shown(self.fairness_alone_p99_ms, 3)),
            ("fairness_small_p50_ms", shown(self.fairness_small_p50_ms, 3)),
            ("fairness_small_p99_ms", shown(self.fairness_small_p99_ms, 3)),
            ("schedules", shown(self.schedules, 0)),
            ("slot_to_start_p50_ms", shown(self.slot_to_start_p50_ms, 3)),
            ("slot_to_start_p99_ms", shown(self.slot_to_start_p99_ms, 3)),
            ("none_ratio", shown(self.none_ratio, 3)),
            ("none_of_key", shown(self.none_of_key, 3)),
            ("none_recovery_ms", shown(self.none_recovery_ms, 0)),
        ];
        f.write_str("bench:")?;
        words.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
struct Row {
    what: String,
    figure: String,
    note: String,
}

/// The table, filled by the scenarios.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    /// Adds a line.
    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        figure: impl Into<String>,
        note: impl Into<String>,
    ) {
        self.0.push(Row { what: what.into(), figure: figure.into(), note: note.into() });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: fn(&Row) -> &str| self.0.iter().map(|row| text(row).len()).max().unwrap_or(0);
        let (what, figure) = (width(|row| &row.what), width(|row| &row.figure));
        for row in &self.0 {
            writeln!(f, "  {:<what$}  {:>figure$}  {}", row.what, row.figure, row.note)?;
        }
        Ok(())
    }
}

/// A rate as people read it.
pub(crate) fn per_second(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + " jobs/s"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_grouped() {
        assert_eq!(per_second(999.4), "999 jobs/s");
        assert_eq!(per_second(1_234_567.0), "1,234,567 jobs/s");
    }

    #[test]
    fn what_was_not_measured_is_said() {
        let line = Figures { drain_ratio: Some(0.5), ..Figures::default() }.to_string();
        assert!(line.starts_with("bench: drain_ratio=0.500 drain_of_ceiling=n/a "), "{line}");
    }
}
