//! `kinds`: what living nodes say of the kinds they serve, and where they disagree.

use crate::exit::{End, Failure};
use crate::output::{self, Table};
use crate::settings::Settings;
use clap::Args;
use gristmill_broker::{Connection, QueueDefinition};
use gristmill_handler::KindDescription;
use gristmill_job::QueueName;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Args)]
#[command(after_help = AFTER)]
pub(crate) struct KindsArguments {
    /// Only of this queue
    queue: Option<String>,
    /// One JSON object instead of a table
    #[arg(long)]
    json: bool,
}

const AFTER: &str = "\
A node says this with every beat, of all kinds it serves, for each of its queues. `-` means that a kind says nothing and \
the queue's own setting counts. A kind that some nodes describe otherwise has a line for each description: nodes of \
different releases, most of the time. A job of a kind that no living node serves waits, and is dead after a while.";

/// The kinds of one queue as its living nodes describe them.
pub(crate) struct Served {
    pub(crate) queue: QueueName,
    /// Living nodes, those included that say nothing.
    pub(crate) nodes: Vec<String>,
    /// Nodes that say nothing, or nothing that can be read: what they serve is not known.
    pub(crate) silent: Vec<String>,
    /// By kind, the different descriptions, each with the nodes that give it.
    pub(crate) kinds: BTreeMap<String, Vec<(KindDescription, Vec<String>)>>,
}

impl Served {
    pub(crate) async fn look(connection: &Connection, queue: &QueueDefinition) -> Result<Self, Failure> {
        let (now, members) = connection.members(&queue.name).await?;
        let living = members.into_iter().filter(|member| member.expires > now);
        let nodes: Vec<String> = living.map(|member| member.incarnation.to_string()).collect();
        let said = connection.announced_kinds(&queue.name).await?;
        let said = said.into_iter().map(|(who, said)| (who.to_string(), said.to_vec()));
        Ok(Self::of(queue.name.clone(), nodes, said.collect()))
    }

    fn of(queue: QueueName, nodes: Vec<String>, said: Vec<(String, Vec<u8>)>) -> Self {
        let mut kinds: BTreeMap<String, Vec<(KindDescription, Vec<String>)>> = BTreeMap::new();
        let mut silent: Vec<String> =
            nodes.iter().filter(|node| !said.iter().any(|(who, _)| who == *node)).cloned().collect();
        for (who, text) in said {
            let Ok(all) = serde_json::from_slice::<Vec<KindDescription>>(&text) else {
                silent.push(who);
                continue;
            };
            for description in all {
                let same = kinds.entry(description.kind.clone()).or_default();
                match same.iter_mut().find(|(known, _)| *known == description) {
                    Some((_, nodes)) => nodes.push(who.clone()),
                    None => same.push((description, vec![who.clone()])),
                }
            }
        }
        Self { queue, nodes, silent, kinds }
    }

    /// Whether a living node serves a kind; `None` where that is not known.
    pub(crate) fn serves(&self, kind: &str) -> Option<bool> {
        match (self.kinds.contains_key(kind), self.silent.is_empty()) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }
}

/// The command.
pub(crate) async fn command(settings: &Settings, arguments: &KindsArguments) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let mut all = Vec::new();
    for queue in crate::dead::queues(&connection, arguments.queue.as_deref()).await? {
        all.push(Served::look(&connection, &queue).await?);
    }
    if arguments.json {
        let queues: Vec<Value> = all.iter().map(Served::as_json).collect();
        output::print(&json!({ "queues": queues }).to_string())?;
        return Ok(End::Done);
    }
    if all.iter().any(|served| !served.kinds.is_empty()) {
        output::print(&table(&all))?;
    }
    for served in &all {
        let (queue, silent) = (&served.queue, served.silent.join(" "));
        match (served.nodes.is_empty(), served.silent.is_empty()) {
            (true, _) => output::complain(&format!("queue {queue}: no living node serves it")),
            (false, true) => {}
            (false, false) => output::complain(&format!(
                "queue {queue}: what {silent} serves is not known; nodes of an older release do not say"
            )),
        }
        let differs = served.kinds.iter().filter(|(_, same)| same.len() > 1).map(|(kind, _)| kind.as_str());
        let differs: Vec<&str> = differs.collect();
        if !differs.is_empty() {
            output::complain(&format!(
                "queue {queue}: nodes describe {} differently; a job is treated as the node that has it says",
                differs.join(", ")
            ));
        }
    }
    if all.is_empty() {
        output::complain("there are no queues; a node makes those it serves, and so does `enqueue --create`");
    }
    Ok(End::Done)
}

