//! The fault proxy.
