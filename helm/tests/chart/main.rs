//! The chart, rendered with real Helm.
//!
//! | file | what is shown |
//! |---|---|
//! | `files_of_values_render` | each of `ci/` is linted and rendered by Helm 3 and 4, to the same objects |
//! | `kubernetes_takes_it` | every object is valid from Kubernetes 1.28 to 1.37, and KEDA's and the operator's for those |
//! | `typos_are_refused` | names that nobody knows and numbers out of bounds, at every depth |
//! | `combinations_are_refused` | what cannot work together, each with its words |

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod combinations_are_refused;
mod files_of_values_render;
mod kubernetes_takes_it;
mod typos_are_refused;
