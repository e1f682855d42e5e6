//! gristmill-cli
