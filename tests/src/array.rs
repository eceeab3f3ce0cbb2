//! The naive array that mounts are compared with: all elements in one buffer, row-major.
//!
//! Slow and simple on purpose; it shares no code with the tested code.

use std::path::{Path, PathBuf};

use crate::Random;

/// An array in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// Elements an axis.
    pub dims: Vec<u64>,
    /// Bytes of an element.
    pub elem: usize,
    /// Value of unwritten elements.
    pub fill: Vec<u8>,
    /// The elements, row-major.
    pub bytes: Vec<u8>,
}

/// A selection: on each axis the elements `start, start + step, …` below `stop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Select(pub Vec<(u64, u64, u64)>);

impl Select {
    /// A box given by its bounds per axis.
    pub fn boxed(bounds: &[(u64, u64)]) -> Select {
        Select(
            bounds
                .iter()
                .map(|&(start, stop)| (start, stop, 1))
                .collect(),
        )
    }

    /// A random one of an array of these dims; about one in three has steps.
    pub fn random(dims: &[u64], random: &mut Random) -> Select {
        let steps = random.one_in(3);
        let axis = |&dim: &u64| {
            let start = random.range(0, dim);
            let stop = if dim == 0 {
                0
            } else {
                random.range(start + 1, dim + 1)
            };
            (start, stop, if steps { random.range(1, 5) } else { 1 })
        };
        Select(dims.iter().map(axis).collect())
    }

    /// As text: `[0:10,3:9:2]`.
    pub fn text(&self) -> String {
        let axis = |&(start, stop, step): &(u64, u64, u64)| match step {
            1 => format!("{start}:{stop}"),
            _ => format!("{start}:{stop}:{step}"),
        };
        let axes: Vec<String> = self.0.iter().map(axis).collect();
        if axes.is_empty() {
            "[...]".to_owned()
        } else {
            format!("[{}]", axes.join(","))
        }
    }

    /// The path of the selection of an object.
    pub fn of(&self, object: &Path) -> PathBuf {
        let mut path = object.as_os_str().to_owned();
        path.push("@");
        path.push(self.text());
        path.into()
    }

    /// Elements an axis.
    pub fn shape(&self) -> Vec<u64> {
        self.0
            .iter()
            .map(|&(start, stop, step)| stop.saturating_sub(start).div_ceil(step))
            .collect()
    }

    /// Elements in all.
    pub fn count(&self) -> u64 {
        self.shape().iter().product()
    }
}

impl Array {
    /// An array of fill; an empty `fill` stands for zero.
    pub fn new(dims: &[u64], elem: usize, fill: &[u8]) -> Array {
        let fill = if fill.is_empty() {
            vec![0; elem]
        } else {
            fill.to_vec()
        };
        let count: u64 = dims.iter().product();
        let bytes = fill.repeat(count as usize);
        Array {
            dims: dims.to_vec(),
            elem,
            fill,
            bytes,
        }
    }

    /// Bytes of a row of the slowest axis.
    pub fn row(&self) -> usize {
        self.dims.iter().skip(1).product::<u64>() as usize * self.elem
    }

    /// Calls `f` with the byte offset of each selected element, in order.
    fn each(&self, select: &Select, mut f: impl FnMut(usize)) {
        let shape = select.shape();
        let mut at = vec![0; shape.len()];
        for _ in 0..shape.iter().product() {
            let index = at
                .iter()
                .zip(&select.0)
                .zip(&self.dims)
                .fold(0, |index, ((i, axis), dim)| {
                    index * dim + axis.0 + i * axis.2
                });
            f(index as usize * self.elem);
            for axis in (0..shape.len()).rev() {
                at[axis] += 1;
                if at[axis] < shape[axis] {
                    break;
                }
                at[axis] = 0;
            }
        }
    }

    /// The selected elements, packed.
    pub fn get(&self, select: &Select) -> Vec<u8> {
        let mut packed = Vec::with_capacity(select.count() as usize * self.elem);
        self.each(select, |at| {
            packed.extend_from_slice(&self.bytes[at..at + self.elem])
        });
        packed
    }

    /// Writes packed bytes to the selected elements, from byte `from` of the selection on.
    pub fn put(&mut self, select: &Select, from: usize, packed: &[u8]) {
        let mut places = Vec::new();
        self.each(select, |at| places.push(at));
        for (i, &byte) in packed.iter().enumerate() {
            let at = from + i;
            self.bytes[places[at / self.elem] + at % self.elem] = byte;
        }
    }

    /// Writes bytes at a byte offset of the array.
    pub fn put_plain(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Sets other dims: elements inside both stay, new elements are fill.
    pub fn resize(&mut self, dims: &[u64]) {
        let mut new = Array::new(dims, self.elem, &self.fill);
        let common = Select(
            self.dims
                .iter()
                .zip(dims)
                .map(|(&old, &new)| (0, old.min(new), 1))
                .collect(),
        );
        if common.count() > 0 {
            let packed = self.get(&common);
            new.put(&common, 0, &packed);
        }
        *self = new;
    }

    /// Sets all elements to fill.
    pub fn clear(&mut self) {
        *self = Array::new(&self.dims, self.elem, &self.fill);
    }
}

/// Compares bytes and names the first difference.
///
/// # Panics
/// When they differ.
#[track_caller]
pub fn same(what: &str, found: &[u8], wanted: &[u8]) {
    if found == wanted {
        return;
    }
    let at = found
        .iter()
        .zip(wanted)
        .position(|(a, b)| a != b)
        .unwrap_or(found.len().min(wanted.len()));
    let wrong = found.iter().zip(wanted).filter(|(a, b)| a != b).count();
    let part = |bytes: &[u8]| {
        format!(
            "{:02x?}",
            &bytes[at.min(bytes.len())..(at + 16).min(bytes.len())]
        )
    };
    panic!(
        "{what}: {} bytes for {}, {wrong} wrong, the first at {at}: found {}, wanted {}",
        found.len(),
        wanted.len(),
        part(found),
        part(wanted)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_of_a_matrix() {
        let mut array = Array::new(&[3, 4], 1, &[]);
        array.bytes = (0..12).collect();
        let select = Select(vec![(1, 3, 1), (0, 4, 3)]);
        assert_eq!(select.text(), "[1:3,0:4:3]");
        assert_eq!(array.get(&select), [4, 7, 8, 11]);
        array.put(&select, 1, &[77, 88]);
        assert_eq!(array.bytes, [0, 1, 2, 3, 4, 5, 6, 77, 88, 9, 10, 11]);
        array.resize(&[2, 5]);
        assert_eq!(array.bytes, [0, 1, 2, 3, 0, 4, 5, 6, 77, 0]);
    }

    #[test]
    fn scalars_and_nothing() {
        let scalar = Array::new(&[], 2, &[7, 9]);
        assert_eq!(scalar.bytes, [7, 9]);
        assert_eq!(scalar.get(&Select(vec![])), [7, 9]);
        let none = Array::new(&[3, 0], 2, &[]);
        assert!(none.get(&Select(vec![(0, 3, 1), (0, 0, 1)])).is_empty());
    }
}
