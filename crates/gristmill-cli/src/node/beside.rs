//! What the settings add to a node's own handlers: kinds that others serve, the database, the relay of its outbox.

use crate::exit::Failure;
use crate::settings::Settings;
use gristmill_broker::RedisConfig;
use gristmill_handler::Registry;
use gristmill_remote::Remote;
use gristmill_telemetry::Telemetry;
use gristmill_telemetry::events::others::RelayEnds;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

#[cfg(feature = "postgres")]
use crate::postgres;
#[cfg(feature = "postgres")]
use crate::settings::postgres::RelaySettings;

/// What runs beside the handlers of a program.
#[derive(Default)]
pub(crate) struct Beside {
    remote: Remote,
    #[cfg(feature = "postgres")]
    relay: Option<RelaySettings>,
}

impl Beside {
    pub(crate) fn of(settings: &Settings) -> Result<Self, Failure> {
        Ok(Self {
            remote: settings.remote()?,
            #[cfg(feature = "postgres")]
            relay: settings.relay()?,
        })
    }

    /// With the kinds that others serve, and with the database of the settings for handlers that take a transaction. A
    /// database that the program registered itself stays.
    pub(crate) fn add_to(&self, registry: Registry, settings: &Settings) -> Result<Registry, Failure> {
        let mut registry = self.remote.add_to(registry);
        for (kind, limit) in settings.limits().map_err(|fault| Failure::Usage(fault.to_string()))? {
            registry = registry.limit(&kind, limit);
        }
        for (kind, limit) in settings.expiries().map_err(|fault| Failure::Usage(fault.to_string()))? {
            registry = registry.expire(&kind, limit);
        }
        #[cfg(feature = "postgres")]
        if !registry.has_state::<gristmill_postgres::Database>()
            && let Some(database) = settings.database()?
        {
            return Ok(registry.state(database));
        }
        #[cfg(not(feature = "postgres"))]
        settings.refuse_postgres()?;
        Ok(registry)
    }

    /// Starts what runs by itself, on the handlers' runtime.
    pub(crate) fn start(&self, runtime: &Runtime, redis: &RedisConfig) -> Result<Running, Failure> {
        let telemetry = redis.telemetry.clone();
        #[cfg(feature = "postgres")]
        if let Some(wanted) = &self.relay {
            let within = runtime.enter();
            let relay = postgres::relay(redis.clone(), wanted)?;
            drop(within);
            let done = runtime.spawn({
                let relay = relay.clone();
                async move { relay.run(std::future::pending()).await }
            });
            postgres::count(&relay, &telemetry);
            let said = move || postgres::said(&relay);
            let relay = Some((done, Box::new(said) as Said));
            return Ok(Running { remote: self.remote.clone(), relay, telemetry });
        }
        let _ = runtime;
        Ok(Running { remote: self.remote.clone(), relay: None, telemetry })
    }
}

/// What it says of itself when it ends.
type Said = Box<dyn Fn() -> String + Send>;

/// What was started.
pub(crate) struct Running {
    remote: Remote,
    relay: Option<(JoinHandle<()>, Said)>,
    telemetry: Telemetry,
}

impl Running {
    /// Ends it, after the last job was settled. A relay is stopped where it stands: it is built to be.
    pub(crate) async fn end(self) {
        if let Some((done, said)) = self.relay {
            done.abort();
            // Its words count only when it does no more.
            let _ = done.await;
            self.telemetry.tell(&RelayEnds { counts: &said() });
        }
        self.remote.close().await;
    }
}
