-- Until when the job of a row may start; after that it ends unrun. Neither: as its kind or its queue says.
alter table gristmill.outbox
    -- By the clock of this server, against which the relay reads it. One that is over ends unrun, and is counted so.
    add column expires_at    timestamptz check (isfinite(expires_at)),
    -- So long after the job became ready: when the relay enqueued it, or when it was due. By the clock of Redis.
    add column expires_in_ms bigint check (expires_in_ms > 0),
    add constraint outbox_expiry check (num_nonnulls(expires_at, expires_in_ms) <= 1);
