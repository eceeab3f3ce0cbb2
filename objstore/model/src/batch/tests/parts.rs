//! Tests of the parts of batches in slabs of chunks against a search of every cell, and of the loops that copy.

use super::*;
use crate::{Axis, Hyperslab};

/// An object of `cells`, a slab of it, and the same slab of a chunk of another shape.
#[derive(Debug, Clone)]
struct Spot {
    cells: Vec<u64>,
    want: Hyperslab,
    shape: Vec<u64>,
    slab: Hyperslab,
}

/// Blocks of an axis, and a second axis with as many cells.
fn axis() -> impl Strategy<Value = (u64, Axis, u64, Axis)> {
    let plain = (0u64..4, 1u64..6, 0u64..4, 0u64..4, 0u64..4);
    let span = plain.prop_map(|(start, len, behind, other, more)| {
        let end = start + len + behind;
        (
            end,
            Axis::span(start, len),
            other + len + more,
            Axis::span(other, len),
        )
    });
    let full = (1u64..6).prop_map(|len| (len, Axis::span(0, len), len, Axis::span(0, len)));
    let strided = (0u64..3, 1u64..4, 1u64..4, 1u64..4, any::<bool>()).prop_map(
        |(start, block, count, gap, both)| {
            let axis = Axis {
                start,
                stride: block + gap,
                count,
                block,
            };
            let len = count * block;
            match both {
                true => (axis.end(), axis, axis.end() + 1, axis),
                false => (axis.end() + 1, axis, len + 1, Axis::span(1, len)),
            }
        },
    );
    prop_oneof![span, full, strided]
}

fn spot() -> impl Strategy<Value = Spot> {
    (prop::collection::vec(axis(), 1..4), any::<bool>()).prop_map(|(axes, swapped)| {
        let mut place = Spot {
            cells: axes.iter().map(|axis| axis.0).collect(),
            want: Hyperslab {
                axes: axes.iter().map(|axis| axis.1).collect(),
            },
            shape: axes.iter().map(|axis| axis.2).collect(),
            slab: Hyperslab {
                axes: axes.iter().map(|axis| axis.3).collect(),
            },
        };
        if swapped {
            std::mem::swap(&mut place.cells, &mut place.shape);
            std::mem::swap(&mut place.want, &mut place.slab);
        }
        place
    })
}

impl Spot {
    /// For each byte of the object, its position in the chunk.
    fn map(&self) -> Vec<Option<u64>> {
        let all = |cells: &[u64], slab: &Hyperslab| {
            let mut at = Vec::new();
            crate::for_each_run(cells, slab, &mut |start, len| {
                at.extend(start as u64..(start + len) as u64);
            });
            at
        };
        let mut map = vec![None; self.cells.iter().product::<u64>() as usize];
        let pairs = all(&self.cells, &self.want);
        for (file, chunk) in pairs.into_iter().zip(all(&self.shape, &self.slab)) {
            map[file as usize] = Some(chunk);
        }
        map
    }
}

