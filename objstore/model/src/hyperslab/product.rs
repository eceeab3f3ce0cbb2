//! All combinations of the axes' pieces, the last axis fastest.

use crate::MAX_RANK;
use smallvec::SmallVec;
use std::ops::Deref;

/// The pieces of one axis; usually one.
pub(crate) type Pieces<T> = SmallVec<[T; 3]>;

/// Calls `f` with one piece of each axis, for each combination; never if an axis has no piece.
pub(crate) fn for_each_choice<'a, T: 'a>(
    axes: &'a [impl Deref<Target = [T]>],
    mut f: impl FnMut(&mut dyn Iterator<Item = &'a T>),
) {
    assert!(axes.len() <= MAX_RANK, "more than {MAX_RANK} axes");
    if axes.iter().any(|pieces| pieces.is_empty()) {
        return;
    }
    let mut at = [0usize; MAX_RANK];
    loop {
        f(&mut axes.iter().zip(&at).map(|(pieces, &index)| &pieces[index]));
        let mut axis = axes.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            at[axis] += 1;
            if at[axis] < axes[axis].len() {
                break;
            }
            at[axis] = 0;
        }
    }
}
