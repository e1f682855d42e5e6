//! What happens to connections and servers.

use super::events;

events! {
    /// A connection was made.
    RedisConnected "redis.connected" INFO "gristmill_broker" "connected to Redis"
        { role: str, generation: num, redis: show }
        {}
    /// A connection is of no more use.
    RedisLost "redis.lost" WARN "gristmill_broker" "the connection to Redis is given up and made again"
        { role: str, generation: num }
        { redis_reconnects_total[] += 1 }
    /// There is none.
    RedisUnreachable "redis.unreachable" WARN "gristmill_broker" "cannot connect to Redis, will try again"
        { role: str, failures: num, error: show }
        {}
    /// An enqueue had no answer.
    EnqueueRepeated "enqueue.repeated" DEBUG "gristmill_broker" "an enqueue is repeated under its own id"
        { partition: num, error: show }
        {}
    /// A collector takes nothing.
    TelemetryNotTaken "telemetry.not_taken" WARN "gristmill_otlp" "no collector takes what is told; it is dropped, and counted"
        { what: str, error: show }
        {}
    /// It does again.
    TelemetryTaken "telemetry.taken" INFO "gristmill_otlp" "a collector takes again what is told"
        { what: str }
        {}
    /// An ingest server listens.
    IngestReady "ingest.ready" INFO "gristmill_cli" "ready"
        { listen: show }
        {}
    /// A monitor begins to look.
    MonitorReady "monitor.ready" INFO "gristmill_cli" "ready"
        { every_ms: ms, redis: show }
        {}
    /// The outbox relay of a node ends.
    RelayEnds "relay.ends" INFO "gristmill_cli" "the outbox relay ends"
        { counts: show }
        {}
    /// Tokens changed.
    TokensRead "ingest.tokens_read" INFO "gristmill_ingest" "the tokens were read again"
        { file: show, count: num }
        {}
    /// They could not be read.
    TokensUnread "ingest.tokens_unread" WARN "gristmill_ingest" "the tokens stay as they were"
        { why: show }
        {}
    /// A connection could not be accepted.
    NotAccepted "ingest.not_accepted" WARN "gristmill_ingest" "a connection could not be accepted"
        { error: show }
        {}
    /// A connection ended badly.
    ConnectionBroke "ingest.connection_broke" DEBUG "gristmill_ingest" "a connection ended badly"
        { error: show }
        {}
    /// A request had no answer from Redis.
    RequestUnanswered "ingest.request_unanswered" WARN "gristmill_ingest" "a request had no answer from Redis"
        { error: show }
        {}
    /// A request failed by something that should not be.
    RequestFailed "ingest.request_failed" ERROR "gristmill_ingest" "a request failed"
        { error: show }
        {}
    /// The health listener has begun.
    HealthListens "health.listens" INFO "gristmill_cli" "health and metrics can be asked for"
        { listen: show }
        {}
    /// A look at the queues failed.
    LookFailed "monitor.look_failed" WARN "gristmill_cli" "a look failed; what was seen before stands"
        { what: str, error: show }
        {}
}
