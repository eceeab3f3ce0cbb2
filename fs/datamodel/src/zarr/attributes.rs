//! Attributes: any JSON in Zarr, values of the model here.

use serde_json::{Map, Number, Value as Json};
use slabfs_model::{DType, DTypeKind};

use super::types::{base64, from_base64};
use super::words::{plain_words, word};
use crate::tree::{Attribute, Value};
use crate::types::Hdf5Type;

/// The attributes of a node.
pub fn read(attributes: &Map<String, Json>) -> Vec<Attribute> {
    let read = attributes.iter().map(|(name, json)| Attribute {
        name: name.clone(),
        value: value(json),
    });
    read.collect()
}

fn value(json: &Json) -> Value {
    let members = match json {
        // A list of one is not one number: only longer lists have a value of their own.
        Json::Array(members) if members.len() > 1 => members.as_slice(),
        Json::Array(_) => &[],
        one => std::slice::from_ref(one),
    };
    let numbers = integers(members).or_else(|| floats(members));
    let strings = members.iter().map(|member| match member {
        Json::String(text) if !text.starts_with('\0') => Some(text.clone()),
        _ => None,
    });
    let strings: Option<Vec<String>> = strings.collect();
    match (json, numbers, strings) {
        (Json::String(text), None, _) => Value::Text(text.trim_start_matches('\0').to_owned()),
        (_, Some(numbers), _) => numbers,
        (Json::Array(_), None, Some(strings)) if !strings.is_empty() => Value::Strings(strings),
        _ => {
            let mut json = json.clone();
            plain_words(&mut json);
            Value::Json(json)
        }
    }
}

fn numbers(dtype: &str, bytes: Vec<u8>) -> Option<Value> {
    let dtype = dtype.parse().ok()?;
    (!bytes.is_empty()).then_some(Value::Numbers { dtype, bytes })
}

fn integers(members: &[Json]) -> Option<Value> {
    let signed: Option<Vec<i64>> = members.iter().map(Json::as_i64).collect();
    if let Some(signed) = signed {
        let bytes = signed.iter().flat_map(|one| one.to_le_bytes());
        return numbers("i8", bytes.collect());
    }
    let unsigned: Option<Vec<u64>> = members.iter().map(Json::as_u64).collect();
    let bytes = unsigned?.into_iter().flat_map(u64::to_le_bytes).collect();
    numbers("u8", bytes)
}

fn floats(members: &[Json]) -> Option<Value> {
    let float = |member: &Json| match member {
        Json::Number(number) if number.is_f64() => number.as_f64(),
        other => word(other),
    };
    let floats: Option<Vec<f64>> = members.iter().map(float).collect();
    let bytes = floats?.into_iter().flat_map(f64::to_le_bytes).collect();
    numbers("f8", bytes)
}

/// The JSON of attributes.
///
/// # Errors
/// The name of one that JSON cannot have, and why.
pub fn write(attributes: &[Attribute]) -> Result<Map<String, Json>, (String, String)> {
    let mut all = Map::new();
    for Attribute { name, value } in attributes {
        let json = json(value).map_err(|why| (name.clone(), why))?;
        all.insert(name.clone(), json);
    }
    Ok(all)
}

fn json(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Text(text) => Json::from(text.as_str()),
        Value::Strings(texts) => Json::from(texts.as_slice()),
        Value::Json(json) => json.clone(),
        Value::Chars(bytes) => {
            let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
            let text = std::str::from_utf8(bytes);
            Json::from(text.map_err(|_| "is not UTF-8, which Zarr needs")?)
        }
        Value::Numbers { dtype, bytes } => {
            let members = bytes.chunks_exact(dtype.size() as usize);
            let mut members: Vec<Json> = members.map(|one| number(dtype, one)).collect();
            match members.len() {
                1 => members.remove(0),
                _ => Json::from(members),
            }
        }
        Value::Hdf5(value) => match &value.elements {
            Value::Hdf5(_) => return Err("has an impossible value".to_owned()),
            Value::Chars(_) if !matches!(value.typ, Hdf5Type::String { .. }) => {
                return Err(format!("has the type {}, which Zarr has not", value.typ));
            }
            elements => json(elements)?,
        },
    })
}

