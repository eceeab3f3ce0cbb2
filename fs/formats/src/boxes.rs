//! How the data of a variable is divided for reading and writing: boxes of bounded size.
//!
//! A [`Block`] is a start and a count for each axis. [`Boxes`] iterates over the boxes of a shape in row-major order,
//! whatever the shape is: it never makes a list of them. Boxes that follow chunks are multiples of these, so that
//! no chunk is decoded twice.

/// A box in an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its first element on each axis.
    pub start: Vec<u64>,
    /// Its length on each axis.
    pub count: Vec<u64>,
}

impl Block {
    /// The elements in it.
    pub fn elements(&self) -> u64 {
        self.count
            .iter()
            .fold(1, |all, &len| all.saturating_mul(len))
    }

    /// The position of its first element in an array of this shape, if all its elements follow each other there.
    pub fn offset_in(&self, shape: &[u64]) -> Option<u64> {
        let first = self.count.iter().position(|&len| len != 1);
        let first = first.unwrap_or(self.count.len());
        let full = self.count.iter().zip(shape).skip(first + 1);
        if !full.into_iter().all(|(count, len)| count == len) {
            return None;
        }
        let index = self.start.iter().zip(shape);
        Some(index.fold(0, |index, (&start, &len)| index * len + start))
    }

    /// The same box in the array with its axes in reverse order.
    pub fn reversed(&self) -> Block {
        let reverse = |list: &[u64]| list.iter().rev().copied().collect();
        Block {
            start: reverse(&self.start),
            count: reverse(&self.count),
        }
    }
}

/// The boxes that cover a shape, in row-major order.
#[derive(Debug, Clone)]
pub struct Boxes {
    shape: Vec<u64>,
    step: Vec<u64>,
    /// The start of the next box; `None` at the end.
    next: Option<Vec<u64>>,
    /// Shape and boxes are of the array with its axes in reverse order.
    reversed: bool,
}

impl Boxes {
    /// Boxes of at most `part` bytes or one element, whose elements follow each other in row-major order.
    pub fn rows(shape: &[u64], elem: u64, part: u64) -> Boxes {
        Boxes::chunks(shape, &vec![1; shape.len()], elem, part)
    }

    /// Boxes of multiples of `chunk`, of at most `part` bytes or one chunk: as many chunks of the last axis as fit, then
    /// of the one before.
    pub fn chunks(shape: &[u64], chunk: &[u64], elem: u64, part: u64) -> Boxes {
        let mut step: Vec<u64> = chunk
            .iter()
            .zip(shape)
            .map(|(&chunk, &len)| chunk.clamp(1, len.max(1)))
            .collect();
        let bytes = |step: &[u64]| {
            step.iter()
                .fold(elem, |all, &len| all.saturating_mul(len.max(1)))
        };
        for axis in (0..shape.len()).rev() {
            let fit = part / bytes(&step).max(1);
            if fit <= 1 {
                break;
            }
            let longest = step[axis].saturating_mul(fit);
            if longest < shape[axis] {
                step[axis] = longest;
                break;
            }
            step[axis] = shape[axis];
        }
        Boxes {
            next: (!shape.contains(&0)).then(|| vec![0; shape.len()]),
            shape: shape.to_vec(),
            step,
            reversed: false,
        }
    }

    /// As [`Boxes::rows`], but for column-major order.
    pub fn columns(shape: &[u64], elem: u64, part: u64) -> Boxes {
        let reversed: Vec<u64> = shape.iter().rev().copied().collect();
        Boxes {
            reversed: true,
            ..Boxes::rows(&reversed, elem, part)
        }
    }

    /// The parts of a block whose elements follow each other in an array of this shape, all of one length, in the order of
    /// the block's own elements.
    pub fn within(block: &Block, shape: &[u64]) -> Runs {
        let mut full = block.count.len();
        while full > 0 && block.count[full - 1] == shape[full - 1] {
            full -= 1;
        }
        // The first axis that is not complete is still in one run.
        let cut = full.saturating_sub(1);
        let mut each = vec![1; block.count.len()];
        each[cut..].copy_from_slice(&block.count[cut..]);
        Runs {
            outer: Boxes::chunks(&block.count[..cut], &vec![1; cut], 1, 1),
            start: block.start.clone(),
            each,
            first: cut == 0,
        }
    }

