//! What a file's groups, variables and attributes are on a mount, and back.
//!
//! | in a file | on the mount |
//! |---|---|
//! | group | directory |
//! | variable | array of the same dtype, dims and fill value; an unlimited dimension is an unlimited axis |
//! | dimensions that a group defines | the tag `_slabfs_dims` of its directory: `["time=unlimited", "lat=180"]` |
//! | dimensions of a variable | its tag `dim_names`: `["time", "lat"]` |
//! | attribute | tag of the same name, of the exact type |
//! | deflate, shuffle | codec `deflate:N`, `shuffle+deflate:N` |

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value as Json, json};
use slabfs_formats::tree::{Attribute, Deflate, Dim, DimRef, Group, Value, Variable};
use slabfs_model::{DType, DTypeKind, Elem, Exact, Fill, Tag, TagKind, check_tag_key, hex};

/// The tag with the names of an array's dimensions.
pub(crate) const DIM_NAMES: &str = "dim_names";
/// The tag with the dimensions that a container defines.
pub(crate) const DIMS: &str = "_slabfs_dims";
/// Most axes of an array.
const MAX_RANK: usize = 32;
/// Most attributes of a variable or group: with the tags that are set here, the limit of an object's.
const MOST_ATTRIBUTES: usize = 1022;
/// Most bytes of their names, and what each adds: `user.` and a zero.
const MOST_NAMES: usize = 65_000;
const NAME_COST: usize = 6;
/// Longest name of a file.
const MAX_NAME: usize = 255;

/// The containers and arrays of a tree, relative to the top one; an error names what cannot be represented.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// The containers, parents first; the first is the top one, with an empty path.
    pub(crate) containers: Vec<(String, Map<String, Json>)>,
    /// The arrays.
    pub(crate) arrays: Vec<Planned<'a>>,
}

/// A variable that becomes an array.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    /// The path of its group.
    pub(crate) group: String,
    pub(crate) variable: &'a Variable,
    /// The object as `create` takes it, without tags.
    pub(crate) object: Json,
    pub(crate) tags: Map<String, Json>,
}

/// Most tags that are set with one change.
const TAGS_AT_ONCE: usize = 32;

impl Plan<'_> {
    /// The changes that set the tags of all containers and arrays, some at a time; `inside` is the top container.
    pub(crate) fn tags(&self, inside: &str) -> Vec<Json> {
        let containers = self
            .containers
            .iter()
            .map(|(path, tags)| match path.is_empty() {
                true => (inside.to_owned(), tags),
                false => (joined(inside, path), tags),
            });
        let arrays = self.arrays.iter().map(|array| {
            let path = joined(&array.group, &array.variable.name);
            (joined(inside, &path), &array.tags)
        });
        let mut changes = Vec::new();
        for (path, tags) in containers.chain(arrays) {
            let tags: Vec<(&String, &Json)> = tags.iter().collect();
            for some in tags.chunks(TAGS_AT_ONCE) {
                let set: Map<String, Json> = some
                    .iter()
                    .map(|(key, value)| ((*key).clone(), (*value).clone()))
                    .collect();
                changes.push(json!({ "path": path, "set": set }));
            }
        }
        changes
    }
}

/// Plans a tree.
pub(crate) fn plan<'a>(file: &Path, tree: &'a Group) -> anyhow::Result<Plan<'a>> {
    let mut plan = Plan::default();
    let mut failed = None;
    tree.each(&mut |path, group| {
        if failed.is_none() {
            failed = plan_group(&mut plan, path, group).err();
        }
    });
    match failed {
        Some(error) => Err(error.context(file.display().to_string())),
        None => Ok(plan),
    }
}

fn plan_group<'a>(plan: &mut Plan<'a>, path: &str, group: &'a Group) -> anyhow::Result<()> {
    if !path.is_empty() {
        check_name(&group.name).with_context(|| format!("group {path}"))?;
    }
    let mut tags = tags_of(&group.attributes).with_context(|| format!("group /{path}"))?;
    if !group.dims.is_empty() {
        let dims = group.dims.iter().map(|dim| match dim.unlimited {
            true => format!("{}=unlimited", dim.name),
            false => format!("{}={}", dim.name, dim.len),
        });
        tags.insert(DIMS.to_owned(), strings(dims));
    }
    plan.containers.push((path.to_owned(), tags));
    for variable in &group.variables {
        let what = || format!("variable {path}/{}", variable.name);
        let (object, tags) = object(path, variable).with_context(what)?;
        plan.arrays.push(Planned {
            group: path.to_owned(),
            variable,
            object,
            tags,
        });
    }
    Ok(())
}

