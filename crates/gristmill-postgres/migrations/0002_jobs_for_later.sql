-- When the job of a row is due. Neither: at once. A row without them is as it was before.
alter table gristmill.outbox
    -- Then, by the clock of Redis; what is over means at once.
    add column due_at   timestamptz check (isfinite(due_at)),
    -- So long after the relay has enqueued it, by the clock of Redis. Ten years at most.
    add column delay_ms bigint check (delay_ms between 0 and 315619200000),
    add constraint outbox_due check (num_nonnulls(due_at, delay_ms) <= 1);
