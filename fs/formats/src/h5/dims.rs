//! The dimensions of a file's datasets: what their scales say.

use std::collections::HashMap;
use std::path::Path;

use super::scan::{Found, Set};
use super::{Dialect, bad};
use crate::Result;
use crate::hdf5::Space;
use crate::tree::{Dim, DimRef};

/// The dimensions of a file by the addresses of their scales.
#[derive(Debug, Default)]
pub(super) struct Dims {
    by_address: HashMap<u64, Defined>,
    by_id: HashMap<i64, u64>,
}

#[derive(Debug, Clone)]
struct Defined {
    dim: Dim,
    /// The path of the group that defines it.
    group: String,
    /// Its position among the dimensions of the file.
    order: i64,
}

impl Dims {
    /// The dimensions of all scales of a file that is read as NetCDF-4; of another there are none.
    pub(super) fn of(root: &Found, dialect: Dialect) -> Dims {
        let mut dims = Dims::default();
        if dialect == Dialect::NetCdf {
            dims.define(root);
            dims.extend(root);
        }
        dims
    }

    fn define(&mut self, found: &Found) {
        for set in &found.sets {
            let Some(scale) = &set.scale else { continue };
            let Space::Simple { dims, max_dims } = &set.space else {
                continue;
            };
            // Those without a number follow the others.
            let order = scale
                .id
                .unwrap_or(i64::MAX / 2 + self.by_address.len() as i64);
            if let Some(id) = scale.id {
                self.by_id.insert(id, set.address);
            }
            let dim = Dim {
                name: set.name.clone(),
                len: dims[0],
                unlimited: max_dims[0].is_none(),
            };
            let group = found.path.clone();
            self.by_address
                .insert(set.address, Defined { dim, group, order });
        }
        found.groups.iter().for_each(|group| self.define(group));
    }

    /// An unlimited dimension is as long as the longest dataset along it.
    fn extend(&mut self, found: &Found) {
        for set in &found.sets {
            let scales = set.scales.iter().flatten().zip(set.space.dims());
            for (scales, &len) in scales {
                for scale in scales {
                    if let Some(defined) = self.by_address.get_mut(scale)
                        && defined.dim.unlimited
                    {
                        defined.dim.len = defined.dim.len.max(len);
                    }
                }
            }
        }
        found.groups.iter().for_each(|group| self.extend(group));
    }

    /// The dimensions that a group defines.
    pub(super) fn in_group(&self, path: &str) -> Vec<Dim> {
        let mut own: Vec<&Defined> = self
            .by_address
            .values()
            .filter(|defined| defined.group == path)
            .collect();
        own.sort_by(|one, other| (one.order, &one.dim.name).cmp(&(other.order, &other.dim.name)));
        own.into_iter().map(|defined| defined.dim.clone()).collect()
    }

    /// The dimensions of a dataset of the group with this path; axes without a scale have no name. `coordinates` are the
    /// numbers of the dimensions of a coordinate variable with several axes.
    pub(super) fn of_set(
        &self,
        file: &Path,
        group: &str,
        set: &Set,
        coordinates: Option<&[i64]>,
    ) -> Result<Vec<DimRef>> {
        let lengths = set.space.dims();
        let own = self.by_address.contains_key(&set.address);
        let scales: Vec<Vec<u64>> = match (&set.scales, own, coordinates) {
            (_, true, Some(ids)) if ids.len() == lengths.len() => ids
                .iter()
                .map(|id| self.by_id.get(id).copied().into_iter().collect())
                .collect(),
            (Some(scales), false, _) => scales.clone(),
            // A scale is its own first dimension.
            (_, true, _) => (0..lengths.len())
                .map(|axis| (axis == 0).then_some(set.address).into_iter().collect())
                .collect(),
            (None, false, _) => vec![Vec::new(); lengths.len()],
        };
        let axes = scales.iter().zip(lengths);
        axes.map(|(scales, &len)| self.axis(file, group, set, scales, len))
            .collect()
    }

    fn axis(
        &self,
        file: &Path,
        group: &str,
        set: &Set,
        scales: &[u64],
        len: u64,
    ) -> Result<DimRef> {
        let nameless = Dim {
            name: String::new(),
            len,
            unlimited: false,
        };
        let Some(scale) = scales.first().filter(|_| !self.by_address.is_empty()) else {
            return Ok(DimRef {
                dim: nameless,
                up: 0,
            });
        };
        if scales.len() > 1 {
            return Err(bad(
                file,
                &set.path,
                "has an axis with several dimension scales, which is not supported",
            ));
        }
        let Some(defined) = self.by_address.get(scale) else {
            return Err(bad(
                file,
                &set.path,
                "has a dimension scale that is not in the file",
            ));
        };
        let name = &defined.dim.name;
        let Some(up) = levels(&defined.group, group) else {
            return Err(bad(
                file,
                &set.path,
                format!(
                    "has the dimension {name} of the group /{}, which is not above its own: this is not supported",
                    defined.group
                ),
            ));
        };
        if len > defined.dim.len || (len < defined.dim.len && !defined.dim.unlimited) {
            return Err(bad(
                file,
                &set.path,
                format!(
                    "has {len} elements along the dimension {name}, which has {}",
                    defined.dim.len
                ),
            ));
        }
        Ok(DimRef {
            dim: defined.dim.clone(),
            up,
        })
    }
}

/// How many levels the group `above` is above `path`; `None` if it is not.
fn levels(above: &str, path: &str) -> Option<usize> {
    if above == path {
        return Some(0);
    }
    let rest = match above.is_empty() {
        true => path,
        false => path.strip_prefix(above)?.strip_prefix('/')?,
    };
    Some(rest.split('/').count())
}

#[cfg(test)]
mod tests {
    use super::levels;

    #[test]
    fn groups_are_above_others() {
        assert_eq!(levels("", ""), Some(0));
        assert_eq!(levels("", "a/b"), Some(2));
        assert_eq!(levels("a", "a/b"), Some(1));
        assert_eq!(levels("a", "ab"), None);
        assert_eq!(levels("a/b", "a"), None);
        assert_eq!(levels("b", "a"), None);
    }
}
