//! The byte shuffle: the first bytes of all elements, then the second bytes, and so on.
//!
//! Similar numbers differ only in their low bytes, so that long runs of equal bytes come together. A partial last
//! element follows unchanged. (The shuffle filter of HDF5.)

/// Writes the shuffled bytes of `from` to `to`, which is as long.
pub(super) fn shuffle(from: &[u8], elem: usize, to: &mut [u8]) {
    match elem {
        2 => shuffle_of::<2>(from, to),
        4 => shuffle_of::<4>(from, to),
        8 => shuffle_of::<8>(from, to),
        16 => shuffle_of::<16>(from, to),
        _ => {
            let count = from.len() / elem;
            for byte in 0..elem {
                let row = &mut to[byte * count..][..count];
                for (to, from) in row.iter_mut().zip(from[..count * elem].chunks_exact(elem)) {
                    *to = from[byte];
                }
            }
            to[count * elem..].copy_from_slice(&from[count * elem..]);
        }
    }
}

/// Undoes [`shuffle`].
pub(super) fn unshuffle(from: &[u8], elem: usize, to: &mut [u8]) {
    match elem {
        2 => unshuffle_of::<2>(from, to),
        4 => unshuffle_of::<4>(from, to),
        8 => unshuffle_of::<8>(from, to),
        16 => unshuffle_of::<16>(from, to),
        _ => {
            let count = from.len() / elem;
            for byte in 0..elem {
                let row = &from[byte * count..][..count];
                for (from, to) in row.iter().zip(to[..count * elem].chunks_exact_mut(elem)) {
                    to[byte] = *from;
                }
            }
            to[count * elem..].copy_from_slice(&from[count * elem..]);
        }
    }
}

fn shuffle_of<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (elements, rest) = from.as_chunks::<N>();
    let count = elements.len();
    let (planes, tail) = to.split_at_mut(count * N);
    tail.copy_from_slice(rest);
    for byte in 0..N {
        let plane = &mut planes[byte * count..][..count];
        for (to, element) in plane.iter_mut().zip(elements) {
            *to = element[byte];
        }
    }
}

fn unshuffle_of<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (elements, tail) = to.as_chunks_mut::<N>();
    let count = elements.len();
    let (planes, rest) = from.split_at(count * N);
    tail.copy_from_slice(rest);
    for byte in 0..N {
        let plane = &planes[byte * count..][..count];
        for (from, element) in plane.iter().zip(&mut *elements) {
            element[byte] = *from;
        }
    }
}
