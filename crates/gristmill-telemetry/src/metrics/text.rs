//! Metrics as Prometheus reads them: text format 0.0.4.

use super::family::Shown;
use super::series::Held;
use super::{About, PREFIX};
use std::fmt::Write;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) fn write(about: &About, series: &[(Vec<String>, Shown)], text: &mut String) {
    // Writing to a String cannot fail, here and below.
    let name = format!("{PREFIX}{}", about.name);
    let _ = writeln!(text, "# HELP {name} {}", about.help.replace('\\', "\\\\").replace('\n', "\\n"));
    let _ = writeln!(text, "# TYPE {name} {}", about.sort.as_str());
    for (values, shown) in series {
        let labels: Vec<String> = about
            .labels
            .iter()
            .zip(values)
            .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
            .collect();
        match shown {
            Shown::Count(count) => line(text, &name, &labels, None, &count.to_string()),
            Shown::Value(value) => line(text, &name, &labels, None, &number(*value)),
            Shown::Held(held) => histogram(text, &name, &labels, held),
        }
    }
}

fn histogram(text: &mut String, name: &str, labels: &[String], held: &Held) {
    let bucket = format!("{name}_bucket");
    let mut below = 0;
    for (at, count) in held.counts.iter().enumerate() {
        below += count;
        let end = held.bounds_us.get(at).map_or_else(|| "+Inf".to_owned(), |us| seconds(*us));
        line(text, &bucket, labels, Some(&format!("le=\"{end}\"")), &below.to_string());
    }
    line(text, &format!("{name}_sum"), labels, None, &seconds(held.sum_us));
    line(text, &format!("{name}_count"), labels, None, &below.to_string());
}

fn line(text: &mut String, name: &str, labels: &[String], last: Option<&str>, value: &str) {
    let labels: Vec<&str> = labels.iter().map(String::as_str).chain(last).collect();
    let (open, close) = ('{', '}');
    let _ = match labels.is_empty() {
        true => writeln!(text, "{name} {value}"),
        false => writeln!(text, "{name}{open}{labels}{close} {value}", labels = labels.join(",")),
    };
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    value.to_string()
}

fn seconds(us: u64) -> String {
    let (whole, part) = (us / 1_000_000, us % 1_000_000);
    if part == 0 {
        return whole.to_string();
    }
    format!("{whole}.{part:06}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Role, Sort};

    fn about(sort: Sort, labels: &'static [&'static str]) -> About {
        About {
            name: "a_b",
            sort,
            labels,
            help: "What\nit is",
            from: &[Role::Node],
            bounds_us: &[5_000, 2_500_000],
        }
    }

    #[test]
    fn labels_are_escaped_and_help_is_one_line() {
        let mut text = String::new();
        let series = [(vec!["a\"b\\c\nd".to_owned()], Shown::Count(3))];
        write(&about(Sort::Counter, &["queue"]), &series, &mut text);
        let expected = "# HELP gristmill_a_b What\\nit is\n# TYPE gristmill_a_b counter\n\
                        gristmill_a_b{queue=\"a\\\"b\\\\c\\nd\"} 3\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn buckets_hold_all_that_is_below_them() {
        let mut text = String::new();
        let held = Held { bounds_us: &[5_000, 2_500_000], counts: vec![1, 2, 3], sum_us: 1_250_001 };
        write(&about(Sort::Histogram, &[]), &[(Vec::new(), Shown::Held(held))], &mut text);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "gristmill_a_b_bucket{le=\"0.005\"} 1",
            "gristmill_a_b_bucket{le=\"2.5\"} 3",
            "gristmill_a_b_bucket{le=\"+Inf\"} 6",
            "gristmill_a_b_sum 1.250001",
            "gristmill_a_b_count 6",
        ];
        assert_eq!(lines, expected);
    }
}
