//! Maps the cells of a slab to byte ranges of a chunk.

use slabfs_model::{Coords, Hyperslab, for_each_run};

use crate::error::{Result, StoreError};
use crate::name::ChunkForm;

/// A slab that was checked against the shape of its chunk.
#[derive(Debug)]
pub(crate) struct Extent<'a> {
    slab: &'a Hyperslab,
    /// The chunk's shape, with the first axis, which may be unbounded, limited to what the slab needs.
    shape: Coords,
    /// The bytes of the cells.
    pub(crate) volume: u64,
    /// The end of the last cell.
    pub(crate) end: u64,
}

impl<'a> Extent<'a> {
    /// Checks that the slab lies in the shape and within 2^63 bytes.
    pub(crate) fn new(form: &ChunkForm, slab: &'a Hyperslab) -> Result<Self> {
        let invalid = |why: String| {
            StoreError::Invalid(format!(
                "slab {:?} of a chunk of shape {:?}: {why}",
                slab.axes, form.shape
            ))
        };
        slab.validate(&form.shape)
            .map_err(|e| invalid(e.to_string()))?;
        let mut shape = form.shape.clone();
        let Some(bounds) = slab.bounds() else {
            return Ok(Self {
                slab,
                shape,
                volume: 0,
                end: 0,
            });
        };
        if let Some(first) = shape.first_mut() {
            *first = bounds.end(0);
        }
        let mut stride = 1u64;
        let mut last = 0u64;
        for axis in (0..shape.len()).rev() {
            let step = (bounds.end(axis) - 1)
                .checked_mul(stride)
                .and_then(|more| last.checked_add(more));
            last = step
                .filter(|&at| at < i64::MAX as u64 / 2)
                .ok_or_else(|| invalid("it is too large".to_owned()))?;
            if axis > 0 {
                stride = stride
                    .checked_mul(shape[axis])
                    .ok_or_else(|| invalid("the chunk is too large".to_owned()))?;
            }
        }
        let volume = slab.volume();
        Ok(Self {
            slab,
            shape,
            volume,
            end: last + 1,
        })
    }

    /// Checks that there are as many bytes as cells.
    pub(crate) fn check_len(&self, len: u64) -> Result<()> {
        if self.volume == len {
            return Ok(());
        }
        Err(StoreError::Invalid(format!(
            "the slab has {} bytes and the data {len}",
            self.volume
        )))
    }

    /// Calls `f` with the offset in the chunk and the length of each contiguous run, ascending; stops at the first
    /// error.
    pub(crate) fn runs(&self, f: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        if self.volume == 0 {
            return Ok(());
        }
        let mut outcome = Ok(());
        for_each_run(&self.shape, self.slab, &mut |at, len| {
            if outcome.is_ok() {
                outcome = f(at as u64, len as u64);
            }
        });
        outcome
    }

    /// The single run, if the cells are contiguous.
    pub(crate) fn single(&self) -> Option<(u64, u64)> {
        (self.volume > 0 && self.start() + self.volume == self.end)
            .then(|| (self.end - self.volume, self.volume))
    }

    /// The first byte of the first cell.
    pub(crate) fn start(&self) -> u64 {
        if self.volume == 0 {
            return 0;
        }
        let mut stride = 1;
        let mut at = 0;
        for (axis, len) in self.slab.axes.iter().zip(&self.shape).rev() {
            at += axis.start * stride;
            stride = u64::saturating_mul(stride, *len);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::{Codec, Fill, Region};

    use super::*;

    fn form(shape: &[u64]) -> ChunkForm {
        ChunkForm {
            shape: shape.iter().copied().collect(),
            elem: 1,
            codec: Codec::None,
            fill: Fill::zero(),
        }
    }

    fn boxed(offset: &[u64], shape: &[u64]) -> Hyperslab {
        Hyperslab::from_region(&Region {
            offset: offset.iter().copied().collect(),
            shape: shape.iter().copied().collect(),
        })
    }

    #[test]
    fn runs_and_ends() {
        let form = form(&[u64::MAX, 10]);
        let slab = boxed(&[5, 2], &[2, 3]);
        let extent = Extent::new(&form, &slab).unwrap();
        assert_eq!((extent.volume, extent.end, extent.single()), (6, 65, None));
        let mut runs = Vec::new();
        extent
            .runs(&mut |at, len| {
                runs.push((at, len));
                Ok(())
            })
            .unwrap();
        assert_eq!(runs, [(52, 3), (62, 3)]);
        let slab = boxed(&[5, 0], &[7, 10]);
        assert_eq!(Extent::new(&form, &slab).unwrap().single(), Some((50, 70)));
    }

    #[test]
    fn slabs_outside_the_chunk_are_refused() {
        assert!(Extent::new(&form(&[4, 4]), &boxed(&[0, 2], &[1, 3])).is_err());
        assert!(Extent::new(&form(&[4, 4]), &boxed(&[0], &[1])).is_err());
        assert!(Extent::new(&form(&[u64::MAX, 1 << 40]), &boxed(&[1 << 40, 0], &[1, 1])).is_err());
        let empty = form(&[4, 4]);
        let slab = boxed(&[0, 0], &[0, 4]);
        assert_eq!(Extent::new(&empty, &slab).unwrap().volume, 0);
    }
}