fn table(all: &[Served]) -> String {
    let mut table = Table::new(&[
        "queue",
        "kind",
        "redelivery",
        "delivery",
        "#attempts",
        "#crashes",
        "#soft limit",
        "#hard limit",
        "fleet limit",
        "nodes",
        "agree",
    ]);
    let number = |it: Option<u32>| it.map_or_else(|| "-".into(), |it| it.to_string());
    let limit = |it: Option<u64>| it.map_or_else(|| "-".into(), |ms| format!("{ms} ms"));
    for served in all {
        for (kind, same) in &served.kinds {
            for (it, nodes) in same {
                table.row(vec![
                    served.queue.to_string(),
                    kind.clone(),
                    it.redelivery.as_str().into(),
                    it.delivery.as_str().into(),
                    number(it.max_attempts),
                    number(it.crash_budget),
                    limit(it.soft_limit_ms),
                    limit(it.hard_limit_ms),
                    it.limit.as_deref().map_or_else(|| "-".into(), gristmill_job::limit::shown),
                    format!("{} of {}", nodes.len(), served.nodes.len()),
                    if same.len() == 1 { "yes" } else { "no" }.into(),
                ]);
            }
        }
    }
    table.render()
}

impl Served {
    fn as_json(&self) -> Value {
        let described = |(it, nodes): &(KindDescription, Vec<String>)| {
            json!({
                "redelivery": it.redelivery.as_str(),
                "delivery": it.delivery.as_str(),
                "max_attempts": it.max_attempts,
                "crash_budget": it.crash_budget,
                "soft_limit_ms": it.soft_limit_ms,
                "hard_limit_ms": it.hard_limit_ms,
                "limit": it.limit.as_deref().map(gristmill_job::limit::shown),
                "nodes": nodes,
            })
        };
        let kinds = self.kinds.iter().map(|(kind, same)| {
            let descriptions: Vec<Value> = same.iter().map(described).collect();
            json!({ "kind": kind, "agree": same.len() == 1, "descriptions": descriptions })
        });
        json!({
            "queue": self.queue.as_str(),
            "nodes": self.nodes,
            "not_known": self.silent,
            "kinds": kinds.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_compared_and_what_is_not_said_is_not_known() {
        let queue = || QueueName::new("q").unwrap();
        let said = |who: &str, text: &str| (who.to_owned(), text.as_bytes().to_vec());
        let nodes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let same = "[{\"kind\":\"mail\"},{\"kind\":\"pay\",\"redelivery\":\"review\"}]";
        let served = Served::of(queue(), nodes(&["a", "b"]), vec![said("a", same), said("b", same)]);
        assert_eq!((served.serves("mail"), served.serves("none")), (Some(true), Some(false)));
        assert_eq!(served.kinds["pay"].len(), 1);
        assert!(table(&[served]).contains("review"));

        let newer = "[{\"kind\":\"mail\",\"max_attempts\":3,\"tomorrow\":1}]";
        let served = Served::of(
            queue(),
            nodes(&["a", "b", "c", "d"]),
            vec![said("a", same), said("b", newer), said("c", "nonsense")],
        );
        assert_eq!((served.kinds["mail"].len(), served.silent.clone()), (2, nodes(&["d", "c"])));
        assert_eq!((served.serves("mail"), served.serves("none")), (Some(true), None));
        let json = served.as_json();
        assert_eq!(json["kinds"][0]["agree"], false);
        assert_eq!(json["kinds"][1]["descriptions"][0]["redelivery"], "review");
    }
}
