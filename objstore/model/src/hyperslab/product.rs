//! All combinations of the axes' pieces, the last axis fastest.

use crate::MAX_RANK;
use smallvec::SmallVec;

/// The pieces of one axis; usually one.
pub(super) type Pieces<T> = SmallVec<[T; 3]>;

/// Calls `f` with one piece of each axis, for each combination; never if an axis has no piece.
pub(super) fn for_each<T>(axes: &[Pieces<T>], mut f: impl FnMut(&mut dyn Iterator<Item = &T>)) {
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
