//! The rules of a change, evaluated in the command, to explain a refusal of the mount.
//!
//! The rules themselves belong to the metadata service (`SpecChange::resolve`, `ArrayInfo::check_dims`); they
//! are pure, and `user.slabfs.info` has all their input. The mount decides: the result here is an explanation,
//! or an order of steps, never a permission. Pure.

use serde_json::Value;
use slabfs_mdserver::api::{ArrayInfo, Given, SpecChange, SpecError};
use slabfs_model::{Coords, DType, Fill, Layout, MaxDim, Selection, Version, format_max_dims};

/// Which of two steps of `slabfs set` comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The declaration, then the dims: the new dims may depend on the declaration, such as a greater max dim.
    DeclareFirst,
    /// The dims, then the declaration: it may depend on smaller dims, such as a smaller max dim.
    ResizeFirst,
}

/// The properties of a new file.
pub(crate) fn new_file() -> ArrayInfo {
    ArrayInfo {
        dtype: DType::BYTE,
        dims: Coords::from_slice(&[0]),
        max_dims: vec![MaxDim::Unlimited],
        fill: Fill::zero(),
        layout: Layout::Aligned,
        codec: slabfs_model::Codec::None,
        declared: false,
        given: Given::default(),
        holds: false,
        generation: 0,
        placement: slabfs_model::Placement::Dynamic,
        stripe: Vec::new(),
        blocks: None,
        tiling: Version(0),
        chunk_limit: 0,
        couple: slabfs_model::Coupling::Off,
    }
}

/// The object that the JSON of `user.slabfs.info` describes, as far as the rules use it; `None` if a mount of
/// another version omits some of it.
pub(crate) fn present(info: &Value) -> Option<ArrayInfo> {
    let text = |key: &str| info.get(key)?.as_str();
    let list = |key: &str| info.get(key)?.as_array();
    let dtype: DType = text("dtype")?.parse().ok()?;
    let dims: Option<Coords> = list("dims")?.iter().map(Value::as_u64).collect();
    let max_dims: Option<Vec<MaxDim>> = list("max_dims")?
        .iter()
        .map(|max| match max {
            Value::Null => Some(MaxDim::Unlimited),
            max => max.as_u64().map(MaxDim::Fixed),
        })
        .collect();
    let given = list("given")?;
    let given = |name: &str| given.iter().any(|field| field == name);
    Some(ArrayInfo {
        dtype,
        dims: dims?,
        max_dims: max_dims?,
        fill: Fill::parse(text("fill")?, &dtype).ok()?,
        layout: text("layout")?.parse().ok()?,
        codec: text("codec")?.parse().ok()?,
        declared: text("kind")? == "array",
        given: Given {
            dtype: given("dtype"),
            dims: given("dims"),
            max_dims: given("max_dims"),
            layout: given("layout"),
        },
        holds: info.get("holds")?.as_bool()?,
        ..new_file()
    })
}

/// Explains which rule refuses `change` on the object `now`, with advice in terms of flags.
pub(crate) fn refused_change(now: &ArrayInfo, change: &SpecChange) -> Option<String> {
    let error = change.resolve(now).err()?;
    let advice = match &error {
        SpecError::AboveMax { axis, dim, max } if change.dims.is_none() => {
            return Some(format!(
                "axis {axis} has {dim} elements, more than a max dim of {max}; give {dim} or more, or shrink the array as well with --dims"
            ));
        }
        SpecError::AboveMax { .. } => "; give a greater --max-dims",
        SpecError::LayoutRank { .. } => "; give the chunk's length on each axis",
        SpecError::CodecOfGrid { .. } => "; give --layout aligned, or --codec none",
        SpecError::TooLarge => "; give smaller dims",
        SpecError::PartOfElement { .. } => "; give one whose size divides that",
        SpecError::HasDims { .. } if change.dtype.is_some() => ", without --dtype",
        _ => "",
    };
    Some(format!("{error}{advice}"))
}

