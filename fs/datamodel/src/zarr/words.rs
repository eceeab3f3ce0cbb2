//! The words for numbers that JSON has not.
//!
//! Python writes `NaN` and `Infinity` into JSON, which has no such words: they are read as texts with a zero character
//! before them, which no JSON file has otherwise.

use serde_json::Value as Json;

/// The text with `NaN`, `Infinity` and `-Infinity` outside of strings as strings that [`word`] knows.
pub fn with_words(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    let mut inside = false;
    while let Some(char) = rest.chars().next() {
        if !inside {
            let found = ["NaN", "Infinity", "-Infinity"]
                .into_iter()
                .find(|word| rest.starts_with(word));
            if let Some(word) = found {
                out.push_str("\"\\u0000");
                out.push_str(word);
                out.push('"');
                rest = &rest[word.len()..];
                continue;
            }
        }
        let mut len = char.len_utf8();
        match char {
            '"' => inside = !inside,
            '\\' if inside => len += rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => {}
        }
        out.push_str(&rest[..len]);
        rest = &rest[len..];
    }
    out
}

/// The number that one of these words is.
pub fn word(json: &Json) -> Option<f64> {
    match json.as_str()?.strip_prefix('\0')? {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

/// The same JSON with these words as plain texts, as Zarr has them in fill values.
pub fn plain_words(json: &mut Json) {
    match json {
        Json::String(text) => {
            if let Some(plain) = text.strip_prefix('\0') {
                *text = plain.to_owned();
            }
        }
        Json::Array(members) => members.iter_mut().for_each(plain_words),
        Json::Object(entries) => entries.values_mut().for_each(plain_words),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_python_are_read() {
        let text = r#"{"a": NaN, "b": [1, -Infinity, "NaN\"NaN"], "NaN": Infinity}"#;
        let mut json: Json = serde_json::from_str(&with_words(text)).expect("JSON");
        assert!(word(&json["a"]).is_some_and(f64::is_nan));
        assert_eq!(word(&json["b"][1]), Some(f64::NEG_INFINITY));
        assert_eq!(json["b"][2], "NaN\"NaN");
        assert_eq!(word(&json["NaN"]), Some(f64::INFINITY));
        plain_words(&mut json);
        assert_eq!(json["a"], "NaN");
    }
}
