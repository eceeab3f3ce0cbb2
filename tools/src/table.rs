//! Aligned text output: tables, and JSON objects as `name: value` lines. Pure.

use serde_json::Value;

use crate::args::show_size;

/// Rows under a heading, with columns as wide as needed; numeric columns are right-aligned.
pub(crate) fn rows(heading: &[&str], rows: &[Vec<String>]) -> String {
    let columns = heading.len();
    let cell = |row: &[String], column: usize| row.get(column).map_or(0, |t| t.chars().count());
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let body = rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
            body.max(heading[column].chars().count())
        })
        .collect();
    let numeric: Vec<bool> = (0..columns)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .all(|text| is_number(text))
        })
        .collect();
    let mut out = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (column, cell) in cells.take(columns).enumerate() {
            let width = widths[column];
            if column > 0 {
                text.push_str("  ");
            }
            text.push_str(&if numeric[column] {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            });
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(&mut heading.iter().copied());
    for row in rows {
        line(&mut row.iter().map(String::as_str));
    }
    out
}

fn is_number(text: &str) -> bool {
    let text = text.trim_end_matches(['%', ' ']);
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || b".,-+x".contains(&b))
}

/// A JSON object as lines, sorted by name; nested objects are indented below their name.
pub(crate) fn lines(value: &Value) -> String {
    let mut out = String::new();
    push_lines(value, 0, &mut out);
    out
}

fn push_lines(value: &Value, depth: usize, out: &mut String) {
    let Value::Object(map) = value else {
        out.push_str(&show(value));
        out.push('\n');
        return;
    };
    let width = map.keys().map(|key| key.len()).max().unwrap_or(0) + 1;
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    for (key, value) in entries {
        out.push_str(&"  ".repeat(depth));
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push_str(&format!("{key}:\n"));
                push_lines(value, depth + 1, out);
            }
            _ => {
                let note = match value.as_u64() {
                    Some(bytes) if is_bytes(key) && bytes >= 1024 => {
                        format!(" ({})", show_size(bytes))
                    }
                    _ => String::new(),
                };
                let label = format!("{key}:");
                out.push_str(&format!("{label:<width$} {}{note}\n", show(value)));
            }
        }
    }
}

fn is_bytes(key: &str) -> bool {
    key.contains("bytes") || key == "size" || key == "stored"
}

/// A value on one line; lists of plain values are separated by commas.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            items.iter().map(show).collect::<Vec<_>>().join(",")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_line_up() {
        let body = vec![
            vec![
                "0".to_owned(),
                "4".to_owned(),
                "35.16 %".to_owned(),
                "left".to_owned(),
            ],
            vec![
                "1".to_owned(),
                "1024".to_owned(),
                "100 %".to_owned(),
                "x".to_owned(),
            ],
        ];
        assert_eq!(
            rows(&["#", "bytes", "efficiency", "name"], &body),
            "#  bytes  efficiency  name\n0      4     35.16 %  left\n1   1024       100 %  x\n"
        );
        assert_eq!(rows(&["a"], &[]), "a\n");
    }

    #[test]
    fn objects_become_lines() {
        let value = json!({
            "dims": [16, 16], "dtype": "f4", "bytes": 2048,
            "read": {"transfers": 1, "bytes_sent": 10}, "none": null,
        });
        let text = lines(&value);
        assert!(text.contains("dims:  16,16\n"), "{text}");
        assert!(text.contains("bytes: 2048 (2.0 KiB)\n"), "{text}");
        assert!(text.contains("read:\n  bytes_sent: 10\n"), "{text}");
        assert!(text.contains("none:  -\n"), "{text}");
    }
}