/// Why `brackets` (`[0:10,3]`) are not a valid selection of the object `now`.
pub(crate) fn refused_selection(now: &ArrayInfo, brackets: &str) -> Option<String> {
    match brackets.parse::<Selection>() {
        Ok(selection) => Some(selection.resolve(&now.dims).err()?.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Why the object `now` cannot be resized to `dims`, with advice.
pub(crate) fn refused_dims(now: &ArrayInfo, dims: &[u64]) -> Option<String> {
    match now.check_dims(dims) {
        Err(SpecError::AboveMax { axis, dim, max }) => {
            let mut wanted = now.max_dims.clone();
            wanted[axis] = MaxDim::Fixed(dim);
            Some(format!(
                "axis {axis} cannot have {dim} elements, its max dim is {max}; raise that in the same command, e.g. --max-dims {}",
                format_max_dims(&wanted)
            ))
        }
        Err(SpecError::Rank { rank, .. }) => Some(format!(
            "the array has {rank} axes and keeps them; give one length for each"
        )),
        Err(other) => Some(other.to_string()),
        // The client library's rule: the rows of such an array are contiguous in one chunk.
        Ok(())
            if now.layout == Layout::Canonical
                && now.holds
                && now.dims.get(1..) != dims.get(1..) =>
        {
            Some(
                "an array of layout canonical with data can change its slowest axis only; layouts aligned and grid can change every axis, and `slabfs set --layout aligned` rewrites it"
                    .to_owned(),
            )
        }
        Ok(()) => None,
    }
}

/// The order of a declaration and a resize in which both are allowed, or why neither order is.
///
/// A declaration that is refused by itself comes first: the mount refuses it, and nothing is changed.
pub(crate) fn order(now: &ArrayInfo, change: &SpecChange, dims: &Coords) -> Result<Order, String> {
    let shrunk = ArrayInfo {
        dims: dims.clone(),
        ..now.clone()
    };
    let resize_first = refused_dims(now, dims).is_none() && change.resolve(&shrunk).is_ok();
    match change.resolve(now) {
        Ok(resolved) => match refused_dims(&resolved.info, dims) {
            Some(_) if resize_first => Ok(Order::ResizeFirst),
            Some(why) => Err(why),
            None => Ok(Order::DeclareFirst),
        },
        Err(_) if resize_first => Ok(Order::ResizeFirst),
        Err(_) => Ok(Order::DeclareFirst),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn array(dims: &[u64], max: Value, layout: &str, holds: bool) -> Value {
        json!({
            "kind": "array", "dtype": "f4", "dims": dims, "max_dims": max, "fill": "0",
            "layout": layout, "codec": "none", "given": ["dtype", "dims"], "holds": holds,
        })
    }

    fn spec(fields: &[(&str, &str)]) -> SpecChange {
        let mut change = SpecChange::default();
        for (key, text) in fields {
            slabfs_fs::view::attributes::put_text(key, text, &mut change).expect("a field");
        }
        change
    }

    fn refused_spec(info: &Value, spec: &SpecChange) -> Option<String> {
        refused_change(&present(info)?, spec)
    }

    #[test]
    fn a_refusal_has_the_text_of_the_rule() {
        let data = array(&[16, 16], json!([null, 16]), "aligned", true);
        for (fields, word) in [
            (&[("layout", "grid:2")][..], "2"),
            (&[("layout", "grid:2,2"), ("codec", "lz4")], "aligned"),
            (&[("max_dims", "8,16")], "give 16 or more"),
            (&[("dims", "8,8"), ("dtype", "f4")], "slabfs set --dims"),
            (&[("dtype", "f8")], "f4"),
        ] {
            let why = refused_spec(&data, &spec(fields)).unwrap_or_default();
            assert!(why.contains(word), "{fields:?}: {why:?}");
        }
        assert_eq!(refused_spec(&data, &spec(&[("fill", "7")])), None);
        assert_eq!(refused_spec(&json!({}), &spec(&[("dtype", "f8")])), None);
    }

    #[test]
    fn refused_dims_come_with_advice() {
        let now = present(&array(&[16, 16], json!([16, null]), "aligned", true)).expect("info");
        let why = |dims: &[u64]| refused_dims(&now, dims).unwrap_or_default();
        assert!(
            why(&[32, 16]).contains("--max-dims 32,unlimited"),
            "{}",
            why(&[32, 16])
        );
        assert!(why(&[16]).contains("2 axes"));
        assert_eq!(why(&[8, 1000]), "");
        let rows = present(&array(&[4, 4], json!([4, 4]), "canonical", true)).expect("info");
        assert!(refused_dims(&rows, &[4, 2]).is_some_and(|why| why.contains("slowest")));
        assert_eq!(refused_dims(&rows, &[2, 4]), None);
    }

    #[test]
    fn steps_are_put_in_the_order_that_works() {
        let now = present(&array(&[16, 16], json!([16, 16]), "aligned", true)).expect("info");
        let order = |dims: &[u64], fields: &[(&str, &str)]| {
            order(&now, &spec(fields), &Coords::from_slice(dims))
        };
        let grow = [("max_dims", "unlimited,16")];
        assert_eq!(order(&[99, 16], &grow), Ok(Order::DeclareFirst));
        let shrink = [("max_dims", "8,8")];
        assert_eq!(order(&[8, 8], &shrink), Ok(Order::ResizeFirst));
        assert!(order(&[99, 17], &grow).is_err_and(|why| why.contains("axis 1")));
        // Refused by itself: declared first, so that the mount refuses it before anything changes.
        assert_eq!(order(&[8, 8], &[("dtype", "f8")]), Ok(Order::DeclareFirst));
    }

    #[test]
    fn a_selection_out_of_bounds_names_the_axis() {
        let now = present(&array(&[8, 16], json!([8, 16]), "aligned", true)).expect("info");
        let why = |text: &str| refused_selection(&now, text).unwrap_or_default();
        assert!(why("[8,0]").contains("axis 0"), "{}", why("[8,0]"));
        assert!(!why("[0:x]").is_empty());
        assert_eq!(why("[0:9,::2]"), "");
    }

    #[test]
    fn a_new_file_takes_a_complete_declaration() {
        let complete = spec(&[("dims", "8"), ("dtype", "f4"), ("layout", "grid:2")]);
        assert!(complete.resolve(&new_file()).is_ok());
    }
}
