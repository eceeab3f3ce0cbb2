//! How the elements of a selection lie in a buffer: packed, or at a distance along each axis.

use super::error::Error;

/// Bytes from an element to the next one along each axis of a selection, slowest axis first.
///
/// Packed row-major elements of 4 bytes and shape 2 × 3 have the strides 12, 4; the same in the order of Fortran
/// 4, 8. Elements may not overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strides(Vec<u64>);

impl Strides {
    /// These distances, in bytes.
    pub fn new(bytes: impl Into<Vec<u64>>) -> Strides {
        Strides(bytes.into())
    }

    /// Checks that the elements of a selection of this shape lie in a buffer, each at a place of its own.
    pub(super) fn check(&self, shape: &[u64], elem: u64, buffer: usize) -> Result<(), Error> {
        if self.0.len() != shape.len() {
            return Err(Error::invalid(format!(
                "{} strides are given and the selection has {} axes; give one for each",
                self.0.len(),
                shape.len()
            )));
        }
        if shape.contains(&0) {
            return Ok(());
        }
        let mut axes: Vec<(u64, u64)> = self
            .0
            .iter()
            .zip(shape)
            .filter(|&(_, &len)| len > 1)
            .map(|(&stride, &len)| (stride, len))
            .collect();
        axes.sort_unstable();
        // The bytes that all axes so far take, from the first of the first element to the last of the last.
        let mut extent = elem;
        for (stride, len) in axes {
            if stride < extent {
                return Err(Error::invalid(format!(
                    "a stride of {stride} bytes puts elements over each other, which take {extent} there; \
                     give greater strides"
                )));
            }
            extent = stride
                .checked_mul(len - 1)
                .and_then(|rest| rest.checked_add(extent))
                .ok_or_else(|| Error::invalid("the strides lead beyond all memory"))?;
        }
        if extent > buffer as u64 {
            return Err(Error::invalid(format!(
                "the selection takes {extent} bytes with these strides, the buffer has {buffer}"
            )));
        }
        Ok(())
    }

    /// Calls `each` with the place of each run of elements that are neighbours, in row-major order, and the length
    /// of a run in bytes. What is given has been checked.
    pub(super) fn runs(&self, shape: &[u64], elem: u64, each: &mut dyn FnMut(usize, usize)) {
        if shape.contains(&0) {
            return;
        }
        // Axes at the end whose elements are packed are one run.
        let mut run = elem;
        let mut outer = shape.len();
        while outer > 0 && (shape[outer - 1] == 1 || self.0[outer - 1] == run) {
            run *= shape[outer - 1];
            outer -= 1;
        }
        let mut index = vec![0u64; outer];
        let mut place = 0u64;
        loop {
            each(place as usize, run as usize);
            let mut axis = outer;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                place += self.0[axis];
                if index[axis] < shape[axis] {
                    break;
                }
                place -= self.0[axis] * shape[axis];
                index[axis] = 0;
            }
        }
    }
}

impl<T: AsRef<[u64]>> From<T> for Strides {
    fn from(bytes: T) -> Strides {
        Strides(bytes.as_ref().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The place of each element, in row-major order, by counting.
    fn naive(shape: &[u64], strides: &[u64]) -> Vec<u64> {
        let mut places = vec![0];
        for (&len, &stride) in shape.iter().zip(strides) {
            places = places
                .iter()
                .flat_map(|&place| (0..len).map(move |at| place + at * stride))
                .collect();
        }
        places
    }

    proptest! {
        #[test]
        fn places_are_those_of_counting(
            axes in proptest::collection::vec((0u64..5, 0u64..40), 0..4),
            elem in 1u64..5,
            buffer in 0usize..400,
        ) {
            let (shape, bytes): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
            let strides = Strides::new(bytes.clone());
            let mut taken: Vec<u64> = naive(&shape, &bytes)
                .iter()
                .flat_map(|&place| place..place + elem)
                .collect();
            let fits = taken.iter().all(|&byte| byte < buffer as u64);
            let in_order = taken.clone();
            taken.sort_unstable();
            let apart = taken.windows(2).all(|pair| pair[0] < pair[1]);
            match strides.check(&shape, elem, buffer) {
                Ok(()) => {
                    prop_assert!(fits && apart);
                    let mut got = Vec::new();
                    strides.runs(&shape, elem, &mut |place, len| {
                        got.extend((place as u64)..(place + len) as u64);
                    });
                    prop_assert_eq!(got, in_order);
                }
                // Some that are apart are refused, too: one axis has to lie within a step of another.
                Err(_) => prop_assert!(!shape.contains(&0)),
            }
        }
    }

    #[test]
    fn rows_columns_and_paddings_are_taken() {
        for (strides, buffer) in [([12, 4], 24), ([4, 8], 24), ([16, 4], 28), ([8, 16], 44)] {
            Strides::from(strides).check(&[2, 3], 4, buffer).unwrap();
            assert!(
                Strides::from(strides)
                    .check(&[2, 3], 4, buffer - 1)
                    .is_err()
            );
        }
        for wrong in [[0, 4], [12, 2], [u64::MAX, 4]] {
            assert!(Strides::from(wrong).check(&[2, 3], 4, 1 << 20).is_err());
        }
        assert!(Strides::from([4]).check(&[2, 3], 4, 1 << 20).is_err());
    }
}
