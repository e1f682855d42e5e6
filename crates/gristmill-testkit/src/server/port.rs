//! A port that stays ours while the server is down.
//!
//! Binding port 0 gives a number from the range that outgoing connections use too, so it can be lost between a kill and
//! a restart. Here numbers below that range are taken, and each is held by an idle UDP socket of the same number: a
//! mutual exclusion among all users of the testkit on this machine that ends with the process that holds it.

use crate::{Error, seed::SplitMix64};
use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
};

/// Between the well-known ports and Linux' first ephemeral one.
const RANGE: std::ops::Range<u16> = 12_000..32_000;
const TRIES: u32 = 200;

/// A reserved port number.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _held: UdpSocket,
}

impl Port {
    pub(crate) fn reserve() -> Result<Self, Error> {
        let mut rng = SplitMix64::new(RandomState::new().build_hasher().finish());
        let mut last = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..TRIES {
            let number = RANGE.start + rng.below(u64::from(RANGE.end - RANGE.start)) as u16;
            let held = match UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) {
                Ok(held) => held,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
                Ok(_) => return Ok(Self { number, _held: held }),
                Err(error) => last = error,
            }
        }
        Err(Error::Io { what: format!("no free port on 127.0.0.1 in {TRIES} tries"), source: last })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}
