//! The promises, one file each. Every test has a private server, real node processes and real signals; what happened is
//! read from the histories that the handlers wrote, and from Redis.

mod no_job_is_lost;
