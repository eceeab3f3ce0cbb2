//! Elements in memory at strides in bytes along each axis: rows with padding, columns, Fortran arrays.
//!
//! Elements accepted by [`Strided::check`] lie within the buffer and do not overlap. Pure.

use slabfs_model::Coords;
use slabfs_model::batch::{pack, unpack};

use crate::client::error::FsError;

/// The layout of elements: the first is `offset` bytes from the start of the buffer, consecutive ones along an axis are
/// `strides` bytes apart, slowest axis first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::client) struct Strided {
    pub(super) offset: u64,
    pub(super) shape: Coords,
    pub(super) strides: Coords,
    /// Bytes of an element.
    pub(super) elem: u64,
}

/// Pieces of `bytes` bytes at equal steps.
#[derive(Debug, Clone, Copy)]
struct Row {
    at: usize,
    count: usize,
    stride: usize,
    bytes: usize,
}

impl Strided {
    /// Checks that the elements lie in a buffer of `len` bytes and do not overlap.
    ///
    /// # Errors
    /// `Invalid`, naming the bad stride, or the number of bytes that are necessary.
    pub(super) fn check(&self, len: usize) -> Result<(), FsError> {
        let wrong = |text: String| Err(FsError::Invalid(text));
        if self.strides.len() != self.shape.len() {
            return wrong(format!(
                "{} strides are given for {} axes; give one for each",
                self.strides.len(),
                self.shape.len()
            ));
        }
        if self.shape.contains(&0) {
            return Ok(());
        }
        let both = self.strides.iter().zip(&self.shape);
        let mut axes: Vec<(u64, u64)> = both
            .filter(|&(_, &len)| len > 1)
            .map(|(&stride, &len)| (stride, len))
            .collect();
        axes.sort_unstable();
        // The extent in bytes of all axes so far, from the start of the first element to the end of the last.
        let mut extent = Some(self.elem);
        for (stride, len) in axes {
            let taken = extent.unwrap_or(u64::MAX);
            if stride < taken {
                return wrong(format!(
                    "a stride of {stride} bytes makes elements overlap, which take {taken} there; \
                     give greater strides"
                ));
            }
            let rest = stride.checked_mul(len - 1);
            extent = rest.and_then(|rest| rest.checked_add(taken));
            if extent.is_none() {
                return wrong("the strides exceed the address space".into());
            }
        }
        let end = extent.and_then(|extent| extent.checked_add(self.offset));
        match end.is_some_and(|end| end <= len as u64) {
            true => Ok(()),
            false => wrong(format!(
                "the elements take {} bytes from byte {} on with these strides, and the buffer has {len}",
                extent.unwrap_or(u64::MAX),
                self.offset
            )),
        }
    }

    /// Its first byte and its length, if it is contiguous in row-major order.
    pub(super) fn dense(&self) -> Option<(usize, usize)> {
        let (outer, bytes) = self.runs();
        (outer == 0).then_some((self.offset as usize, bytes as usize))
    }

    /// The number of axes that are not packed, and the size of the packed remainder.
    fn runs(&self) -> (usize, u64) {
        let mut bytes = self.elem;
        let mut outer = self.shape.len();
        while outer > 0 && (self.shape[outer - 1] == 1 || self.strides[outer - 1] == bytes) {
            bytes *= self.shape[outer - 1];
            outer -= 1;
        }
        (outer, bytes)
    }

    /// Calls `each` with rows of contiguous pieces, in row-major order.
    fn rows(&self, each: &mut dyn FnMut(Row)) {
        if self.shape.contains(&0) {
            return;
        }
        let (outer, bytes) = self.runs();
        // The last axis that is not packed is a row.
        let (outer, count, stride) = match outer.checked_sub(1) {
            Some(axis) => (axis, self.shape[axis], self.strides[axis]),
            None => (0, 1, 0),
        };
        let mut index = Coords::from_elem(0, outer);
        let mut at = self.offset;
        loop {
            each(Row {
                at: at as usize,
                count: count as usize,
                stride: stride as usize,
                bytes: bytes as usize,
            });
            let mut axis = outer;
            loop {
                if axis == 0 {
                    return;
                }
                axis -= 1;
                index[axis] += 1;
                // An axis of one element may have any stride; its step is undone at once.
                at = at.wrapping_add(self.strides[axis]);
                if index[axis] < self.shape[axis] {
                    break;
                }
                at = at.wrapping_sub(self.strides[axis].wrapping_mul(self.shape[axis]));
                index[axis] = 0;
            }
        }
    }

