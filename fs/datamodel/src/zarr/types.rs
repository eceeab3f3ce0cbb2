//! Data types of Zarr: those of version 2 are NumPy's, those of version 3 have names.

use serde_json::{Value as Json, json};
use slabfs_model::{ByteOrder, DType, DTypeKind};

use crate::npy::header::dtype_of_text;
use crate::tree::{Exact, Variable};

/// The elements of an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    /// For strings of variable length `None`: their length is found by reading.
    pub dtype: Option<DType>,
    /// What the dtype does not say.
    pub exact: Option<Exact>,
    /// They pass through the decoder as opaque bytes.
    pub opaque: bool,
}

/// The element of a data type of version 2; `filters` are those of the array.
///
/// # Errors
/// What is not supported.
pub fn version2(dtype: &Json, filters: &Json) -> Result<Element, String> {
    if dtype == "|O" {
        let filters = filters.as_array().map(Vec::as_slice).unwrap_or_default();
        return match filters.iter().any(|filter| filter["id"] == "vlen-utf8") {
            true => Ok(strings()),
            false => Err("has Python objects, which are not read".to_owned()),
        };
    }
    let (dtype, exact) = dtype_of_text(&python(dtype, true)?)?;
    let opaque = exact.is_some() || !native(&dtype);
    Ok(Element {
        dtype: Some(dtype),
        exact,
        opaque,
    })
}

fn strings() -> Element {
    Element {
        dtype: None,
        exact: Some(Exact::Strings { utf8: true }),
        opaque: false,
    }
}

/// Types that the crate `zarrs` has too.
fn native(dtype: &DType) -> bool {
    let text = matches!(
        dtype.kind(),
        DTypeKind::Bytes | DTypeKind::Unicode | DTypeKind::Void
    );
    !text && dtype.order() == ByteOrder::Little
}

