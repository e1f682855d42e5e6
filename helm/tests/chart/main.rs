//! The chart, rendered with real Helm.
//!
//! | file | what is shown |
//! |---|---|
//! | `files_of_values_render` | each of `ci/` is linted and rendered by Helm 3 and 4, to the same objects |
//! | `kubernetes_takes_it` | every object is valid from Kubernetes 1.28 to 1.37, and KEDA's and the operator's for those |
//! | `typos_are_refused` | names that nobody knows and numbers out of bounds, at every depth |
//! | `combinations_are_refused` | what cannot work together, each with its words |
//! | `pods_are_restricted` | the Pod Security Standard; secrets in Secrets alone |
//! | `the_drain_fits` | grace periods, and what the program and the notes are told of them |
//! | `roles_do_their_work` | arguments, settings, ports, probes; selectors reach the right pods |
//! | `settings_reach_the_program` | gristmill.toml and variables hold what the program knows |
//! | `scaling` | replicas, budgets, HPA, KEDA |
//! | `upgrades_keep_what_stands` | selectors and names stay, and only pods are replaced whose settings changed |
//! | `values_are_documented` | a row in the README for each value, and a template that reads it |
//! | `examples_hold` | helm/examples |
//! | `a_scanner_finds_nothing` | that was not decided; where it is asked for |

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod a_scanner_finds_nothing;
mod combinations_are_refused;
mod examples_hold;
mod files_of_values_render;
mod kubernetes_takes_it;
mod pods_are_restricted;
mod roles_do_their_work;
mod scaling;
mod settings_reach_the_program;
mod the_drain_fits;
mod typos_are_refused;
mod upgrades_keep_what_stands;
mod values_are_documented;
