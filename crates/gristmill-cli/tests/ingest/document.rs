//! What the OpenAPI document says of a response. Only the words that it uses are understood; another one is a failure, so
//! that none is passed over.

use crate::client::Response;
use serde_json::Value;
use std::collections::BTreeSet;

/// Path, method and status.
pub(crate) type Documented = (String, String, u16);

pub(crate) fn document() -> Value {
    serde_json::from_str(gristmill_ingest::OPENAPI).unwrap()
}

/// Every response that is documented.
pub(crate) fn all() -> BTreeSet<Documented> {
    let document = document();
    let mut all = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters")
        {
            for status in operation["responses"].as_object().unwrap().keys() {
                all.insert((path.clone(), method.clone(), status.parse().unwrap()));
            }
        }
    }
    all
}

/// Every code that is documented.
pub(crate) fn codes() -> BTreeSet<String> {
    let document = document();
    let codes = document["components"]["schemas"]["Error"]["properties"]["code"]["enum"].as_array().unwrap();
    codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect()
}

/// Holds a response to a request for `path` against the document, and says which it is; `None` for a path that it does
/// not know.
#[track_caller]
pub(crate) fn hold(path: &str, response: &Response) -> Option<Documented> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    let Some((template, item)) = paths.iter().find(|(template, _)| fits(template, path)) else {
        assert_eq!(response.status, 404, "{path}: {response:?}");
        check(&document["components"]["schemas"]["Refused"], &response.json(), &document, "body");
        return None;
    };
    let mut methods = item.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters");
    let (method, operation) = methods.next().unwrap();
    assert!(methods.next().is_none(), "one method a path is known here");
    let described = &operation["responses"][response.status.to_string()];
    assert!(described.is_object(), "{template}: a status that is not documented: {response:?}");
    for (name, header) in described["headers"].as_object().into_iter().flatten() {
        let value = response.header(&name.to_ascii_lowercase());
        let value = value.unwrap_or_else(|| panic!("{template}: no {name} in {response:?}"));
        if header["schema"]["type"] == "integer" {
            value.parse::<u64>().unwrap();
        }
    }
    check(&described["content"]["application/json"]["schema"], &response.json(), &document, "body");
    Some((template.clone(), method.clone(), response.status))
}

fn fits(template: &str, path: &str) -> bool {
    let path = path.split('?').next().unwrap();
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template
            .iter()
            .zip(path)
            .all(|(of, part)| (of.starts_with('{') && !part.is_empty()) || *of == part)
}

/// Fails where a value is not as its schema says.
#[track_caller]
pub(crate) fn check(schema: &Value, value: &Value, document: &Value, at: &str) {
    let faults = faults(schema, value, document, at);
    assert!(faults.is_empty(), "{faults:#?} in {value}");
}

fn faults(schema: &Value, value: &Value, document: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    let number = |said: &Value| said.as_u64().unwrap();
    for (word, said) in schema.as_object().unwrap_or_else(|| panic!("{at}: no schema: {schema}")) {
        let wrong = match word.as_str() {
            "description" => false,
            "$ref" => {
                let pointer = said.as_str().unwrap().strip_prefix('#').unwrap();
                found.extend(faults(document.pointer(pointer).unwrap(), value, document, at));
                false
            }
            "type" => match said {
                Value::Array(types) => !types.iter().any(|one| is(value, one)),
                one => !is(value, one),
            },
            "enum" => !said.as_array().unwrap().contains(value),
            "anyOf" => {
                let any = |one: &Value| faults(one, value, document, at).is_empty();
                !said.as_array().unwrap().iter().any(any)
            }
            "required" => {
                let missing = |name: &Value| value.get(name.as_str().unwrap()).is_none();
                value.is_object() && said.as_array().unwrap().iter().any(missing)
            }
            "properties" => {
                for (name, schema) in said.as_object().unwrap() {
                    if let Some(member) = value.get(name) {
                        found.extend(faults(schema, member, document, &format!("{at}.{name}")));
                    }
                }
                false
            }
            "additionalProperties" => {
                assert_eq!(said, &Value::Bool(false));
                let known = |name: &String| schema["properties"].get(name).is_some();
                value.as_object().is_some_and(|members| !members.keys().all(known))
            }
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(faults(said, item, document, &format!("{at}[{n}]")));
                }
                false
            }
            "minItems" => value.as_array().is_some_and(|items| (items.len() as u64) < number(said)),
            "minLength" => value.as_str().is_some_and(|text| (text.chars().count() as u64) < number(said)),
            "minimum" => value.as_f64().is_some_and(|value| value < number(said) as f64),
            other => panic!("{at}: the word {other} is not understood here"),
        };
        if wrong {
            found.push(format!("{at}: {word} {said} does not hold"));
        }
    }
    found
}

fn is(value: &Value, of: &Value) -> bool {
    match of.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("the type {other} is not understood here"),
    }
}

#[test]
fn what_is_not_as_documented_is_seen() {
    let document = document();
    let of = |name: &str, value: Value| {
        faults(&document["components"]["schemas"][name], &value, &document, "body").len()
    };
    use serde_json::json;
    assert_eq!(of("New", json!({ "status": "enqueued", "id": "a", "place": null })), 0);
    for wrong in [
        json!({ "status": "enqueued", "id": "a" }),
        json!({ "status": "enqueued", "id": 1, "place": null }),
        json!({ "status": "refused", "id": "a", "place": null }),
        json!({ "status": "enqueued", "id": "a", "place": null, "more": 1 }),
        json!([]),
    ] {
        assert_eq!(of("New", wrong.clone()), 1, "{wrong}");
    }
    assert_eq!(of("Refused", json!({ "error": { "code": "no_such_code", "message": "" } })), 1);
    assert_eq!(of("Enqueued", json!({ "queue": "q", "enqueued": -1, "duplicates": 0, "jobs": [] })), 2);
}
