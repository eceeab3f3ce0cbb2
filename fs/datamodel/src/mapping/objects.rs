//! Arrays and variables: the object that a variable becomes, and the variable of an object.

use crate::error::{In, invalid};
use crate::tree::{Deflate, Dim, DimRef, Value, Variable};
use crate::zarr::FILL;
use serde_json::{Map, Value as Json, json};
use slabfs_model::{DType, DTypeKind, Fill};

use super::attributes::{attributes_of, strings, tags_of};
use super::{DIM_NAMES, MAX_RANK, check_name, dims, exact, joined, order};

/// The object of a variable of the group `path`, as `create` takes it, and its tags.
pub(super) fn object(path: &str, variable: &Variable) -> crate::Result<(Json, Map<String, Json>)> {
    check_name(&variable.name)?;
    if variable.dims.len() > MAX_RANK {
        return Err(invalid(format!(
            "it has {} dimensions; arrays have at most {MAX_RANK}",
            variable.dims.len()
        )));
    }
    let mut tags = tags_of(&variable.attributes)?;
    if variable.dims.iter().any(|dim| !dim.dim.name.is_empty()) {
        let names = variable.dims.iter().map(|dim| dim.dim.name.clone());
        tags.insert(DIM_NAMES.to_owned(), strings(names));
    }
    order::add(&mut tags, &variable.attributes, std::iter::empty());
    if let Some(typ) = &variable.exact {
        tags.insert(exact::TYPE.to_owned(), exact::tag(typ));
    }
    let max_dims = variable.max_shape().into_iter().map(|max| match max {
        None => json!("unlimited"),
        Some(len) => json!(len),
    });
    let fill = variable.fill.as_deref().unwrap_or_default();
    let mut object = json!({
        "path": joined(path, &variable.name),
        "dtype": variable.dtype.to_string(),
        "dims": variable.shape(),
        "max_dims": max_dims.collect::<Vec<Json>>(),
        "fill": Fill::from_bytes(fill).show(&variable.dtype),
    });
    if let Some(deflate) = variable.deflate.filter(|deflate| deflate.level > 0) {
        let shuffle = deflate.shuffle && variable.dtype.size() > 1;
        let shuffle = if shuffle { "shuffle+" } else { "" };
        object["codec"] = json!(format!("{shuffle}deflate:{}", deflate.level));
    }
    Ok((object, tags))
}

/// A variable from the description of an array and its tags; its dimensions have the names of `dim_names` or none, and are
/// defined nowhere yet.
pub fn variable_of(name: &str, info: &Json, tags: &Map<String, Json>) -> crate::Result<Variable> {
    let text = |key: &str| info.get(key).and_then(Json::as_str);
    let dtype: DType = text("dtype")
        .within(|| "it has no dtype".to_owned())?
        .parse()?;
    let lengths = |key: &str| {
        info.get(key)
            .and_then(Json::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (dims, max_dims) = (lengths("dims"), lengths("max_dims"));
    let names = dims::names(tags, dims.len())?;
    let dims = dims
        .iter()
        .enumerate()
        .map(|(axis, len)| {
            let len = len.as_u64().within(|| "it has invalid dims".to_owned())?;
            let unlimited = max_dims.get(axis).is_some_and(Json::is_null);
            let name = names[axis].clone();
            let dim = Dim {
                name,
                len,
                unlimited,
            };
            Ok(DimRef { dim, up: 0 })
        })
        .collect::<crate::Result<Vec<DimRef>>>()?;
    let fill = Fill::parse(text("fill").unwrap_or("0"), &dtype)?;
    let max = max_dims.iter().map(Json::as_u64).collect();
    let mut variable = Variable {
        dims,
        max,
        // Zero, the default of slabfs, has no bytes here: as a `_FillValue` it would make tools mask zeros.
        fill: Some(fill.bytes().to_vec()),
        deflate: deflate(text("codec").unwrap_or("none")),
        attributes: attributes_of(tags)?,
        ..Variable::new(name, dtype)
    };
    let fill = variable.attributes.iter_mut();
    for attribute in fill.filter(|one| one.name == FILL) {
        of_type(&dtype, &mut attribute.value)?;
    }
    if let Some(tag) = tags.get(exact::TYPE) {
        variable.exact = exact::of_tag(tag, &variable)?;
    }
    Ok(variable)
}

/// Gives a number the type of the elements, which NetCDF wants of `_FillValue`, and users do not write into tags.
fn of_type(dtype: &DType, value: &mut Value) -> crate::Result<()> {
    let Value::Numbers { dtype: own, bytes } = value else {
        return Ok(());
    };
    let number = matches!(
        dtype.kind(),
        DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float
    );
    if !number
        || own.kind() == dtype.kind() && own.size() == dtype.size()
        || dtype.size() == 2 && dtype.kind() == DTypeKind::Float
    {
        return Ok(());
    }
    if bytes.len() as u64 != own.size() {
        return Ok(());
    }
    let text = Fill::from_bytes(bytes).show(own);
    let little: DType = dtype.to_string().trim_start_matches('>').parse()?;
    let fill = Fill::parse(&text, &little).within(|| {
        format!("its tag {FILL} is {text}, which is no {dtype}; set it with `slabfs tag`")
    })?;
    let mut wide = fill.bytes().to_vec();
    wide.resize(little.size() as usize, 0);
    *value = Value::Numbers {
        dtype: little,
        bytes: wide,
    };
    Ok(())
}

/// The filters of a codec that NetCDF has too; other codecs are undone.
fn deflate(codec: &str) -> Option<Deflate> {
    let (shuffle, plain) = match codec.strip_prefix("shuffle+") {
        Some(plain) => (true, plain),
        None => (false, codec),
    };
    let level = plain.strip_prefix("deflate")?.trim_start_matches(':');
    Some(Deflate {
        level: level.parse().unwrap_or(6),
        shuffle,
    })
}
