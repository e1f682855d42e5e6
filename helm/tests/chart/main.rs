//! The chart, rendered with real Helm.
//!
//! | file | what is shown |
//! |---|---|
//! | `files_of_values_render` | each of `ci/` is linted and rendered by Helm 3 and 4, to the same objects |

#![allow(clippy::unwrap_used, reason = "all of it is a test; clippy excuses test functions only")]

mod files_of_values_render;
mod kubernetes_takes_it;
