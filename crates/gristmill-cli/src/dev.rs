//! `dev`: a private Redis and a node with handlers for trying things. Both are gone when the command ends.
//!
//! * `server`: the private server, which dies with this process however it dies;
//! * `kinds`: what can be tried: `echo`, `sleep`, `fail`, `count`.

mod kinds;
mod server;

use crate::args::DevArguments;
use crate::exit::{End, Failure};
use crate::node;
use crate::output;
use crate::settings::{Layers, Override, Settings};
use gristmill_handler::Registry;
use server::Server;

const QUEUES: &str = "dev:8";

/// Adds to the layers what this command decides itself.
pub(crate) fn layers(mut layers: Layers, url: &str, queues: bool) -> Layers {
    let over =
        |key: &str, value: &str| Override { key: key.into(), value: value.into(), origin: "dev".into() };
    layers.overrides.push(over("redis.url", url));
    for file in ["redis.url_file", "redis.password_file", "redis.ca_file"] {
        layers.overrides.push(over(file, ""));
    }
    if !queues {
        layers.overrides.push(over("queues", QUEUES));
    }
    layers
}

/// The command. `settings` are those without what it decides itself.
pub(crate) fn command(
    base: Layers,
    settings: &Settings,
    arguments: &DevArguments,
    registry: Registry,
) -> Result<End, Failure> {
    let server = Server::start(arguments.port)?;
    let settings = Settings::load(&layers(base, server.url(), settings.has_queues()))?;
    let config = settings.node()?;
    let queue = config.queues.first().map_or_else(String::new, |queue| queue.name.to_string());
    let beside = node::Beside::of(&settings)?;
    let registry = kinds::add_to(beside.add_to(registry, &settings)?);
    let program = std::env::args().next().unwrap_or_else(|| "gristmill".into());
    let kinds = registry.kinds().collect::<Vec<_>>().join(", ");
    output::print(&format!(
        "redis: {url} (private, gone when this ends)\n\
         kinds: {kinds}\n\
         try, in another terminal:\n\
         \x20 echo '{{\"id\":\"a1\",\"key\":\"apple\",\"version\":1,\"kind\":\"echo\",\"payload\":\"hello\"}}' | \\\n\
         \x20   {program} --redis {url} enqueue {queue} --from -\n\
         \x20 {program} --redis {url} queues\n\
         Ctrl-C ends it.",
        url = server.url(),
    ))?;
    let end = node::serve(config, registry, &beside);
    drop(server);
    end
}
