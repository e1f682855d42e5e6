//! The promises, one file each. Every test has a private server, real node processes and real signals; what happened is
//! read from the histories that the handlers wrote, and from Redis.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails where it stands")]

mod drain_keeps_its_window;
mod effects_apply_once;
mod failover_to_an_older_state;
mod keys_stay_in_order;
mod no_job_is_lost;
mod one_owner_per_partition;
mod redis_may_fail;
mod stale_owner_is_fenced;
