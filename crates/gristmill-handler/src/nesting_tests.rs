use super::*;
use gristmill_job::envelope::MAX_DEPTH;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

fn arrays(levels: usize) -> Vec<u8> {
    let mut bytes = vec![0x91; levels];
    bytes.push(0xc0);
    bytes
}

#[test]
fn as_many_levels_as_allowed_and_not_one_more() {
    assert_eq!(check_message_pack(&arrays(MAX_DEPTH)), Ok(()));
    assert_eq!(check_message_pack(&arrays(MAX_DEPTH + 1)), Err(Fault::TooDeep));
    assert_eq!(check_message_pack(&vec![0x81; 1024 * 1024]), Err(Fault::TooDeep));
    let json = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(check_json(json(MAX_DEPTH).as_bytes()), Ok(()));
    assert_eq!(check_json(json(MAX_DEPTH + 1).as_bytes()), Err(Fault::TooDeep));
}

#[test]
fn brackets_in_json_text_are_no_levels() {
    let text = serde_json::to_string(&format!("\\\"{}\"", "[{".repeat(100))).unwrap();
    assert_eq!(check_json(text.as_bytes()), Ok(()));
    let beside = format!("[{}[]]", "[],".repeat(200));
    assert_eq!(check_json(beside.as_bytes()), Ok(()));
    let behind = format!("[{text},{}]", "[".repeat(MAX_DEPTH));
    assert_eq!(check_json(behind.as_bytes()), Err(Fault::TooDeep));
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum All {
    Unit,
    Numbers(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, Option<bool>),
    Texts(Vec<String>),
    Map(BTreeMap<u32, ()>),
    Bytes(#[serde(with = "bytes_as_bin")] Vec<u8>),
}

mod bytes_as_bin {
    use serde::{Deserialize, Deserializer, Serializer};
    pub(super) fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(bytes)
    }
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        Vec::deserialize(d)
    }
}

/// Every marker the encoder writes, every width: whole it passes, cut anywhere it is cut, longer it trails.
#[test]
fn what_the_encoder_writes_is_one_value_and_its_cuts_and_tails_are_told() {
    let samples = [
        All::Unit,
        All::Numbers(
            255,
            65_535,
            u32::MAX,
            u64::MAX,
            -128,
            i16::MIN,
            i32::MIN,
            i64::MIN,
            1.5,
            2.5,
            Some(true),
        ),
        All::Numbers(1, 200, 3, 4, -1, 6, 7, 8, 0.0, 0.0, None),
        All::Texts(vec![String::new(), "a".repeat(31), "b".repeat(200), "c".repeat(300), "d".repeat(70_000)]),
        All::Map((0..15).map(|n| (n, ())).collect()),
        All::Map((0..70_000).map(|n| (n, ())).collect()),
        All::Texts(vec![String::new(); 20]),
        All::Texts(vec![String::new(); 70_000]),
        All::Bytes(vec![0xc1; 10]),
        All::Bytes(vec![0xc1; 300]),
        All::Bytes(vec![0xc1; 70_000]),
    ];
    for sample in samples {
        let bytes = rmp_serde::to_vec_named(&sample).unwrap();
        assert_eq!(check_message_pack(&bytes), Ok(()));
        assert_eq!(rmp_serde::from_slice::<All>(&bytes).unwrap(), sample);
        for cut in (0..bytes.len()).step_by(1 + bytes.len() / 500) {
            assert_eq!(check_message_pack(&bytes[..cut]), Err(Fault::Truncated), "{cut} of {}", bytes.len());
        }
        for tail in [&b"\xc0"[..], b"\x91", b"\xc1", b"\x00\x00"] {
            let long = [&bytes[..], tail].concat();
            assert_eq!(check_message_pack(&long), Err(Fault::Trailing(tail.len())));
        }
    }
    assert_eq!(check_message_pack(&[0xc1]), Err(Fault::Reserved));
    for ext in
        [&b"\xd4\x01\x00"[..], b"\xd8\x010123456789abcdef", b"\xc7\x02\x01ab", b"\xc9\x00\x00\x00\x01\x01a"]
    {
        assert_eq!(check_message_pack(ext), Ok(()));
        assert_eq!(check_message_pack(&ext[..ext.len() - 1]), Err(Fault::Truncated));
    }
}

#[test]
fn lengths_that_lie_are_cut_values_not_panics() {
    for liar in [
        &b"\xdf\xff\xff\xff\xff"[..],
        b"\xdd\xff\xff\xff\xff\xc0",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
    ] {
        assert_eq!(check_message_pack(liar), Err(Fault::Truncated), "{liar:x?}");
    }
}
