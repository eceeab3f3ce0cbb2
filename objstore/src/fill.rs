//! Writes the fill value of a chunk as bytes.

use slabfs_model::{Hyperslab, for_each_run};

use crate::name::ChunkForm;

/// Writes the fill over the bytes of a chunk from `offset` on. Elements start where the last coordinate is a multiple
/// of their size.
pub(crate) fn paint(form: &ChunkForm, offset: u64, out: &mut [u8]) {
    let fill = &form.fill;
    let width = form.shape.last().copied().unwrap_or(1).max(1);
    if fill.uniform_byte().is_some() || width.is_multiple_of(fill.bytes().len() as u64) {
        fill.paint(out, offset % width);
        return;
    }
    let mut done = 0;
    while done < out.len() {
        let cell = (offset + done as u64) % width;
        let len = (out.len() - done).min((width - cell) as usize);
        fill.paint(&mut out[done..done + len], cell);
        done += len;
    }
}

/// Writes the fill over the packed cells of a slab.
pub(crate) fn paint_slab(form: &ChunkForm, slab: &Hyperslab, out: &mut [u8]) {
    let mut done = 0;
    for_each_run(&form.shape, slab, &mut |at, len| {
        paint(form, at as u64, &mut out[done..done + len]);
        done += len;
    });
}

#[cfg(test)]
mod tests {
    use slabfs_model::{Codec, Fill};

    use super::*;

    #[test]
    fn rows_of_partial_elements_restart_the_fill() {
        let form = |width| ChunkForm {
            shape: [9, width].into_iter().collect(),
            elem: 3,
            codec: Codec::None,
            fill: Fill::from_bytes(&[1, 2, 3]),
        };
        let mut out = [0; 7];
        paint(&form(6), 5, &mut out);
        assert_eq!(out, [3, 1, 2, 3, 1, 2, 3]);
        paint(&form(4), 3, &mut out);
        assert_eq!(out, [1, 1, 2, 3, 1, 1, 2]);
    }
}