    /// No boxes.
    pub fn none() -> Boxes {
        Boxes::rows(&[0], 1, 1)
    }
}

/// The parts of a block: [`Boxes::within`].
#[derive(Debug, Clone)]
pub struct Runs {
    outer: Boxes,
    start: Vec<u64>,
    each: Vec<u64>,
    /// There is one part only.
    first: bool,
}

impl Runs {
    /// The elements of each part.
    pub fn elements_each(&self) -> u64 {
        self.each.iter().product()
    }
}

impl Iterator for Runs {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let mut start = self.start.clone();
        if self.first {
            self.first = false;
            self.outer = Boxes::none();
        } else {
            let outer = self.outer.next()?;
            for (at, more) in start.iter_mut().zip(outer.start) {
                *at += more;
            }
        }
        Some(Block {
            start,
            count: self.each.clone(),
        })
    }
}

impl Iterator for Boxes {
    type Item = Block;

    fn next(&mut self) -> Option<Block> {
        let start = self.next.take()?;
        let lens = self.shape.iter().zip(&self.step).zip(&start);
        let count = lens.map(|((len, step), start)| *step.min(&(len - start)));
        let block = Block {
            count: count.collect(),
            start: start.clone(),
        };
        let mut after = start;
        for axis in (0..after.len()).rev() {
            after[axis] += block.count[axis];
            if after[axis] < self.shape[axis] {
                self.next = Some(after);
                break;
            }
            after[axis] = 0;
        }
        Some(match self.reversed {
            true => block.reversed(),
            false => block,
        })
    }
}

/// The shape of chunks of at most `bytes` bytes or one element: the last axes are complete, the first are divided.
pub fn chunk_shape(shape: &[u64], elem: u64, bytes: u64) -> Vec<u64> {
    let mut chunk: Vec<u64> = shape.iter().map(|&len| len.max(1)).collect();
    for axis in 0..chunk.len() {
        let inner = chunk[axis + 1..]
            .iter()
            .fold(elem, |all, &len| all.saturating_mul(len));
        if inner.saturating_mul(chunk[axis]) <= bytes {
            break;
        }
        chunk[axis] = (bytes / inner).max(1);
    }
    chunk
}

