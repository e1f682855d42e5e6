-- Which jobs had their effect in this database. One row per job, written in the transaction of its effect.
create table gristmill.inbox (
    queue   text not null,
    -- The job's id; bytes other than '!' to '~', and '%' itself, as %XX.
    job_id  text not null,
    kind    text not null,
    -- stale: its version was not newer than what was there, and it changed nothing.
    outcome text not null default 'done' check (outcome in ('done', 'stale')),
    at      timestamptz not null default now(),
    primary key (queue, job_id)
);
-- For pruning by age.
create index inbox_at on gristmill.inbox (at);

-- Jobs that are to be enqueued once the transaction that wrote them is committed. Anyone may write rows; a relay reads
-- and removes them. Only the first six columns are of interest to a writer.
create table gristmill.outbox (
    -- The job's id. The default is right where the row is written once.
    id              text not null default gen_random_uuid()::text
                    check (octet_length(id) between 1 and 256 and id !~ '[[:cntrl:]]'),
    queue           text not null check (queue ~ '^[a-z0-9._-]{1,64}$'),
    kind            text not null check (octet_length(kind) between 1 and 128 and kind !~ '[[:cntrl:][:space:]]'),
    -- What must stay in order.
    key             text not null check (octet_length(key) between 1 and 1024),
    -- The number of the entity's state; strictly newer wins.
    version         bigint not null default 0 check (version >= 0),
    -- Either this, which the job gets as it is written here, …
    payload         json check (octet_length(payload::text) <= 1048576),
    -- … or this.
    payload_msgpack bytea check (octet_length(payload_msgpack) <= 1048576),
    -- An object whose values are text.
    headers         json check (octet_length(headers::text) <= 65536),
    max_attempts    integer check (max_attempts > 0),
    at              timestamptz not null default now(),
    -- The order of rows of one key.
    seq             bigint generated always as identity primary key,
    -- Rows of one key are in one lane; one relay at a time works on a lane of a queue.
    lane            smallint not null generated always as ((hashtext(key) & 63)::smallint) stored,
    -- Why no job can be made of this row. It stays for a person to look at.
    refused         text,
    check (num_nonnulls(payload, payload_msgpack) = 1),
    unique (queue, id)
);
create index outbox_waiting on gristmill.outbox (queue, lane, seq) where refused is null;

-- Wakes the relays when a transaction that wrote rows is committed.
create function gristmill.outbox_notify() returns trigger language plpgsql as $$
begin
    perform pg_notify('gristmill_outbox', '');
    return null;
end
$$;
create trigger outbox_notify after insert on gristmill.outbox
    for each statement execute function gristmill.outbox_notify();