fn object(path: &str, variable: &Variable) -> anyhow::Result<(Json, Map<String, Json>)> {
    check_name(&variable.name)?;
    if variable.dims.len() > MAX_RANK {
        bail!(
            "it has {} dimensions; arrays have at most {MAX_RANK}",
            variable.dims.len()
        );
    }
    let mut tags = tags_of(&variable.attributes)?;
    if !variable.dims.is_empty() {
        let names = variable.dims.iter().map(|dim| dim.dim.name.clone());
        tags.insert(DIM_NAMES.to_owned(), strings(names));
    }
    let max_dims: Vec<Json> = variable
        .dims
        .iter()
        .map(|dim| match dim.dim.unlimited {
            true => json!("unlimited"),
            false => json!(dim.dim.len),
        })
        .collect();
    let fill = variable.fill.as_deref().unwrap_or_default();
    let mut object = json!({
        "path": joined(path, &variable.name),
        "dtype": variable.dtype.to_string(),
        "dims": variable.shape(),
        "max_dims": max_dims,
        "fill": Fill::from_bytes(fill).show(&variable.dtype),
    });
    if let Some(deflate) = variable.deflate.filter(|deflate| deflate.level > 0) {
        let shuffle = deflate.shuffle && variable.dtype.size() > 1;
        let shuffle = if shuffle { "shuffle+" } else { "" };
        object["codec"] = json!(format!("{shuffle}deflate:{}", deflate.level));
    }
    Ok((object, tags))
}

/// A path below another one.
pub(crate) fn joined(path: &str, name: &str) -> String {
    match path.is_empty() {
        true => name.to_owned(),
        false => format!("{path}/{name}"),
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        bail!("the name {name:?} cannot be that of a file");
    }
    if name.len() > MAX_NAME {
        bail!(
            "the name has {} bytes; a file's has at most {MAX_NAME}",
            name.len()
        );
    }
    if name.contains("@[") {
        bail!("the name {name:?} would be a selection on the mount; rename it with `ncrename`");
    }
    Ok(())
}

fn strings(members: impl Iterator<Item = String>) -> Json {
    json!({ "string[]": Json::from(members.collect::<Vec<String>>()).to_string() })
}

fn tags_of(attributes: &[Attribute]) -> anyhow::Result<Map<String, Json>> {
    let names: usize = attributes
        .iter()
        .map(|one| one.name.len() + NAME_COST)
        .sum();
    if attributes.len() > MOST_ATTRIBUTES || names > MOST_NAMES {
        bail!(
            "it has {} attributes; at most {MOST_ATTRIBUTES} are possible, with {MOST_NAMES} bytes of names",
            attributes.len()
        );
    }
    let mut tags = Map::new();
    for attribute in attributes {
        let what = || format!("attribute {}", attribute.name);
        if [DIM_NAMES, DIMS].contains(&attribute.name.as_str()) {
            bail!(
                "it has an attribute {}, which slabfs uses for the names of dimensions; rename it with `ncrename`",
                attribute.name
            );
        }
        check_tag_key(&attribute.name).with_context(what)?;
        let json = tag_of(&attribute.value).with_context(what)?;
        Tag::from_json(&json).with_context(what)?;
        tags.insert(attribute.name.clone(), json);
    }
    Ok(tags)
}

/// A value as a tag in JSON.
fn tag_of(value: &Value) -> anyhow::Result<Json> {
    Ok(match value {
        Value::Chars(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "char": text }),
            Err(_) => json!({ "bytes": hex(bytes) }),
        },
        Value::Strings(texts) => strings(texts.iter().cloned()),
        Value::Numbers { dtype, bytes } => {
            let members = bytes.chunks_exact(dtype.size() as usize);
            let members: Vec<String> = members
                .map(|one| number(dtype, one))
                .collect::<anyhow::Result<_>>()?;
            match members.as_slice() {
                [one] if dtype.to_string() == "i8" => json!({ "int": one }),
                [one] if dtype.to_string() == "f8" && one != "nan" && one != "-0.0" => {
                    json!({ "float": one })
                }
                [one] if dtype.to_string() != "f8" => json!({ dtype.to_string(): one }),
                _ => json!({ format!("{dtype}[]"): format!("[{}]", members.join(",")) }),
            }
        }
    })
}