    /// Calls `each` with the place and length of each run of bytes, in row-major order of the elements.
    pub(super) fn for_each_run(&self, each: &mut dyn FnMut(usize, usize)) {
        self.rows(&mut |row| {
            for piece in 0..row.count {
                each(row.at + piece * row.stride, row.bytes);
            }
        });
    }

    /// Copies the elements out of `buffer`, packed in row-major order.
    pub(super) fn gather(&self, buffer: &[u8], packed: &mut [u8]) {
        let mut done = 0;
        self.rows(&mut |row| {
            let out = &mut packed[done..done + row.count * row.bytes];
            pack(buffer, row.at, row.stride as isize, row.bytes, out);
            done += out.len();
        });
    }

    /// Copies packed elements to their places in `buffer`.
    pub(super) fn scatter(&self, packed: &[u8], buffer: &mut [u8]) {
        let mut done = 0;
        self.rows(&mut |row| {
            let some = &packed[done..done + row.count * row.bytes];
            unpack(some, buffer, row.at, row.stride as isize, row.bytes);
            done += some.len();
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn strided(offset: u64, shape: &[u64], strides: &[u64], elem: u64) -> Strided {
        Strided {
            offset,
            shape: Coords::from_slice(shape),
            strides: Coords::from_slice(strides),
            elem,
        }
    }

    /// The bytes of all elements, in row-major order, by enumeration.
    fn naive(one: &Strided) -> Vec<u64> {
        let mut places = vec![one.offset];
        for (&len, &stride) in one.shape.iter().zip(&one.strides) {
            let along = |&place: &u64| (0..len).map(move |index| place + index * stride);
            places = places.iter().flat_map(along).collect();
        }
        let bytes = |&place: &u64| place..place + one.elem;
        places.iter().flat_map(bytes).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 5000, ..ProptestConfig::default() })]

        #[test]
        fn elements_lie_where_enumeration_finds_them(
            axes in prop::collection::vec((0..4u64, 0..30u64), 0..4),
            elem in 1..5u64,
            offset in 0..20u64,
            len in 0..150usize,
        ) {
            let (shape, strides): (Vec<u64>, Vec<u64>) = axes.into_iter().unzip();
            let one = strided(offset, &shape, &strides, elem);
            let bytes = naive(&one);
            let mut sorted = bytes.clone();
            sorted.sort_unstable();
            let apart = sorted.windows(2).all(|pair| pair[0] < pair[1]);
            let fits = bytes.iter().all(|&byte| byte < len as u64);
            if one.check(len).is_err() {
                // Some that do not overlap are refused, too: one axis has to lie within a step of another.
                prop_assert!(!shape.contains(&0));
                return Ok(());
            }
            prop_assert!(fits && apart);
            let mut runs = Vec::new();
            one.for_each_run(&mut |at, len| runs.extend(at as u64..(at + len) as u64));
            prop_assert_eq!(&runs, &bytes);
            if let Some((at, len)) = one.dense() && !bytes.is_empty() {
                prop_assert_eq!(&bytes, &(at as u64..(at + len) as u64).collect::<Vec<_>>());
            }
            let buffer: Vec<u8> = (0..len).map(|at| (at * 7 + 3) as u8).collect();
            let mut packed = vec![0; bytes.len()];
            one.gather(&buffer, &mut packed);
            let wanted: Vec<u8> = bytes.iter().map(|&at| buffer[at as usize]).collect();
            prop_assert_eq!(&packed, &wanted);
            let mut back = vec![0xee; len];
            one.scatter(&packed, &mut back);
            let mut wanted = vec![0xee; len];
            for at in bytes {
                wanted[at as usize] = buffer[at as usize];
            }
            prop_assert_eq!(back, wanted);
        }
    }

    #[test]
    fn rows_columns_and_paddings_are_taken() {
        for (strides, len) in [([12, 4], 24), ([4, 8], 24), ([16, 4], 28), ([8, 16], 44)] {
            let one = strided(0, &[2, 3], &strides, 4);
            one.check(len).unwrap();
            one.check(len - 1).unwrap_err();
            strided(1, &[2, 3], &strides, 4).check(len).unwrap_err();
        }
        for wrong in [[0, 4], [12, 2], [u64::MAX, 4]] {
            strided(0, &[2, 3], &wrong, 4).check(1 << 20).unwrap_err();
        }
        let one = strided(8, &[1, 2, 1, 2], &[u64::MAX, 12, u64::MAX, 8], 4);
        one.check(36).unwrap();
        let mut packed = [0; 16];
        one.gather(&[5; 36], &mut packed);
        assert_eq!(packed, [5; 16]);
        strided(0, &[2, 3], &[4], 4).check(1 << 20).unwrap_err();
        strided(u64::MAX, &[1], &[4], 4).check(64).unwrap_err();
    }
}
