//! Bytes as a person can read them: JSON as it is, MessagePack as JSON, anything else in hex.

use gristmill_job::ContentType;
use gristmill_job::envelope::MAX_DEPTH;
use serde::de::{Deserialize, Deserializer, EnumAccess, MapAccess, SeqAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use std::fmt;
use std::io::Cursor;

/// Longest hex shown, in bytes of the original.
pub(super) const HEX_BYTES: usize = 512;

/// What a payload was read as.
pub(super) struct Shown {
    /// `json`, `messagepack`, or `bytes` where it is neither.
    pub(super) form: &'static str,
    /// JSON: the payload itself, byte for byte where it came as JSON, or a text of hex.
    pub(super) value: Box<RawValue>,
}

/// Reads a payload as what its envelope says it is.
pub(super) fn show(payload: &[u8], content_type: ContentType) -> Result<Shown, serde_json::Error> {
    let (form, value) = match content_type {
        ContentType::Json => ("json", serde_json::from_slice::<Box<RawValue>>(payload).ok()),
        ContentType::MessagePack => {
            ("messagepack", from_messagepack(payload).and_then(|value| to_raw_value(&value).ok()))
        }
    };
    match value {
        Some(value) => Ok(Shown { form, value }),
        None => Ok(Shown { form: "bytes", value: to_raw_value(&hex(payload))? }),
    }
}

/// `0x…` of at most [`HEX_BYTES`], and how many more there are.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(HEX_BYTES)];
    let mut text: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    text.insert_str(0, "0x");
    if bytes.len() > HEX_BYTES {
        text.push_str(&format!("… ({} bytes in all)", bytes.len()));
    }
    text
}

/// One value with nothing behind it. What JSON has no word for is a text: bytes in hex, keys of maps as JSON.
pub(super) fn from_messagepack(bytes: &[u8]) -> Option<Value> {
    let mut reader = rmp_serde::Deserializer::new(Cursor::new(bytes));
    reader.set_max_depth(MAX_DEPTH);
    let any = Any::deserialize(&mut reader).ok()?;
    (reader.get_ref().position() == bytes.len() as u64).then_some(any.0)
}

struct Any(Value);

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(Any)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(hex(value).into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    /// An extension: its type and its bytes.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Value, A::Error> {
        Err(serde::de::Error::custom("no value"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Any(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(values.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some((Any(key), Any(value))) = map.next_entry()? {
            let key = match key {
                Value::String(key) => key,
                other => other.to_string(),
            };
            values.insert(key, value);
        }
        Ok(values.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(bytes: &[u8], content_type: ContentType) -> (&'static str, String) {
        let shown = show(bytes, content_type).unwrap();
        (shown.form, shown.value.get().to_owned())
    }

    #[test]
    fn json_is_shown_as_it_came_and_messagepack_as_json() {
        let text = r#"{"b": 12345678901234567890123, "a": 1.50}"#;
        assert_eq!(shown(text.as_bytes(), ContentType::Json), ("json", text.to_owned()));
        let value = json!({ "list": [1, -5, u64::MAX, 1.5, true, null], "é": { "x": "y" } });
        let bytes = rmp_serde::to_vec_named(&value).unwrap();
        assert_eq!(shown(&bytes, ContentType::MessagePack), ("messagepack", value.to_string()));
    }

    #[test]
    fn what_json_has_no_word_for_is_a_text() {
        // {1: bytes 0xff00, nil: extension 5 of one byte, "nan": not a number}
        let bytes =
            [&[0x83, 1, 0xc4, 2, 0xff, 0, 0xc0, 0xd4, 5, 9, 0xa3][..], b"nan", &[0xca, 0x7f, 0xc0, 0, 0]]
                .concat();
        let expected = json!({ "1": "0xff00", "null": [5, "0x09"], "nan": "NaN" });
        assert_eq!(from_messagepack(&bytes), Some(expected));
    }

    #[test]
    fn anything_else_is_hex_and_bounded() {
        let deep = vec![0x91; 10_000];
        for garbage in [&b"\xc1"[..], b"\x93\x01", b"\x01\x02", b"", &deep] {
            assert_eq!(
                shown(garbage, ContentType::MessagePack).0,
                "bytes",
                "{:?}",
                &garbage[..garbage.len().min(4)]
            );
        }
        assert_eq!(shown(b"{", ContentType::Json), ("bytes", "\"0x7b\"".to_owned()));
        let long = hex(&vec![0xab; HEX_BYTES + 1]);
        assert!(long.starts_with("0xabab") && long.ends_with("… (513 bytes in all)"), "{long}");
        assert_eq!(hex(&[]), "0x");
    }
}
