//! What happens to nodes in the paced run: one is killed at work, another is drained, and both are replaced.

use crate::{
    args::Args,
    failure::Failure,
    fleet::{Fleet, Kill, Left},
    progress::Progress,
};

#[derive(Debug)]
pub(crate) struct Faults {
    kill_at: f64,
    drain_at: f64,
    /// The kill, once it has happened.
    pub(crate) kill: Option<Kill>,
    asked: bool,
    /// How the drained node left, once it has.
    pub(crate) drained: Option<Left>,
}

impl Faults {
    pub(crate) fn new(args: &Args) -> Self {
        Self {
            kill_at: f64::from(args.kill_at) / 100.0,
            drain_at: f64::from(args.drain_at) / 100.0,
            kill: None,
            asked: false,
            drained: None,
        }
    }

    pub(crate) fn all_happened(&self) -> bool {
        self.kill.is_some() && self.drained.is_some()
    }

    /// Does what is due when this part of the input is enqueued, and replaces whoever is gone.
    pub(crate) async fn tick(
        &mut self,
        part: f64,
        fleet: &mut Fleet,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        if self.kill.is_none()
            && part >= self.kill_at
            && let Some(kill) = fleet.kill_at_work().await?
        {
            let replacement = fleet.start()?;
            progress.say(&format!(
                "{:3.0} % SIGKILL to {} while it ran {} jobs; {} takes its place (pid {})",
                part * 100.0,
                kill.node,
                kill.running.len(),
                replacement.name,
                replacement.process.pid()
            ));
            self.kill = Some(kill);
        }
        if !self.asked && part >= self.drain_at {
            // The oldest that still stays: a replacement stands behind it.
            if let Some(at) = fleet.members.iter().position(|member| !member.is_leaving()) {
                let name = fleet.ask_to_leave(at)?;
                progress.say(&format!("{:3.0} % SIGTERM to {name}", part * 100.0));
                self.asked = true;
            }
        }
        for left in fleet.left()? {
            let replacement = fleet.start()?;
            progress.say(&format!(
                "{:3.0} % {} left after {} ms ({}); {} takes its place (pid {})",
                part * 100.0,
                left.node,
                left.took.as_millis(),
                left.said.first().map_or("it said nothing", |said| said.trim_start_matches("drained: ")),
                replacement.name,
                replacement.process.pid()
            ));
            self.drained = Some(left);
        }
        Ok(())
    }
}
