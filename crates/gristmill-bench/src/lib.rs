//! gristmill-bench
