//! x
#![allow(dead_code)]
mod deployment;
