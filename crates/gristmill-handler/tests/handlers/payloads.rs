//! Both codecs, raw bytes, and everything that does not decode.

use crate::fixture::{delivery, done, failed, job, raw_job};
use gristmill_handler::{Raw, Registry};
use gristmill_job::ContentType::{Json, MessagePack};
use gristmill_job::{ContentType, Effects, ErrorClass};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Price {
    sku: String,
    cents: u64,
}

#[derive(Deserialize)]
enum Nest {
    #[serde(rename = "n")]
    More(Box<Nest>),
    #[serde(rename = "e")]
    End,
}

fn depth(mut nest: &Nest) -> usize {
    let mut depth = 0;
    while let Nest::More(inner) = nest {
        (nest, depth) = (inner, depth + 1);
    }
    depth
}

fn registry() -> Registry {
    Registry::new()
        .kind("price", |price: Price| async move { Effects::put(format!("{}={}", price.sku, price.cents)) })
        .kind(
            "raw",
            |raw: Raw| async move { Effects::put(format!("{:?} {:?}", raw.content_type, raw.bytes)) },
        )
        .kind("any", |_: serde_json::Value| async {})
        .kind("nest", |nest: Nest| async move { Effects::put(depth(&nest).to_string()) })
}

async fn put(kind: &str, payload: &[u8], content_type: ContentType) -> String {
    match done(&registry(), delivery(raw_job(kind, payload, content_type))).await.entity {
        Some(gristmill_job::EntityChange::Put(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
        _ => String::new(),
    }
}

async fn refusal(kind: &str, payload: &[u8], content_type: ContentType) -> String {
    let failure = failed(&registry(), delivery(raw_job(kind, payload, content_type))).await;
    assert_eq!(failure.class, ErrorClass::Permanent);
    assert_eq!(failure.chain.len(), 1);
    failure.chain[0].clone()
}

#[tokio::test]
async fn both_codecs_and_raw_bytes() {
    let named = job("price", &Price { sku: "a".into(), cents: 5 }).payload;
    assert_eq!(put("price", &named, MessagePack).await, "a=5");
    assert_eq!(put("price", br#" {"cents":5,"sku":"a","new":[]} "#, Json).await, "a=5");
    assert_eq!(put("raw", b"\xc1\x00", MessagePack).await, r#"MessagePack b"\xc1\0""#);
    assert_eq!(put("raw", b"", Json).await, r#"Json b"""#);
}

#[tokio::test]
async fn what_does_not_decode_says_what_was_expected_and_what_came() {
    let wrong = refusal("price", br#"{"sku":"a"}"#, Json).await;
    for part in ["payloads::Price in JSON", "got 11 bytes", "missing field `cents`"] {
        assert!(wrong.contains(part), "{wrong}");
    }
    let wrong = refusal("price", b"\x81\xa3sku\xa1a", MessagePack).await;
    assert!(wrong.contains("Price in MessagePack") && wrong.contains("missing field `cents`"), "{wrong}");
    assert!(refusal("price", b"", MessagePack).await.contains("got 0 bytes"));
    assert!(refusal("price", b"\x82\xa3sku", MessagePack).await.contains("ends in the middle"));
    assert!(refusal("price", b"not json", Json).await.contains("expected"));
    let long = format!("{{\"sku\":\"a\",\"cents\":\"{}\"}}", "x".repeat(100_000));
    assert!(refusal("price", long.as_bytes(), Json).await.len() < 2_000);
}

#[tokio::test]
async fn trailing_bytes_are_refused() {
    let named = job("price", &Price { sku: "a".into(), cents: 5 }).payload;
    for tail in [&b"\xc0"[..], b"\x91", b"\xd9", b"\xc1", b" "] {
        let told = refusal("price", &[&named[..], tail].concat(), MessagePack).await;
        assert!(told.contains("1 bytes follow"), "{told}");
    }
    assert!(refusal("price", br#"{"sku":"a","cents":5}{}"#, Json).await.contains("trailing"));
}

/// The decoder itself does not count the levels of enums: without a look beforehand this ends the process.
#[tokio::test]
async fn depth_is_limited_also_where_the_decoder_would_not_count() {
    let pack = |levels: usize| [&b"\x81\xa1n".repeat(levels)[..], b"\xa1e"].concat();
    assert_eq!(put("nest", &pack(64), MessagePack).await, "64");
    for levels in [65, 300_000] {
        let told = refusal("nest", &pack(levels), MessagePack).await;
        assert!(told.contains("deeper than 64"), "{told}");
    }
    let json = |levels: usize| format!("{}\"e\"{}", "{\"n\":".repeat(levels), "}".repeat(levels));
    assert_eq!(put("nest", json(64).as_bytes(), Json).await, "64");
    for levels in [65, 100_000] {
        assert!(refusal("nest", json(levels).as_bytes(), Json).await.contains("deeper than 64"));
    }
    let arrays = |levels: usize| [&vec![0x91; levels][..], b"\xc0"].concat();
    assert_eq!(put("any", &arrays(64), MessagePack).await, "");
    assert!(refusal("any", &arrays(65), MessagePack).await.contains("deeper than 64"));
}

#[tokio::test]
async fn no_payload_makes_a_run_panic() {
    let seed = 0x9e37_79b9_7f4a_7c15u64;
    println!("seed {seed:#x}");
    let (registry, mut state) = (registry(), seed);
    let sample = job("price", &Price { sku: "abc".into(), cents: 70_000 }).payload.to_vec();
    let mut decoded = 0;
    for n in 0..20_000 {
        let mut bytes = sample.clone();
        for _ in 0..2 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 25) as u8;
        }
        let content_type = if n % 2 == 0 { MessagePack } else { Json };
        let kind = ["price", "any", "nest", "raw"][n / 2 % 4];
        match crate::fixture::answer(&registry, delivery(raw_job(kind, &bytes, content_type))).await {
            gristmill_handler::Answer::Done(_) => decoded += 1,
            gristmill_handler::Answer::Failed(failure) => assert_eq!(failure.class, ErrorClass::Permanent),
            other => panic!("{other:?}"),
        }
    }
    assert!(decoded > 5_000 && decoded < 20_000, "{decoded} of 20000 decoded");
}