fn number(dtype: &DType, bytes: &[u8]) -> anyhow::Result<String> {
    let mut wide = [0; 8];
    let len = bytes.len().min(8);
    wide[..len].copy_from_slice(&bytes[..len]);
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * len;
    Ok(match (dtype.kind(), dtype.size()) {
        (DTypeKind::Int, 1..=8) => (((bits << unused) as i64) >> unused).to_string(),
        (DTypeKind::UInt, 1..=8) => bits.to_string(),
        (DTypeKind::Float, 4) => float(format!("{:?}", f32::from_bits(bits as u32))),
        (DTypeKind::Float, 8) => float(format!("{:?}", f64::from_bits(bits))),
        _ => bail!("an attribute of type {dtype} cannot be a tag"),
    })
}

fn float(shown: String) -> String {
    match shown.as_str() {
        "NaN" => "nan".to_owned(),
        _ => shown,
    }
}

/// The attribute of a tag; `None` for those that are dimensions.
pub(crate) fn attribute_of(key: &str, json: &Json) -> anyhow::Result<Option<Attribute>> {
    if key == DIM_NAMES || key == DIMS {
        return Ok(None);
    }
    let tag = Tag::from_json(json).with_context(|| format!("tag {key}"))?;
    let value = value_of(&tag).with_context(|| format!("tag {key}"))?;
    Ok(Some(Attribute {
        name: key.to_owned(),
        value,
    }))
}

fn value_of(tag: &Tag) -> anyhow::Result<Value> {
    let text = || std::str::from_utf8(&tag.bytes).context("it is not text");
    match tag.kind {
        TagKind::Auto | TagKind::Text | TagKind::Bytes => Ok(Value::Chars(tag.bytes.clone())),
        TagKind::Int => numbers("i8", &[text()?]),
        TagKind::Float => numbers("f8", &[text()?]),
        TagKind::List => list(text()?),
        TagKind::Exact(Exact { of: Elem::Char, .. }) => Ok(Value::Chars(tag.bytes.clone())),
        TagKind::Exact(Exact {
            of: Elem::String, ..
        }) => Ok(Value::Strings(serde_json::from_str(text()?)?)),
        TagKind::Exact(exact) => {
            let dtype = tag.kind.name().trim_end_matches("[]");
            match exact.list {
                true => numbers(dtype, &members(text()?)),
                false => numbers(dtype, &[text()?]),
            }
        }
    }
}

/// A list that users made: of numbers, or of texts.
fn list(text: &str) -> anyhow::Result<Value> {
    let members: Vec<Json> = serde_json::from_str(text)?;
    if members.iter().all(Json::is_string) {
        let texts = members.iter().filter_map(Json::as_str).map(str::to_owned);
        return Ok(Value::Strings(texts.collect()));
    }
    if !members.iter().all(Json::is_number) {
        bail!("a list of numbers and texts is no attribute of NetCDF");
    }
    let dtype = match members.iter().all(Json::is_i64) {
        true => "i8",
        false => "f8",
    };
    let members: Vec<String> = members.iter().map(Json::to_string).collect();
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    numbers(dtype, &members)
}

fn members(text: &str) -> Vec<&str> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    inner.split(',').filter(|one| !one.is_empty()).collect()
}

fn numbers(dtype: &str, texts: &[&str]) -> anyhow::Result<Value> {
    let dtype: DType = dtype.parse()?;
    let mut bytes = Vec::new();
    for text in texts {
        match (dtype.kind(), dtype.size()) {
            (DTypeKind::Float, 4) => bytes.extend(text.parse::<f32>()?.to_le_bytes()),
            (DTypeKind::Float, _) => bytes.extend(text.parse::<f64>()?.to_le_bytes()),
            (_, size) => {
                let wide = text.parse::<i128>()?.to_le_bytes();
                bytes.extend(&wide[..size as usize]);
            }
        }
    }
    Ok(Value::Numbers { dtype, bytes })
}

