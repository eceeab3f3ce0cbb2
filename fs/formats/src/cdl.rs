//! Prints a tree as `ncdump -h` prints a file: CDL, the text form of NetCDF.

use std::fmt::Write;

use slabfs_model::{DType, DTypeKind};

use crate::tree::{Attribute, Group, Value, Variable};

/// The text for a file of this name.
pub fn show(name: &str, tree: &Group) -> String {
    let mut out = format!("netcdf {name} {{\n");
    show_group(tree, 0, &mut out);
    out.push_str("}\n");
    out
}

fn show_group(group: &Group, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    if !group.dims.is_empty() {
        let _ = writeln!(out, "{indent}dimensions:");
        for dim in &group.dims {
            let len = match dim.unlimited {
                true => format!("UNLIMITED ; // ({} currently)", dim.len),
                false => format!("{} ;", dim.len),
            };
            let _ = writeln!(out, "{indent}\t{} = {len}", dim.name);
        }
    }
    if !group.variables.is_empty() {
        let _ = writeln!(out, "{indent}variables:");
        for variable in &group.variables {
            show_variable(variable, &indent, out);
        }
    }
    if !group.attributes.is_empty() {
        let what = if depth == 0 { "global" } else { "group" };
        let _ = writeln!(out, "\n{indent}// {what} attributes:");
        for attribute in &group.attributes {
            show_attribute("", attribute, &indent, out);
        }
    }
    for below in &group.groups {
        let _ = writeln!(out, "\n{indent}group: {} {{", below.name);
        show_group(below, depth + 1, out);
        let _ = writeln!(out, "{indent}  }} // group {}", below.name);
    }
}

fn show_variable(variable: &Variable, indent: &str, out: &mut String) {
    let dims: Vec<&str> = variable
        .dims
        .iter()
        .map(|dim| dim.dim.name.as_str())
        .collect();
    let dims = match dims.is_empty() {
        true => String::new(),
        false => format!("({})", dims.join(", ")),
    };
    let _ = writeln!(
        out,
        "{indent}\t{} {}{dims} ;",
        type_name(&variable.dtype),
        variable.name
    );
    for attribute in &variable.attributes {
        show_attribute(&variable.name, attribute, &format!("{indent}\t"), out);
    }
}

fn show_attribute(of: &str, attribute: &Attribute, indent: &str, out: &mut String) {
    let kind = match &attribute.value {
        Value::Strings(_) => "string ",
        _ => "",
    };
    let _ = writeln!(
        out,
        "{indent}\t{kind}{of}:{} = {} ;",
        attribute.name,
        show_value(&attribute.value)
    );
}

fn show_value(value: &Value) -> String {
    match value {
        Value::Text(text) => quoted(text),
        Value::Json(json) => quoted(&json.to_string()),
        Value::Hdf5(value) => show_value(&value.elements),
        Value::Chars(bytes) => quoted(&String::from_utf8_lossy(bytes)),
        Value::Strings(strings) => {
            let strings: Vec<String> = strings.iter().map(|string| quoted(string)).collect();
            strings.join(", ")
        }
        Value::Numbers { dtype, bytes } => {
            let members = bytes.chunks_exact(dtype.size() as usize);
            let members: Vec<String> = members.map(|one| number(dtype, one)).collect();
            members.join(", ")
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.trim_end_matches('\0').chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// A number with the suffix of its type, as `ncdump` writes it.
fn number(dtype: &DType, bytes: &[u8]) -> String {
    let mut wide = [0; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * bytes.len().min(8);
    let signed = ((bits << unused) as i64) >> unused;
    match (dtype.kind(), dtype.size()) {
        (DTypeKind::Float, 4) => float(f32::from_bits(bits as u32).into(), 7, "f"),
        (DTypeKind::Float, 8) => float(f64::from_bits(bits), 15, ""),
        (DTypeKind::Int, size) => format!("{signed}{}", ["b", "s", "", "LL"][shift(size)]),
        (_, size) => format!("{bits}{}", ["UB", "US", "U", "ULL"][shift(size)]),
    }
}

/// The position of a size among 1, 2, 4 and 8.
fn shift(size: u64) -> usize {
    (size.trailing_zeros() as usize).min(3)
}

/// A floating-point number as `ncdump` writes it: `%.7g` or `%.15g`, and `1.` for 1.
fn float(value: f64, digits: usize, suffix: &str) -> String {
    if value.is_nan() {
        return format!("NaN{suffix}");
    }
    if value.is_infinite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}Infinity{suffix}");
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let power: i32 = exponent.parse().unwrap_or(0);
    if power < -4 || power >= digits as i32 {
        let mantissa = match mantissa.contains('.') {
            true => mantissa.trim_end_matches('0').trim_end_matches('.'),
            false => mantissa,
        };
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}{suffix}", power.abs());
    }
    let decimals = (digits as i32 - 1 - power).max(0) as usize;
    let fixed = format!("{value:.decimals$}");
    let fixed = match fixed.contains('.') {
        true => fixed.trim_end_matches('0').to_owned(),
        false => format!("{fixed}."),
    };
    format!("{fixed}{suffix}")
}

fn type_name(dtype: &DType) -> String {
    let name = match (dtype.kind(), dtype.size()) {
        (DTypeKind::Int, 1) => "byte",
        (DTypeKind::Int, 2) => "short",
        (DTypeKind::Int, 4) => "int",
        (DTypeKind::Int, 8) => "int64",
        (DTypeKind::UInt | DTypeKind::Bool, 1) => "ubyte",
        (DTypeKind::UInt, 2) => "ushort",
        (DTypeKind::UInt, 4) => "uint",
        (DTypeKind::UInt, 8) => "uint64",
        (DTypeKind::Float, 4) => "float",
        (DTypeKind::Float, 8) => "double",
        (DTypeKind::Bytes, 1) => "char",
        _ => return dtype.to_string(),
    };
    name.to_owned()
}