/// The JSON of `_FillValue` of an array of this dtype, as Xarray has it; `None` where that is a plain number.
pub fn coded_fill(dtype: &DType, value: &Value) -> Option<Json> {
    match (dtype.kind(), value) {
        (DTypeKind::Float, Value::Numbers { dtype, bytes }) => {
            let float = match *bytes.as_slice() {
                [a, b, c, d] if dtype.kind() == DTypeKind::Float => {
                    f64::from(f32::from_le_bytes([a, b, c, d]))
                }
                [a, b, c, d, e, f, g, h] if dtype.kind() == DTypeKind::Float => {
                    f64::from_le_bytes([a, b, c, d, e, f, g, h])
                }
                _ => return None,
            };
            Some(Json::from(base64(&float.to_le_bytes())))
        }
        (DTypeKind::Bytes, Value::Chars(bytes)) => Some(Json::from(base64(bytes))),
        _ => None,
    }
}

/// The value of such a `_FillValue`; `None` if the text is none.
pub fn decoded_fill(dtype: &DType, text: &str) -> Option<Value> {
    let bytes = from_base64(text)?;
    match (dtype.kind(), dtype.size()) {
        (DTypeKind::Float, size @ (4 | 8)) => {
            let wide = f64::from_le_bytes(bytes.try_into().ok()?);
            let bytes = match size {
                4 => (wide as f32).to_le_bytes().to_vec(),
                _ => wide.to_le_bytes().to_vec(),
            };
            numbers(&format!("f{size}"), bytes)
        }
        (DTypeKind::Bytes, size) => (bytes.len() as u64 <= size).then_some(Value::Chars(bytes)),
        _ => None,
    }
}

/// A number; what JSON has no number for is a text, as in Zarr's fill values.
fn number(dtype: &DType, bytes: &[u8]) -> Json {
    let mut wide = [0; 8];
    let len = bytes.len().min(8);
    wide[..len].copy_from_slice(&bytes[..len]);
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * len;
    let float = match (dtype.kind(), len) {
        (DTypeKind::Int, _) => return Json::from(((bits << unused) as i64) >> unused),
        // All digits: Xarray compares such attributes with `_FillValue`.
        (DTypeKind::Float, 4) => f64::from(f32::from_bits(bits as u32)),
        (DTypeKind::Float, 8) => f64::from_bits(bits),
        _ => return Json::from(bits),
    };
    match Number::from_f64(float) {
        Some(number) => Json::Number(number),
        None if float.is_nan() => Json::from("NaN"),
        None if float > 0.0 => Json::from("Infinity"),
        None => Json::from("-Infinity"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fill_values_are_those_of_xarray() {
        for (dtype, value, text) in [
            (
                "f4",
                numbers("f4", (-1e34_f32).to_le_bytes().to_vec()),
                "AAAA4JvQ/sY=",
            ),
            (
                "f8",
                numbers("f8", 1.5_f64.to_le_bytes().to_vec()),
                "AAAAAAAA+D8=",
            ),
            ("S1", Some(Value::Chars(b"*".to_vec())), "Kg=="),
        ] {
            let (dtype, value) = (dtype.parse().expect("a dtype"), value.expect("a value"));
            assert_eq!(coded_fill(&dtype, &value), Some(Json::from(text)));
            assert_eq!(decoded_fill(&dtype, text), Some(value));
            assert_eq!(decoded_fill(&dtype, "x"), None);
        }
    }

    #[test]
    fn any_json_comes_back() {
        let all = json!({
            "int": -3, "large": u64::MAX, "float": 1.0, "text": "größe", "empty": "", "null": null, "no": false,
            "ints": [1, 2], "one": [5], "none": [], "mixed": [1, 2.5, "a"], "floats": [1.0, 2.5], "texts": ["a", ""],
            "nested": {"a": [[1], {"b": null}]}, "alone": ["a"]
        });
        let all = all.as_object().expect("an object");
        let read = read(all);
        assert_eq!(write(&read).as_ref(), Ok(all));
        let kinds = read
            .iter()
            .filter(|one| matches!(one.value, Value::Json(_)));
        let kinds: Vec<&str> = kinds.map(|one| one.name.as_str()).collect();
        let mut expected = ["null", "no", "one", "none", "mixed", "nested", "alone"];
        expected.sort_unstable();
        let mut kinds = kinds;
        kinds.sort_unstable();
        assert_eq!(kinds, expected);
    }
}
