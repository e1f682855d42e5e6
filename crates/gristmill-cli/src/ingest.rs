//! The command `ingest`: a server that takes jobs by HTTP, until a signal, in a process of its own.

use crate::exit::{End, Failure};
use crate::node::Signals;
use crate::settings::Settings;
use crate::telemetry::{self, Told};
use crate::{explain, health, output};
use gristmill_broker::{Broker, Connection};
use gristmill_ingest::{Explain, ExplainError, Explaining, Ingest, StartError};
use gristmill_job::QueueName;
use gristmill_telemetry::Stage;
use gristmill_telemetry::events::others::IngestReady;
use gristmill_telemetry::metrics::Role;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a request waits for Redis before it is told to come again.
const PATIENCE: Duration = Duration::from_secs(3);
/// Jobs, and dead letters, of a queue that one request may have looked through.
const SCAN: u64 = 10_000;

/// The command.
pub(crate) fn command(settings: &Settings) -> Result<End, Failure> {
    let told = Told::start(settings, Role::Ingest)?;
    let telemetry = told.telemetry.clone();
    let (mut config, mut redis) = (settings.ingest()?, settings.redis()?);
    (config.telemetry, redis.telemetry) = (telemetry.clone(), telemetry.clone());
    health::start(settings, &telemetry)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("gristmill-ingest").build()?;
    health::beat(runtime.handle(), telemetry.pulse("runtime"));
    let left = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let broker = Broker::connect(redis).with_patience(PATIENCE);
        let broker_for_health = broker.clone();
        let teller = Arc::new(Teller { broker: broker.clone() });
        let server = Ingest::bind(config, broker, teller).await.map_err(refused)?;
        telemetry.tell(&IngestReady { listen: &server.address() });
        tokio::spawn(health::reached(broker_for_health, telemetry.clone()));
        let (leave, asked) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                signals.next().await;
                telemetry.reach(Stage::Leaving);
                if leave.send(()).await.is_err() {
                    return;
                }
            }
        });
        Ok::<_, Failure>(server.serve(asked).await)
    })?;
    drop(runtime);
    told.finish(telemetry::SHORT);
    output::print(&left.to_string())?;
    Ok(if left.cut_off == 0 { End::Done } else { End::Abandoned })
}

fn refused(error: StartError) -> Failure {
    match error {
        StartError::Listen { .. } => Failure::Failed(error.to_string()),
        StartError::Tokens(_) | StartError::Open(_) => {
            Failure::Usage(format!("{error} (see ingest.tokens_file and ingest.listen)"))
        }
    }
}

/// What `explain` knows, for whoever asks by HTTP.
struct Teller {
    broker: Broker,
}

impl Explain for Teller {
    fn explain(&self, job: String, queue: Option<QueueName>) -> Explaining {
        let broker = self.broker.clone();
        Box::pin(async move { told(&broker.connection().await?, &job, queue).await })
    }
}

async fn told(
    connection: &Connection,
    job: &str,
    queue: Option<QueueName>,
) -> Result<serde_json::Value, ExplainError> {
    if let Some(name) = &queue
        && connection.definition(name).await?.is_none()
    {
        return Err(ExplainError::NoQueue(name.clone()));
    }
    let found = explain::look(connection, job, queue.as_ref().map(QueueName::as_str), SCAN, None).await;
    match found {
        Ok(explanation) if explanation.is_empty() => {
            let looked = explanation.looked();
            Err(ExplainError::NotFound(format!("there is no job, dead letter or mark {job:?}; {looked}")))
        }
        Ok(explanation) => Ok(explanation.json()),
        Err(Failure::Redis(error)) => Err(error.into()),
        Err(Failure::Usage(why)) => Err(ExplainError::Question(why.replace("--queue", "?queue=NAME"))),
        // Only between two reads: the queue was there.
        Err(other) => Err(ExplainError::NotFound(other.to_string())),
    }
}
