//! `config show`: every setting with its origin. `config check`: whether they can be, and what they amount to.

use crate::exit::{End, Failure};
use crate::output;
use crate::settings::{Entry, Settings};
use serde_json::{Map, Value, json};

pub(crate) fn show(settings: &Settings, json: bool) -> Result<End, Failure> {
    let entries = settings.entries();
    if json {
        let entry =
            |entry: &Entry| (entry.key.clone(), json!({ "value": entry.value, "from": entry.origin }));
        let all: Map<String, Value> = entries.iter().map(entry).collect();
        output::print(&Value::Object(all).to_string())?;
    } else {
        let mut table = output::Table::new(&["setting", "value", "from"]);
        for entry in entries {
            table.row(vec![entry.key, entry.value.to_string(), entry.origin]);
        }
        output::print(&table.render())?;
    }
    Ok(End::Done)
}

/// What is wrong is an error, like everywhere: exit code 2.
pub(crate) fn check(settings: &Settings, json: bool) -> Result<End, Failure> {
    let told = settings.told()?;
    if json {
        let line = |told: &crate::settings::Told| json!({ "about": told.about, "text": told.text, "warns": told.warns });
        let lines: Vec<Value> = told.iter().map(line).collect();
        output::print(&json!({ "well": true, "told": lines }).to_string())?;
        return Ok(End::Done);
    }
    let width = told.iter().map(|told| told.about.len()).max().unwrap_or(0);
    let mut text = String::from("the settings are well\n");
    for told in &told {
        let mark = if told.warns { "!" } else { " " };
        text.push_str(&format!("{mark} {:<width$}  {}\n", told.about, output::visible(&told.text)));
    }
    output::print(text.trim_end())?;
    Ok(End::Done)
}
