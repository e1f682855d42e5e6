//! gristmill-broker
