//! gristmill-node
