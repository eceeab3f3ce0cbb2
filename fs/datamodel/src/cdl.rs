//! Prints a tree as `ncdump -h` prints a file: CDL, the text form of NetCDF.

use std::fmt::Write;

use slabfs_model::{DType, DTypeKind};

use crate::tree::{Attribute, Exact, Group, Hdf5Value, NamedType, Value, Variable};
use crate::types::Hdf5Type;

/// The text for a file of this name.
pub fn show(name: &str, tree: &Group) -> String {
    let mut out = format!("netcdf {name} {{\n");
    show_group(tree, 0, &mut Vec::new(), &mut out);
    out.push_str("}\n");
    out
}

/// `types` are those that the groups above define.
fn show_group<'a>(
    group: &'a Group,
    depth: usize,
    types: &mut Vec<&'a NamedType>,
    out: &mut String,
) {
    let indent = "  ".repeat(depth);
    let known = types.len();
    types.extend(&group.types);
    if !group.types.is_empty() {
        let _ = writeln!(out, "{indent}types:");
        for typ in &group.types {
            show_type(typ, &indent, types, out);
        }
    }
    if !group.dims.is_empty() {
        let _ = writeln!(out, "{indent}dimensions:");
        for dim in &group.dims {
            let len = match dim.unlimited {
                true => format!("UNLIMITED ; // ({} currently)", dim.len),
                false => format!("{} ;", dim.len),
            };
            let _ = writeln!(out, "{indent}\t{} = {len}", escaped(&dim.name));
        }
    }
    if !group.variables.is_empty() {
        let _ = writeln!(out, "{indent}variables:");
        for variable in &group.variables {
            show_variable(variable, &indent, types, out);
        }
    }
    if !group.attributes.is_empty() {
        let what = if depth == 0 { "global" } else { "group" };
        let _ = writeln!(out, "\n{indent}// {what} attributes:");
        for attribute in &group.attributes {
            show_attribute("", attribute, &format!("{indent}\t"), types, out);
        }
    }
    for below in &group.groups {
        let _ = writeln!(out, "\n{indent}group: {} {{", escaped(&below.name));
        show_group(below, depth + 1, types, out);
        let _ = writeln!(out, "{indent}  }} // group {}", escaped(&below.name));
    }
    types.truncate(known);
}

/// The definition of a type.
fn show_type(one: &NamedType, indent: &str, types: &[&NamedType], out: &mut String) {
    let name = escaped(&one.name);
    let _ = match &one.typ {
        Hdf5Type::Enum { base, members } => {
            let members = members
                .iter()
                .map(|(name, value)| format!("{} = {value}", escaped(name)));
            let members: Vec<String> = members.collect();
            let (base, members) = (type_name(base), members.join(", "));
            writeln!(out, "{indent}  {base} enum {name} {{{members}}} ;")
        }
        Hdf5Type::Opaque { len, .. } => writeln!(out, "{indent}  opaque({len}) {name} ;"),
        Hdf5Type::Compound { members, .. } => {
            let _ = writeln!(out, "{indent}  compound {name} {{");
            for (member, _, typ) in members {
                let (typ, dims) = match typ {
                    Hdf5Type::Array { of, dims } => {
                        let dims: Vec<String> = dims.iter().map(u64::to_string).collect();
                        (of.as_ref(), format!("({})", dims.join(", ")))
                    }
                    typ => (typ, String::new()),
                };
                let _ = writeln!(
                    out,
                    "{indent}    {} {}{dims} ;",
                    name_of(typ, types),
                    escaped(member)
                );
            }
            writeln!(out, "{indent}  }}; // {name}")
        }
        // NetCDF has no others.
        typ => writeln!(out, "{indent}  // {name}: {typ}"),
    };
}

/// The name of a type, as the nearest group has it.
fn name_of(typ: &Hdf5Type, types: &[&NamedType]) -> String {
    match (types.iter().rfind(|one| one.typ == *typ), typ) {
        (Some(one), _) => escaped(&one.name),
        (None, Hdf5Type::Number(dtype)) => type_name(dtype),
        (None, Hdf5Type::String { len: None, .. }) => "string".to_owned(),
        (None, Hdf5Type::String { len: Some(1), .. }) => "char".to_owned(),
        (None, typ) => typ.to_string(),
    }
}

/// A name as CDL has it: characters with a meaning follow a backslash.
fn escaped(name: &str) -> String {
    let mut out = String::new();
    for (at, char) in name.chars().enumerate() {
        let plain = char.is_ascii_alphanumeric() || "_-+.@".contains(char) || !char.is_ascii();
        if !plain || (at == 0 && char.is_ascii_digit()) {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

fn show_variable(variable: &Variable, indent: &str, types: &[&NamedType], out: &mut String) {
    let dims: Vec<String> = variable
        .dims
        .iter()
        .map(|dim| escaped(&dim.dim.name))
        .collect();
    let dims = match dims.is_empty() {
        true => String::new(),
        false => format!("({})", dims.join(", ")),
    };
    let typ = match &variable.exact {
        Some(Exact::Strings { .. }) => "string".to_owned(),
        Some(Exact::Hdf5(typ)) => name_of(typ, types),
        _ => match Hdf5Type::of(&variable.dtype)
            .filter(|typ| matches!(typ, Hdf5Type::Opaque { .. }))
        {
            Some(typ) => name_of(&typ, types),
            None => type_name(&variable.dtype),
        },
    };
    let name = escaped(&variable.name);
    let _ = writeln!(out, "{indent}\t{typ} {name}{dims} ;");
    for attribute in &variable.attributes {
        show_attribute(&name, attribute, &format!("{indent}\t"), types, out);
    }
}

fn show_attribute(
    of: &str,
    attribute: &Attribute,
    indent: &str,
    types: &[&NamedType],
    out: &mut String,
) {
    let kind = match &attribute.value {
        Value::Strings(_) => "string ".to_owned(),
        Value::Hdf5(value) => match &value.typ {
            Hdf5Type::Number(_) | Hdf5Type::String { len: Some(_), .. } => String::new(),
            typ => format!("{} ", name_of(typ, types)),
        },
        _ => String::new(),
    };
    let _ = writeln!(
        out,
        "{indent}\t{kind}{of}:{} = {} ;",
        escaped(&attribute.name),
        show_value(&attribute.value)
    );
}

/// A value as CDL has it.
pub fn show_value(value: &Value) -> String {
    match value {
        Value::Chars(bytes) => quoted(&String::from_utf8_lossy(bytes)),
        Value::Text(text) => quoted(text),
        Value::Json(json) => quoted(&json.to_string()),
        Value::Hdf5(value) => show_typed(value),
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

/// Names of an enumeration; other values as they are.
fn show_typed(value: &Hdf5Value) -> String {
    match (&value.elements, &value.typ) {
        (Value::Numbers { dtype, bytes }, Hdf5Type::Enum { members, .. }) => {
            let values = bytes.chunks_exact(dtype.size() as usize).map(|one| {
                let shown = number(dtype, one);
                let digits = shown.trim_end_matches(|char: char| char.is_ascii_alphabetic());
                let found = members
                    .iter()
                    .find(|(_, value)| value.to_string() == digits);
                found.map_or(digits.to_owned(), |(name, _)| escaped(name))
            });
            values.collect::<Vec<String>>().join(", ")
        }
        (Value::Chars(bytes), Hdf5Type::Opaque { .. } | Hdf5Type::Compound { .. }) => {
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("0X{}", digits.concat())
        }
        (elements, _) => show_value(elements),
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
            true => mantissa.trim_end_matches('0').to_owned(),
            false => format!("{mantissa}."),
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