/// Bytes of parts: position among the packed bytes, in the object, in the buffer, in the chunk.
fn bytes_of_parts(parts: impl Iterator<Item = Part>) -> Vec<[i128; 4]> {
    let mut bytes = Vec::new();
    for part in parts {
        let run = part.run;
        for number in 0..i128::from(run.count) {
            for byte in 0..i128::from(run.bytes) {
                let moved = number * i128::from(run.file_stride) + byte;
                bytes.push([
                    i128::from(run.packed) + number * i128::from(run.bytes) + byte,
                    i128::from(run.file) + moved,
                    i128::from(run.memory) + number * i128::from(run.memory_stride) + byte,
                    i128::from(part.chunk) + moved,
                ]);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn parts_are_the_selected_bytes_in_the_slab(
        batches in batches(),
        place in spot(),
        packed in (0u64..40, 0u64..150),
        most in 1u64..40,
        gap in 0u64..20,
        more in 0u64..50,
    ) {
        let Some(naive) = interpret(&batches, 1) else { return Ok(()); };
        let plan = Plan::new(&batches, 1).unwrap();
        let packed = packed.0..packed.0 + packed.1;
        let map = place.map();
        let rows = Rows::new(&place.cells, &place.want, &place.shape, &place.slab).unwrap();
        let mut wanted = Vec::new();
        for (at, byte) in (0i128..).zip(&naive) {
            let chunk = usize::try_from(byte.0).ok().and_then(|file| *map.get(file)?);
            if let Some(chunk) = chunk && packed.contains(&(at as u64)) {
                wanted.push([at, byte.0, byte.1, chunk.into()]);
            }
        }
        let parts = |by_pieces| Parts::new(&plan, packed.clone(), &rows, by_pieces);
        let cursor = |by_pieces| {
            let mut cursor = Cursor::new(parts(by_pieces));
            let taken = std::iter::from_fn(|| {
                let part = cursor.take(most, most + more, gap)?;
                cursor.put_back(part);
                cursor.take(most, most + more, gap)
            });
            let taken: Vec<Part> = taken.collect();
            for part in &taken {
                let run = part.run;
                let span = part.chunk_span();
                assert!(part.bytes() <= most && span.end - span.start <= most + more);
                let between = run.file_stride.unsigned_abs().saturating_sub(run.bytes);
                assert!(run.count == 1 || between <= gap);
            }
            bytes_of_parts(taken.into_iter())
        };
        prop_assert_eq!(bytes_of_parts(parts(true)), wanted.clone());
        // With pauses nothing is lost, and the walk ends.
        for by_pieces in [false, true] {
            let mut paused = parts(by_pieces);
            let mut taken = Vec::new();
            loop {
                let before = paused.steps();
                paused.pause_after(1 + gap);
                taken.extend(paused.by_ref());
                prop_assert!(paused.steps() - before <= 3 * (1 + gap));
                if !paused.is_paused() {
                    break;
                }
            }
            prop_assert_eq!(bytes_of_parts(taken.into_iter()), bytes_of_parts(parts(by_pieces)));
        }
        prop_assert_eq!(cursor(true), wanted.clone());
        // Row by row: rows in canonical order, and the batch's order within each.
        let mut row_of = Vec::new();
        for number in 0..rows.count() {
            let row = rows.get(number);
            row_of.extend((row.file..row.file + row.len).map(|file| (i128::from(file), number)));
        }
        let row_of: std::collections::HashMap<_, _> = row_of.into_iter().collect();
        wanted.sort_by_key(|byte| row_of[&byte[1]]);
        prop_assert_eq!(bytes_of_parts(parts(false)), wanted.clone());
        prop_assert_eq!(cursor(false), wanted);
        Parts::few_pieces(&plan, &packed, &rows);
    }

    #[test]
    fn rows_are_the_cells_in_order(place in spot(), at in 0u64..200) {
        let rows = Rows::new(&place.cells, &place.want, &place.shape, &place.slab).unwrap();
        let mut cells = vec![None; place.cells.iter().product::<u64>() as usize];
        let mut before = 0;
        for number in 0..rows.count() {
            let row = rows.get(number);
            prop_assert!(row.len > 0 && row.file >= before);
            before = row.file + row.len;
            for byte in 0..row.len {
                cells[(row.file + byte) as usize] = Some(row.chunk + byte);
            }
        }
        prop_assert_eq!(cells, place.map());
        let first = (0..rows.count()).find(|&number| rows.get(number).file + rows.get(number).len > at);
        prop_assert_eq!(rows.first_behind(at), first.unwrap_or(rows.count()));
    }

    #[test]
    fn the_copy_loops_agree_with_naive_ones(
        bytes in prop_oneof![0usize..7, Just(8), Just(16), Just(31), Just(32), Just(64), Just(100)],
        count in 0usize..20,
        stride in prop_oneof![4 => (-150isize..150).prop_map(Some), 1 => Just(None)],
        target in prop_oneof![4 => (-150isize..150).prop_map(Some), 1 => Just(None)],
    ) {
        let bytes = bytes.max(1);
        let target = target.unwrap_or(bytes as isize);
        // None: without gaps.
        let stride = stride.unwrap_or(bytes as isize);
        let from: Vec<u8> = (0..8000u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut packed = vec![0; bytes * count];
        pack(&from, 4000, stride, bytes, &mut packed);
        let mut to = vec![0; from.len()];
        unpack(&packed, &mut to, 4000, stride, bytes);
        let mut expected = vec![0; from.len()];
        for piece in 0..count {
            let at = 4000usize.wrapping_add_signed(stride * piece as isize);
            prop_assert_eq!(&packed[piece * bytes..(piece + 1) * bytes], &from[at..at + bytes]);
            expected[at..at + bytes].copy_from_slice(&from[at..at + bytes]);
        }
        prop_assert_eq!(to, expected);
        let steps = |stride| Steps { at: 4000, stride };
        let mut to = vec![0; from.len()];
        carry(&from, steps(stride), &mut to, steps(target), bytes, count);
        let mut expected = vec![0; from.len()];
        unpack(&packed, &mut expected, 4000, target, bytes);
        prop_assert_eq!(to, expected);
    }
}

#[test]
fn slabs_that_do_not_fit_are_refused() {
    let span = |start, len| Hyperslab {
        axes: [Axis::span(start, len)].into_iter().collect(),
    };
    let rows = |cells: &[u64], want: &Hyperslab, shape: &[u64], slab: &Hyperslab| {
        Rows::new(cells, want, shape, slab).map(|rows| rows.count())
    };
    assert_eq!(rows(&[10], &span(0, 5), &[5], &span(0, 5)), Ok(1));
    assert_eq!(rows(&[10], &span(0, 0), &[5], &span(0, 0)), Ok(0));
    assert_eq!(rows(&[10], &span(0, 5), &[5], &span(0, 4)), Err(Misfit));
    assert_eq!(rows(&[10], &span(8, 5), &[5], &span(0, 5)), Err(Misfit));
    assert_eq!(rows(&[10], &span(0, 5), &[5, 1], &span(0, 5)), Err(Misfit));
    let far = span(u64::MAX - 6, 5);
    assert_eq!(rows(&[u64::MAX], &far, &[5], &span(0, 5)), Err(Misfit));
    let two = Hyperslab {
        axes: [Axis::span(0, 2), Axis::span(0, 2)].into_iter().collect(),
    };
    let huge = [u64::MAX, u64::MAX];
    assert_eq!(rows(&huge, &two, &huge, &two), Err(Misfit));
}
