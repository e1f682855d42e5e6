//! How lanes are found by key.

use std::hash::Hasher;

/// xxh64 over the key: partitions are chosen by the same hash, which spreads well and costs little.
#[derive(Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxhash_rust::xxh64::xxh64(bytes, self.0);
    }

    // The length prefix of a slice: the bytes alone tell keys apart.
    fn write_usize(&mut self, _: usize) {}
}