/// A variable from the description of an array and its tags; its dimensions have the names of `dim_names`, and are
/// defined nowhere yet.
pub(crate) fn variable_of(
    name: &str,
    info: &Json,
    tags: &Map<String, Json>,
) -> anyhow::Result<Variable> {
    let text = |key: &str| info.get(key).and_then(Json::as_str);
    let dtype: DType = text("dtype").context("it has no dtype")?.parse()?;
    let lengths = |key: &str| {
        info.get(key)
            .and_then(Json::as_array)
            .cloned()
            .unwrap_or_default()
    };
    let (dims, max_dims) = (lengths("dims"), lengths("max_dims"));
    let names = dim_names(tags, dims.len())?;
    let dims = dims
        .iter()
        .enumerate()
        .map(|(axis, len)| {
            let len = len.as_u64().context("it has invalid dims")?;
            let unlimited = max_dims.get(axis).is_some_and(Json::is_null);
            let name = match &names {
                Some(names) => names[axis].clone(),
                None => format!("dim_{axis}_{len}"),
            };
            let dim = Dim {
                name,
                len,
                unlimited,
            };
            Ok(DimRef { dim, up: 0 })
        })
        .collect::<anyhow::Result<Vec<DimRef>>>()?;
    let fill = Fill::parse(text("fill").unwrap_or("0"), &dtype)?;
    let attributes = tags
        .iter()
        .filter_map(|(key, value)| attribute_of(key, value).transpose())
        .collect::<anyhow::Result<_>>()?;
    Ok(Variable {
        name: name.to_owned(),
        dtype,
        dims,
        // Zero, the default of slabfs, has no bytes here: as a `_FillValue` it would make tools mask zeros.
        fill: Some(fill.bytes().to_vec()),
        chunk: None,
        deflate: deflate(text("codec").unwrap_or("none")),
        attributes,
    })
}

fn dim_names(tags: &Map<String, Json>, rank: usize) -> anyhow::Result<Option<Vec<String>>> {
    let Some(json) = tags.get(DIM_NAMES) else {
        return Ok(None);
    };
    let tag = Tag::from_json(json)?;
    let names: Vec<String> = serde_json::from_slice(&tag.bytes)
        .map_err(|_| anyhow!("its tag {DIM_NAMES} is not a list of names"))?;
    if names.len() != rank {
        bail!(
            "its tag {DIM_NAMES} has {} names, and it has {rank} axes; set it with `slabfs tag`",
            names.len()
        );
    }
    Ok(Some(names))
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

/// Gives each group the dimensions that its tag [`DIMS`] lists or its variables use, and each variable the group that
/// defines its dimensions. `defined` are the tags of the containers by path.
pub(crate) fn define_dims(
    group: &mut Group,
    path: &str,
    defined: &HashMap<String, Map<String, Json>>,
    above: &mut Vec<Vec<Dim>>,
) -> anyhow::Result<()> {
    let mut own = Vec::new();
    if let Some(json) = defined.get(path).and_then(|tags| tags.get(DIMS)) {
        let tag = Tag::from_json(json)?;
        let texts: Vec<String> = serde_json::from_slice(&tag.bytes)
            .map_err(|_| anyhow!("/{path}: its tag {DIMS} is not a list"))?;
        for text in texts {
            let (name, len) = text.split_once('=').with_context(|| {
                format!("/{path}: {text:?} in its tag {DIMS} is not NAME=LENGTH")
            })?;
            own.push(Dim {
                name: name.to_owned(),
                len: len.parse().unwrap_or(0),
                unlimited: len == "unlimited",
            });
        }
    }
    above.push(own);
    let level = above.len() - 1;
    for variable in &mut group.variables {
        for axis in &mut variable.dims {
            let found = (0..=level).rev().find_map(|at| {
                above[at]
                    .iter()
                    .position(|dim| dim.name == axis.dim.name)
                    .map(|i| (at, i))
            });
            let Some((at, index)) = found else {
                above[level].push(axis.dim.clone());
                continue;
            };
            let known = &mut above[at][index];
            axis.up = level - at;
            if known.unlimited {
                known.len = known.len.max(axis.dim.len);
            } else if known.len != axis.dim.len {
                bail!(
                    "{}: dimension {} has {} elements, and {} elsewhere; give it another name: slabfs tag {} 'dim_names:string[]=[…]'",
                    joined(path, &variable.name),
                    axis.dim.name,
                    axis.dim.len,
                    known.len,
                    variable.name
                );
            }
        }
    }
    for below in &mut group.groups {
        define_dims(below, &joined(path, &below.name.clone()), defined, above)?;
    }
    group.dims = above.pop().unwrap_or_default();
    Ok(())
}
