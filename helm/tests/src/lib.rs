//! The chart has no code: this package is its tests, in `tests/`.
