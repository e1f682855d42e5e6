//! gristmill-handler
