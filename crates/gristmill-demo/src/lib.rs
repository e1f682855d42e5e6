//! gristmill-demo
