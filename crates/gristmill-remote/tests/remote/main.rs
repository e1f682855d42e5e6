//! Handlers outside of the program, against real servers and real processes.
//!
//! * [`fixture`]: a job handed to a kind as a node does it, and what came of it;
//! * [`site`]: a server that answers as it is told, well or not at all, and notes what it heard;
//! * [`http`]: the request, the table of statuses, answers, redirects, signatures;
//! * [`hostile`]: connections that break, answers that are slow, endless, huge or garbage;
//! * [`tls`]: certificates that are trusted and others, HTTP/2;
//! * [`exec`]: a command per run: what it is given, the table of exit codes, limits, what it leaves behind;
//! * [`lines`]: commands that stay;
//! * [`documented`]: the tables of the documentation are those of the code.

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod documented;
mod exec;
mod fixture;
mod hostile;
mod http;
mod lines;
mod site;
mod tls;
