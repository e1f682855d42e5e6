use super::*;

fn sample<'a>() -> Envelope<'a> {
    Envelope {
        kind: "price",
        version: 7,
        payload: b"\x81\xa1p\x05",
        content_type: ContentType::MessagePack,
        headers: vec![("traceparent", "00-a-b-01")],
        enqueued_at: UnixMillis(1_700_000_000_000),
        limits: Limits { max_attempts: Some(3), ..Limits::default() },
        own_id: true,
    }
}

const LIMIT: usize = 1024 * 1024;

/// Golden bytes: an envelope of release 0.1. They are never regenerated, a reader of any later release must read them.
const GOLDEN: &[u8] = b"\x89\xa1v\x01\xa1t\xa5price\xa1n\x07\xa1p\xc4\x04\x81\xa1p\x05\xa1c\xa1m\xa1h\x81\xabtraceparent\xa900-a-b-01\xa1a\xcf\x00\x00\x01\x8b\xcf\xe5h\x00\xa1l\x81\xa1n\x03\xa1o\xc3";

/// The same as the smallest envelope a foreign producer may write: schema, kind and payload.
const GOLDEN_SMALLEST: &[u8] = b"\x83\xa1v\x01\xa1t\xa5price\xa1p\xc4\x00";

#[test]
fn golden_bytes_are_written_and_read() {
    assert_eq!(sample().encode(LIMIT).unwrap(), GOLDEN);
    assert_eq!(Envelope::decode(GOLDEN, LIMIT).unwrap(), sample());
    let smallest = Envelope::decode(GOLDEN_SMALLEST, LIMIT).unwrap();
    assert_eq!((smallest.kind, smallest.version, smallest.own_id), ("price", 0, false));
}

/// Golden bytes of a limit that came later, as its readers and writers know it.
const GOLDEN_EXPIRES: &[u8] =
    b"\x87\xa1v\x01\xa1t\xa5price\xa1n\x00\xa1p\xc4\x00\xa1c\xa1m\xa1a\x00\xa1l\x81\xa1x\xcd\x03\xe8";

#[test]
fn a_job_says_how_late_it_may_start_and_a_reader_of_before_passes_that_over() {
    let limits = Limits { expires_in_ms: Some(1000), ..Limits::default() };
    let smallest = Envelope::decode(GOLDEN_SMALLEST, LIMIT).unwrap();
    let bytes = GOLDEN_EXPIRES.to_vec();
    assert_eq!(Envelope { limits, ..smallest.clone() }.encode(LIMIT).unwrap(), bytes);
    assert_eq!(Envelope::decode(&bytes, LIMIT).unwrap(), Envelope { limits, ..smallest });
    assert_eq!(Envelope::expires_in(&bytes, LIMIT), Some(Duration::from_secs(1)));
    for none in [GOLDEN, GOLDEN_SMALLEST, b"nonsense", &bytes[..bytes.len() - 1]] {
        assert_eq!(Envelope::expires_in(none, LIMIT), None);
    }
    assert_eq!(Envelope::expires_in(&bytes, 5), None);
    // A limit that this release does not know.
    let mut newer = bytes.clone();
    let at = newer.len() - 4;
    newer[at] = b'y';
    assert_eq!(Envelope::decode(&newer, LIMIT).unwrap().limits, Limits::default());
}

#[test]
fn a_field_of_tomorrow_is_ignored() {
    let mut newer = GOLDEN.to_vec();
    newer[0] = 0x8a;
    newer.extend_from_slice(b"\xa1z\x92\x01\x02");
    assert_eq!(Envelope::decode(&newer, LIMIT).unwrap(), sample());
}

#[test]
fn a_schema_of_tomorrow_is_named() {
    let mut newer = GOLDEN.to_vec();
    newer[3] = 2;
    assert_eq!(Envelope::decode(&newer, LIMIT), Err(EnvelopeError::UnknownSchema(2)));
    let other_shape = b"\x82\xa1v\xcd\x01\x00\xa1t\x05";
    assert_eq!(Envelope::decode(other_shape, LIMIT), Err(EnvelopeError::UnknownSchema(256)));
}

#[test]
fn trailing_bytes_and_every_truncation_are_refused() {
    for tail in [&b"\xc0"[..], b"\xc4", b"\x00\x00", b"\xc1", b"\x81", b"\x92\x01", b"\xdf", b"\xc2"] {
        let mut long = GOLDEN.to_vec();
        long.extend_from_slice(tail);
        assert_eq!(Envelope::decode(&long, LIMIT), Err(EnvelopeError::TrailingBytes), "{tail:?}");
    }
    for n in 0..GOLDEN.len() {
        assert!(Envelope::decode(&GOLDEN[..n], LIMIT).is_err(), "{n} bytes");
    }
}

#[test]
fn limits_hold_before_anything_is_parsed() {
    assert!(matches!(Envelope::decode(GOLDEN, 10), Err(EnvelopeError::TooLarge { limit: 10, .. })));
    assert!(matches!(sample().encode(10), Err(EnvelopeError::TooLarge { .. })));
    let mut many = sample();
    many.headers = vec![("a", "b"); MAX_HEADERS + 1];
    assert_eq!(many.encode(LIMIT), Err(EnvelopeError::TooManyHeaders(MAX_HEADERS + 1)));
}

#[test]
fn deep_nesting_is_refused_without_exhausting_the_stack() {
    let mut deep = b"\x84\xa1v\x01\xa1t\xa5price\xa1p\xc4\x00\xa1z".to_vec();
    deep.extend(std::iter::repeat_n(0x91, 100_000));
    deep.push(0xc0);
    assert!(matches!(Envelope::decode(&deep, LIMIT), Err(EnvelopeError::Malformed(_))));
}

#[test]
fn garbage_never_panics() {
    let (mut state, mut decoded) = (0x9e37_79b9_7f4a_7c15u64, 0);
    for _ in 0..20_000 {
        let mut bytes = GOLDEN.to_vec();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 25) as u8;
        }
        match Envelope::decode(&bytes, LIMIT) {
            Ok(envelope) => {
                assert_eq!(Envelope::kind_of(&bytes, LIMIT), Some(envelope.kind));
                decoded += 1;
            }
            Err(_) => _ = Envelope::kind_of(&bytes, LIMIT),
        }
    }
    assert!((1..20_000).contains(&decoded), "{decoded} of 20000 decoded");
}

#[test]
fn the_kind_alone_is_that_of_the_envelope() {
    assert_eq!(Envelope::kind_of(GOLDEN, LIMIT), Some(Envelope::decode(GOLDEN, LIMIT).unwrap().kind));
    assert_eq!(Envelope::kind_of(GOLDEN, GOLDEN.len() - 1), None);
    for n in 0..GOLDEN.len() {
        assert_eq!(Envelope::kind_of(&GOLDEN[..n], LIMIT), None, "{n} bytes");
    }
    let mut newer = GOLDEN.to_vec();
    let version = newer.windows(3).position(|w| w == b"\xa1v\x01").unwrap() + 2;
    newer[version] = 2;
    assert_eq!(Envelope::kind_of(&newer, LIMIT), None);
}
