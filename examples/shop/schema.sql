-- The shop's own tables. gristmill's are made by `shop postgres migrate`.

-- Kept by the handler in Rust.
create table product (sku text primary key, version bigint not null, cents bigint not null);
create table change (number bigint generated always as identity, sku text not null, version bigint not null, cents bigint not null);

-- Kept by the handler in Python, which has an inbox of its own.
create table catalogue (sku text primary key, version bigint not null, cents bigint not null);
create table catalogue_change (number bigint generated always as identity, sku text not null, version bigint not null, cents bigint not null);
create table catalogue_inbox (idempotency_key text primary key, at timestamptz not null default now());