/// NumPy's descr, which is a list of lists in JSON, as Python writes it: a list of tuples. `outer` says that a list is
/// one of fields, not a field or a shape.
fn python(json: &Json, outer: bool) -> Result<String, String> {
    match json {
        Json::String(text) => Ok(json!(text).to_string()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Array(members) => {
            // A field's own type may be a list of fields again.
            let inner = |(at, member): (usize, &Json)| python(member, !outer && at == 1);
            let members: Result<Vec<String>, String> =
                members.iter().enumerate().map(inner).collect();
            let members = members?;
            let comma = if members.len() == 1 && !outer {
                ","
            } else {
                ""
            };
            let joined = members.join(", ");
            Ok(match outer {
                true => format!("[{joined}]"),
                false => format!("({joined}{comma})"),
            })
        }
        _ => Err("has a type that is no descr of NumPy".to_owned()),
    }
}

/// The element of a data type of version 3; `big` says that its codec stores the most significant byte first.
///
/// # Errors
/// What is not supported.
pub fn version3(data_type: &Json, big: bool) -> Result<Element, String> {
    let name = match data_type {
        Json::String(name) => name.as_str(),
        other => other["name"].as_str().unwrap_or_default(),
    };
    let configuration = &data_type["configuration"];
    let len = configuration["length_bytes"].as_u64().unwrap_or(0);
    let order = if big { ">" } else { "<" };
    let unknown = || format!("has the type {data_type}, which is not supported");
    let (text, opaque) = match name {
        "string" => return Ok(strings()),
        "bool" => ("b1".to_owned(), false),
        "int8" | "uint8" => (format!("{}1", &name[..1]), false),
        "int16" | "int32" | "int64" | "uint16" | "uint32" | "uint64" | "float16" | "float32"
        | "float64" | "complex64" | "complex128" => {
            let digits = name.trim_start_matches(|char: char| !char.is_ascii_digit());
            let bits: u64 = digits.parse().map_err(|_| unknown())?;
            (format!("{order}{}{}", &name[..1], bits / 8), big)
        }
        "null_terminated_bytes" => (format!("S{len}"), true),
        "raw_bytes" => (format!("V{len}"), true),
        "fixed_length_utf32" => (format!("{order}U{}", len / 4), true),
        "numpy.datetime64" | "numpy.timedelta64" => {
            let unit = configuration["unit"].as_str().unwrap_or("generic");
            let scale = match configuration["scale_factor"].as_u64() {
                None | Some(1) => String::new(),
                Some(scale) => scale.to_string(),
            };
            let letter = if name == "numpy.datetime64" {
                "M8"
            } else {
                "m8"
            };
            let (dtype, exact) = dtype_of_text(&format!("'{order}{letter}[{scale}{unit}]'"))?;
            return Ok(Element {
                dtype: Some(dtype),
                exact,
                opaque: true,
            });
        }
        name => match name.strip_prefix('r').map(str::parse::<u64>) {
            Some(Ok(bits)) if bits % 8 == 0 => (format!("V{}", bits / 8), true),
            _ => return Err(unknown()),
        },
    };
    let dtype: DType = text
        .parse()
        .map_err(|error| format!("has a type that is not possible: {error}"))?;
    Ok(Element {
        dtype: Some(dtype),
        exact: None,
        opaque,
    })
}

/// The data type and the fill value of version 3 for a variable.
///
/// # Errors
/// Why there is none.
pub fn written(variable: &Variable) -> Result<(Json, Json), String> {
    let dtype = &variable.dtype;
    let zero = vec![0; dtype.size() as usize];
    let fill = variable.fill.as_deref();
    let fill = fill
        .filter(|fill| fill.len() == zero.len())
        .unwrap_or(&zero);
    match &variable.exact {
        Some(Exact::Strings { .. }) => {
            let text = String::from_utf8_lossy(fill);
            return Ok((json!("string"), json!(text.trim_end_matches('\0'))));
        }
        Some(Exact::Numpy(descr)) => return date(descr, fill),
        Some(Exact::Hdf5(typ)) if dtype.kind() != DTypeKind::Bytes => {
            return Err(format!("has the type {typ}, which Zarr has not"));
        }
        Some(Exact::Null(_)) => return Err("has no elements and no shape (H5S_NULL)".to_owned()),
        Some(Exact::Hdf5(_)) | None => {}
    }
    let bits = 8 * dtype.size();
    let named =
        |name: &str| json!({ "name": name, "configuration": { "length_bytes": dtype.size() } });
    let name = match dtype.kind() {
        DTypeKind::Bool => return Ok((json!("bool"), json!(fill[0] != 0))),
        DTypeKind::Bytes => return Ok((named("null_terminated_bytes"), json!(base64(fill)))),
        DTypeKind::Void => return Ok((named("raw_bytes"), json!(base64(fill)))),
        DTypeKind::Unicode => {
            let chars = fill.chunks_exact(4).filter_map(|four| {
                let four = little(four, dtype.order());
                char::from_u32(u32::try_from(four).ok()?).filter(|char| *char != '\0')
            });
            return Ok((
                named("fixed_length_utf32"),
                json!(chars.collect::<String>()),
            ));
        }
        DTypeKind::Int => format!("int{bits}"),
        DTypeKind::UInt => format!("uint{bits}"),
        DTypeKind::Float => format!("float{bits}"),
        DTypeKind::Complex => format!("complex{bits}"),
    };
    Ok((json!(name), number(dtype, fill)))
}

/// A type of dates or spans of time.
fn date(descr: &str, fill: &[u8]) -> Result<(Json, Json), String> {
    let refused = || format!("has the type {descr} of NumPy, which Zarr has not; export to .npy");
    let plain = descr.trim_matches(['\'', '"']);
    let name = match plain.get(1..3) {
        Some("M8") => "numpy.datetime64",
        Some("m8") => "numpy.timedelta64",
        _ => return Err(refused()),
    };
    let unit = plain.get(3..).unwrap_or_default();
    let unit = unit.trim_start_matches('[').trim_end_matches(']');
    let digits = unit.find(|char: char| !char.is_ascii_digit()).unwrap_or(0);
    let scale: u64 = unit[..digits].parse().unwrap_or(1);
    let unit = match &unit[digits..] {
        "" => "generic",
        unit => unit,
    };
    let order = match plain.starts_with('>') {
        true => ByteOrder::Big,
        false => ByteOrder::Little,
    };
    let fill = little(fill, order) as i64;
    Ok((
        json!({ "name": name, "configuration": { "unit": unit, "scale_factor": scale } }),
        json!(fill),
    ))
}

/// A number of up to 8 bytes.
fn little(bytes: &[u8], order: ByteOrder) -> u64 {
    let mut wide = [0; 8];
    for (at, byte) in bytes.iter().take(8).enumerate() {
        let at = match order {
            ByteOrder::Little => at,
            ByteOrder::Big => bytes.len().min(8) - 1 - at,
        };
        wide[at] = *byte;
    }
    u64::from_le_bytes(wide)
}

/// A number as a fill value: what is not a number has its bits.
fn number(dtype: &DType, bytes: &[u8]) -> Json {
    if dtype.kind() == DTypeKind::Complex {
        let (real, imaginary) = bytes.split_at(bytes.len() / 2);
        return json!([float(real, dtype.order()), float(imaginary, dtype.order())]);
    }
    let bits = little(bytes, dtype.order());
    let unused = 64 - 8 * bytes.len().min(8);
    match dtype.kind() {
        DTypeKind::Int => json!(((bits << unused) as i64) >> unused),
        DTypeKind::Float => float(bytes, dtype.order()),
        _ => json!(bits),
    }
}

fn float(bytes: &[u8], order: ByteOrder) -> Json {
    let bits = little(bytes, order);
    let value = match bytes.len() {
        4 => f64::from(f32::from_bits(bits as u32)),
        8 => f64::from_bits(bits),
        _ if bits == 0 => 0.0,
        // Half precision only has its bits here.
        _ => f64::NAN,
    };
    match value {
        value if value.is_finite() => json!(value),
        value if value.is_infinite() && value > 0.0 => json!("Infinity"),
        value if value.is_infinite() => json!("-Infinity"),
        _ => json!(format!("0x{bits:0width$x}", width = 2 * bytes.len())),
    }
}

/// The bytes of a fill value of a type that passes as opaque bytes; `None` if the JSON is none.
pub fn opaque_fill(dtype: &DType, json: &Json) -> Option<Vec<u8>> {
    let len = dtype.size() as usize;
    if json.is_null() || json == 0 || json == "" {
        return Some(vec![0; len]);
    }
    let mut bytes = match (dtype.kind(), json) {
        (DTypeKind::Unicode, Json::String(text)) => {
            let chars = text.chars().map(u32::from);
            match dtype.order() {
                ByteOrder::Little => chars.flat_map(u32::to_le_bytes).collect(),
                ByteOrder::Big => chars.flat_map(u32::to_be_bytes).collect(),
            }
        }
        (DTypeKind::Bytes | DTypeKind::Void, Json::String(text)) => from_base64(text)?,
        (DTypeKind::Bytes | DTypeKind::Void, Json::Array(bytes)) => {
            let bytes = bytes.iter().map(|byte| byte.as_u64()?.try_into().ok());
            bytes.collect::<Option<Vec<u8>>>()?
        }
        (DTypeKind::Complex, Json::Array(parts)) => {
            let parts = parts
                .iter()
                .map(|part| bits(DTypeKind::Float, len / 2, part));
            let parts: Option<Vec<u64>> = parts.collect();
            let bytes = parts?
                .into_iter()
                .flat_map(|bits| order(bits, len / 2, dtype.order()));
            bytes.collect()
        }
        (kind, json) => order(bits(kind, len, json)?, len, dtype.order()),
    };
    if bytes.len() > len {
        return None;
    }
    bytes.resize(len, 0);
    Some(bytes)
}

fn order(bits: u64, len: usize, order: ByteOrder) -> Vec<u8> {
    let mut bytes = bits.to_le_bytes()[..len.min(8)].to_vec();
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}

/// The bits of a number.
fn bits(kind: DTypeKind, len: usize, json: &Json) -> Option<u64> {
    if let Some(hex) = json.as_str().and_then(|text| text.strip_prefix("0x")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    if kind != DTypeKind::Float {
        return json
            .as_u64()
            .or_else(|| json.as_i64().map(|value| value as u64));
    }
    let value = match json {
        Json::Number(number) => number.as_f64()?,
        Json::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            _ => return None,
        },
        _ => return None,
    };
    match len {
        4 => Some((value as f32).to_bits().into()),
        8 => Some(value.to_bits()),
        _ if value.is_nan() => Some(0x7e00),
        _ => (value == 0.0).then_some(0),
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as base64.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let mut wide = [0; 4];
        wide[1..=three.len()].copy_from_slice(three);
        let bits = u32::from_be_bytes(wide);
        for at in 0..4 {
            match at <= three.len() {
                true => text.push(char::from(DIGITS[(bits >> (18 - 6 * at)) as usize & 63])),
                false => text.push('='),
            }
        }
    }
    text
}

/// The bytes of base64; `None` if the text is none.
pub fn from_base64(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::new();
    let mut bits = 0_u32;
    let mut count = 0;
    for byte in text.trim_end_matches('=').bytes() {
        let digit = DIGITS.iter().position(|&digit| digit == byte)?;
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_both_versions() {
        for (json, dtype, opaque) in [
            (json!("<f8"), "f8", false),
            (json!(">i2"), ">i2", true),
            (json!("|S5"), "S5", true),
            (json!("<U3"), "U3", true),
            (json!("<M8[ns]"), "i8", true),
            (
                json!([["a", "<i4"], ["b", "<f8", [2]], ["c", [["d", "|u1"]]]]),
                "V21",
                true,
            ),
        ] {
            let element = version2(&json, &Json::Null).expect("a type");
            let found = element.dtype.map(|dtype| dtype.to_string());
            assert_eq!((found.as_deref(), element.opaque), (Some(dtype), opaque));
        }
        for (text, name) in [
            ("i1", json!("int8")),
            ("f2", json!("float16")),
            ("c16", json!("complex128")),
            ("b1", json!("bool")),
            (
                "S7",
                json!({"name": "null_terminated_bytes", "configuration": {"length_bytes": 7}}),
            ),
            (
                ">U2",
                json!({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}),
            ),
            (">u8", json!("uint64")),
        ] {
            let dtype: DType = text.parse().expect("a dtype");
            let (found, _) = written(&Variable::new("a", dtype)).expect("a type");
            assert_eq!(found, name);
            let big = dtype.order() == ByteOrder::Big;
            assert_eq!(version3(&name, big).expect("read").dtype, Some(dtype));
        }
        assert!(version2(&json!("|O"), &Json::Null).is_err());
        assert!(version3(&json!({"name": "structured"}), false).is_err());
    }

    #[test]
    fn fill_values_come_back() {
        for (text, bytes) in [
            ("f4", 2.5_f32.to_le_bytes().to_vec()),
            (">f4", f32::NAN.to_be_bytes().to_vec()),
            ("i2", vec![0xfe, 0xff]),
            (">i4", vec![1, 2, 3, 4]),
            ("S3", b"ab\0".to_vec()),
            ("V2", vec![255, 1]),
            (">U1", vec![0, 0, 0, 0xe9]),
            (
                "c8",
                [1.5_f32.to_le_bytes(), f32::INFINITY.to_le_bytes()].concat(),
            ),
        ] {
            let dtype: DType = text.parse().expect("a dtype");
            let variable = Variable {
                fill: Some(bytes.clone()),
                ..Variable::new("a", dtype)
            };
            let (_, json) = written(&variable).expect("a fill value");
            assert_eq!(opaque_fill(&dtype, &json), Some(bytes), "{text} {json}");
        }
        assert_eq!(base64(b"Man"), "TWFu");
        assert_eq!(base64(b"M"), "TQ==");
    }
}
