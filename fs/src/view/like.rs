//! Combines a given spec with the spec of another array.

use slabfs_mdserver::api::SpecChange;
use slabfs_model::{Fill, Layout};

/// The given fields, and for the others those of `other`, as far as they fit. Left out are: limits below the dims or of
/// another rank, the chunk of a grid of another rank, a fill value that the dtype cannot have, a codec together with a
/// grid.
pub fn like(given: SpecChange, other: SpecChange) -> SpecChange {
    let mut taken = other;
    if let Some(dims) = &given.dims {
        let allowed = taken.max_dims.as_ref().is_some_and(|limits| {
            limits.len() == dims.len() && dims.iter().zip(limits).all(|(&n, max)| max.allows(n))
        });
        if !allowed {
            taken.max_dims = None;
        }
        if let Some(Layout::Grid(chunk)) = &taken.layout
            && chunk.len() != dims.len()
        {
            taken.layout = None;
        }
    }
    if let (Some(dtype), Some(fill)) = (&given.dtype, &taken.fill)
        && Fill::parse(fill, dtype).is_err()
    {
        taken.fill = None;
    }
    let grid = |layout: &Layout| *layout != Layout::Aligned;
    if given.layout.as_ref().is_some_and(grid) {
        taken.codec = None;
    } else if given.codec.is_some_and(|codec| !codec.is_none())
        && taken.layout.as_ref().is_some_and(grid)
    {
        taken.layout = None;
    }
    given.or(&taken)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::attributes::{json_of_spec, spec_of_json};
    use super::*;

    fn spec(fields: serde_json::Value) -> SpecChange {
        spec_of_json(fields.as_object().unwrap()).unwrap()
    }

    #[test]
    fn fields_that_do_not_fit_are_left_out() {
        let array = json!({"dtype": "f4", "dims": "16,16", "max_dims": "unlimited,16", "fill": "nan", "codec": "lz4"});
        let grid =
            json!({"dtype": "f4", "dims": "16,16", "max_dims": "16,16", "layout": "grid:8,8"});
        for (given, other, taken) in [
            (json!({}), &array, array.clone()),
            (
                json!({"dims": "4"}),
                &array,
                json!({"dtype": "f4", "dims": "4", "fill": "nan", "codec": "lz4"}),
            ),
            (
                json!({"dims": "99,16"}),
                &array,
                json!({"dtype": "f4", "dims": "99,16", "max_dims": "unlimited,16", "fill": "nan", "codec": "lz4"}),
            ),
            (
                json!({"dtype": "i4"}),
                &array,
                json!({"dtype": "i4", "dims": "16,16", "max_dims": "unlimited,16", "codec": "lz4"}),
            ),
            (
                json!({"layout": "canonical", "fill": "1"}),
                &array,
                json!({"dtype": "f4", "dims": "16,16", "max_dims": "unlimited,16", "fill": "1", "layout": "canonical"}),
            ),
            (
                json!({"dims": "4"}),
                &grid,
                json!({"dtype": "f4", "dims": "4"}),
            ),
            (
                json!({"codec": "zstd:3"}),
                &grid,
                json!({"dtype": "f4", "dims": "16,16", "max_dims": "16,16", "codec": "zstd:3"}),
            ),
        ] {
            let got = like(spec(given.clone()), spec(other.clone()));
            assert_eq!(got, spec(taken), "{given}: {:?}", json_of_spec(&got));
        }
    }
}
