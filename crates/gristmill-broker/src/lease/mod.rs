//! An incarnation's exclusive right to a partition: acquired, wanted by others, renewed, released.

pub mod acquire;
pub mod release;
pub mod renew;
pub mod want;
