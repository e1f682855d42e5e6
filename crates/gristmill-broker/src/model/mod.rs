//! model (next)
