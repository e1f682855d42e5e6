//! `queues`: how every queue stands.

use crate::exit::{End, Failure};
use crate::output::{self, Table, age};
use crate::settings::Settings;
use gristmill_broker::inspect::PartitionView;
use gristmill_broker::{Connection, Mode, QueueDefinition};
use serde_json::json;
use std::time::Duration;

/// One queue, its partitions added up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) name: String,
    pub(crate) ordering: Mode,
    pub(crate) partitions: usize,
    /// Partitions with an owner whose lease has not expired; `None` where no order is kept, and nobody owns one.
    pub(crate) owned: Option<usize>,
    pub(crate) ready: u64,
    pub(crate) claimed: u64,
    /// Jobs for later.
    pub(crate) delayed: u64,
    /// How long the first of them has been due.
    pub(crate) overdue: Option<Duration>,
    pub(crate) oldest: Option<Duration>,
    pub(crate) dead: u64,
    pub(crate) outbox: u64,
    /// Living nodes that serve it.
    pub(crate) nodes: Vec<String>,
}

/// The command.
pub(crate) async fn command(settings: &Settings, json: bool) -> Result<End, Failure> {
    let connection = crate::connect(settings).await?;
    let mut standings = Vec::new();
    for queue in connection.queues().await? {
        standings.push(standing(&connection, &queue).await?);
    }
    if json {
        let queues: Vec<_> = standings.iter().map(Standing::as_json).collect();
        output::print(&json!({ "queues": queues }).to_string())?;
    } else if standings.is_empty() {
        output::complain("there are no queues; a node makes those it serves, and so does `enqueue --create`");
    } else {
        output::print(&table(&standings))?;
    }
    Ok(End::Done)
}

async fn standing(connection: &Connection, queue: &QueueDefinition) -> Result<Standing, Failure> {
    let views = connection.partitions(queue).await?;
    let (now, members) = connection.members(&queue.name).await?;
    let living = members.into_iter().filter(|member| member.expires > now);
    let nodes = living.map(|member| {
        let leaving = if member.draining { " (draining)" } else { "" };
        format!("{}{leaving}", member.incarnation)
    });
    Ok(add_up(queue, &views, nodes.collect()))
}

fn add_up(queue: &QueueDefinition, views: &[PartitionView], nodes: Vec<String>) -> Standing {
    let sum = |of: fn(&PartitionView) -> u64| views.iter().map(of).sum();
    Standing {
        name: queue.name.to_string(),
        ordering: queue.mode,
        partitions: views.len(),
        owned: (queue.mode == Mode::Key)
            .then(|| views.iter().filter(|view| !view.owner.is_empty() && view.expires > view.now).count()),
        ready: sum(|view| view.ready),
        claimed: sum(|view| view.claimed),
        delayed: sum(|view| view.delayed),
        overdue: views
            .iter()
            .filter_map(|view| Some(view.due.filter(|due| *due < view.now)?.age_at(view.now)))
            .max(),
        oldest: views.iter().filter_map(|view| Some(view.oldest?.age_at(view.now))).max(),
        dead: sum(|view| view.dead),
        outbox: sum(|view| view.outbox),
        nodes,
    }
}

impl Standing {
    fn waiting(&self) -> u64 {
        // Read at slightly different moments.
        self.ready.saturating_sub(self.claimed)
    }

    fn as_json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "ordering": self.ordering.as_str(),
            "partitions": self.partitions,
            "owned": self.owned,
            "ready": self.ready,
            "claimed": self.claimed,
            "waiting": self.waiting(),
            "oldest_age_ms": self.oldest.map(|age| age.as_millis()),
            "delayed": self.delayed,
            "overdue_ms": self.overdue.map(|late| late.as_millis()),
            "dead": self.dead,
            "outbox": self.outbox,
            "nodes": self.nodes,
        })
    }
}

fn table(standings: &[Standing]) -> String {
    let mut table = Table::new(&[
        "queue",
        "ordering",
        "#partitions",
        "#owned",
        "#ready",
        "#claimed",
        "#waiting",
        "#delayed",
        "#oldest",
        "#dead",
        "#outbox",
        "nodes",
    ]);
    for standing in standings {
        let nodes = if standing.nodes.is_empty() { "none".into() } else { standing.nodes.join(" ") };
        table.row(vec![
            standing.name.clone(),
            standing.ordering.as_str().to_owned(),
            standing.partitions.to_string(),
            standing.owned.map_or_else(|| "-".into(), |owned| owned.to_string()),
            standing.ready.to_string(),
            standing.claimed.to_string(),
            standing.waiting().to_string(),
            standing.delayed.to_string(),
            standing.oldest.map_or_else(|| "-".into(), age),
            standing.dead.to_string(),
            standing.outbox.to_string(),
            nodes,
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gristmill_job::{QueueName, UnixMillis};

    #[test]
    fn partitions_are_added_up_and_an_expired_lease_is_no_owner() {
        let now = UnixMillis(10_000);
        let owned = PartitionView {
            owner: "n~1".into(),
            expires: UnixMillis(10_001),
            now,
            ready: 5,
            claimed: 2,
            dead: 1,
            oldest: Some(UnixMillis(4_000)),
            delayed: 4,
            due: Some(UnixMillis(9_500)),
            ..PartitionView::default()
        };
        let expired = PartitionView {
            expires: now,
            outbox: 3,
            due: Some(UnixMillis(10_500)),
            oldest: Some(UnixMillis(9_000)),
            ..owned.clone()
        };
        let queue = QueueDefinition::new(QueueName::new("q").unwrap(), 2);
        let views = [owned, expired];
        let standing = add_up(&queue, &views, vec![]);
        assert_eq!((standing.owned, standing.ready, standing.waiting(), standing.dead), (Some(1), 10, 6, 2));
        assert_eq!((standing.outbox, standing.oldest), (3, Some(Duration::from_secs(6))));
        assert_eq!((standing.delayed, standing.overdue), (8, Some(Duration::from_millis(500))));
        let unordered = add_up(&queue.with_mode(Mode::None), &views, vec![]);
        assert_eq!((unordered.as_json()["owned"].clone(), unordered.waiting()), (json!(null), 6));
        assert_eq!(unordered.as_json()["ordering"], "none");
        let lines: Vec<String> = table(&[standing, unordered])
            .lines()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(lines[1], "q key 2 1 10 4 6 8 6s 2 3 none");
        assert_eq!(lines[2], "q none 2 - 10 4 6 8 6s 2 3 none");
    }
}