/// Transposes elements of `elem` bytes: `from` is in row-major order of the reverse of `shape`, `to` gets them in
/// row-major order of `shape`. Both have the same length.
pub fn transpose(shape: &[u64], elem: usize, from: &[u8], to: &mut [u8]) {
    let rank = shape.len();
    // The distance in `from` between neighbours on each axis: the first axis is the fastest.
    let mut strides = vec![1_u64; rank];
    for axis in 1..rank {
        strides[axis] = strides[axis - 1] * shape[axis - 1];
    }
    // A row of the target at a time: its elements have one distance in `from`.
    let len = shape.last().map_or(1, |&len| len as usize).max(1);
    let step = strides.last().map_or(0, |&stride| stride as usize) * elem;
    let mut at = vec![0_u64; rank];
    let mut source = 0_u64;
    for row in to.chunks_exact_mut(len * elem) {
        let mut begin = source as usize * elem;
        for target in row.chunks_exact_mut(elem) {
            target.copy_from_slice(&from[begin..begin + elem]);
            begin += step;
        }
        for axis in (0..rank.saturating_sub(1)).rev() {
            at[axis] += 1;
            source += strides[axis];
            if at[axis] < shape[axis] {
                break;
            }
            source -= at[axis] * strides[axis];
            at[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The row-major positions of a box's elements.
    fn positions(block: &Block, shape: &[u64]) -> Vec<u64> {
        let mut at = block.start.clone();
        let mut seen = Vec::new();
        for _ in 0..block.elements() {
            seen.push(
                at.iter()
                    .zip(shape)
                    .fold(0, |all, (&at, &len)| all * len + at),
            );
            for axis in (0..shape.len()).rev() {
                at[axis] += 1;
                if at[axis] < block.start[axis] + block.count[axis] {
                    break;
                }
                at[axis] = block.start[axis];
            }
        }
        seen
    }

    #[test]
    fn rows_cover_a_shape_in_order() {
        for (shape, elem, part) in [
            (vec![4, 3, 5], 4, 24),
            (vec![4, 3, 5], 4, 60),
            (vec![4, 3, 5], 4, 1000),
            (vec![4, 3, 5], 4, 1),
            (vec![7], 2, 4),
            (vec![], 8, 1),
            (vec![2, 0, 3], 8, 100),
            (vec![1, 1, 9], 1, 2),
        ] {
            let mut seen = Vec::new();
            for block in Boxes::rows(&shape, elem, part) {
                let elements = block.elements();
                assert!(elements == 1 || elements * elem <= part, "{shape:?} {part}");
                assert_eq!(block.offset_in(&shape), Some(seen.len() as u64));
                seen.extend(positions(&block, &shape));
            }
            let all: u64 = shape.iter().product();
            assert_eq!(seen, (0..all).collect::<Vec<_>>(), "{shape:?} {part}");
        }
    }

    #[test]
    fn chunks_are_never_divided() {
        for (shape, chunk, part) in [
            (vec![10, 10], vec![4, 4], 64),
            (vec![10, 10], vec![4, 4], 500),
            (vec![10, 10], vec![4, 4], 1),
            (vec![5], vec![4096], 8),
            (vec![3, 7, 2], vec![2, 3, 2], 100),
        ] {
            let mut seen = Vec::new();
            for block in Boxes::chunks(&shape, &chunk, 1, part) {
                for axis in 0..shape.len() {
                    let end = block.start[axis] + block.count[axis];
                    assert_eq!(block.start[axis] % chunk[axis], 0);
                    assert!(end % chunk[axis] == 0 || end == shape[axis]);
                }
                seen.extend(positions(&block, &shape));
            }
            seen.sort_unstable();
            let all: u64 = shape.iter().product();
            assert_eq!(seen, (0..all).collect::<Vec<_>>(), "{shape:?} {part}");
        }
        // Nothing is listed: a shape may be larger than memory.
        assert!(
            Boxes::rows(&[1 << 40, 1 << 20], 8, 1 << 20)
                .next()
                .is_some()
        );
    }

    #[test]
    fn blocks_are_divided_into_runs() {
        for (start, count) in [
            (vec![1, 0, 0], vec![2, 3, 4]),
            (vec![1, 1, 0], vec![2, 2, 4]),
            (vec![1, 1, 2], vec![2, 2, 1]),
            (vec![0, 0, 0], vec![4, 3, 4]),
        ] {
            let shape = [4, 3, 4];
            let block = Block { start, count };
            let mut seen = Vec::new();
            let runs = Boxes::within(&block, &shape);
            let each = runs.elements_each();
            for run in runs {
                assert_eq!(run.elements(), each);
                let index = run.offset_in(&shape).expect("one run");
                seen.extend(index..index + each);
            }
            assert_eq!(seen, positions(&block, &shape), "{block:?}");
        }
    }

    #[test]
    fn chunks_have_a_size() {
        assert_eq!(chunk_shape(&[100, 10, 10], 4, 4000), [10, 10, 10]);
        assert_eq!(chunk_shape(&[100, 10, 10], 4, 200), [1, 5, 10]);
        assert_eq!(chunk_shape(&[3, 0], 8, 100), [3, 1]);
        assert_eq!(chunk_shape(&[1 << 40], 8, 1 << 20), [1 << 17]);
        assert_eq!(chunk_shape(&[], 8, 1), [0_u64; 0]);
    }

    #[test]
    fn transposed_twice_is_the_same() {
        let shape = [2, 3, 4];
        let from: Vec<u8> = (0..48).collect();
        let (mut there, mut back) = (vec![0; 48], vec![0; 48]);
        transpose(&shape, 2, &from, &mut there);
        // Element [0, 0, 1] is 6 elements further in column-major order.
        assert_eq!(there[2..4], from[12..14]);
        transpose(&[4, 3, 2], 2, &there, &mut back);
        assert_eq!(back, from);
    }
}
