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
    /// A role has begun.
    Ready "process.ready" INFO "gristmill_cli" "ready"
        { role: str, name: show }
        {}
    /// The health listener has begun.
    HealthListens "health.listens" INFO "gristmill_cli" "health and metrics can be asked for"
        { listen: show }
        {}
    /// A look at the queues failed.
    LookFailed "monitor.look_failed" WARN "gristmill_cli" "a look at the queues failed; what was seen before stands"
        { queue: str, error: show }
        {}
}
