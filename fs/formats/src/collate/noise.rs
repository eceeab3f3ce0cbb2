//! Finds what cannot be compressed in shuffled data, so that deflate does not search it in vain.
//!
//! The low bytes of floating-point numbers are noise in most output of models. Shuffled, they are the first planes of a chunk
//! of little-endian numbers, and a compressor needs most of its time to find nothing in them. A plane is taken for noise if its
//! bytes are evenly distributed, neighbours along no axis of the chunk repeat, and a sample of it does not get smaller. The
//! sample costs a fraction of what it saves; a plane that is taken for noise and is none costs at most what it would have
//! been compressed by, so all three have to agree.

use libdeflater::{CompressionLvl, Compressor};

/// Planes with fewer bytes are compressed as they are: to look at them would take as long.
const LEAST: usize = 8 << 10;
/// Bytes of the sample.
const SAMPLE: usize = 4 << 10;
/// Places at which repetitions are looked for, for each axis.
const PLACES: usize = 32;

/// Looks for noise; one a thread.
pub(super) struct Noise {
    compressor: Compressor,
    out: Vec<u8>,
}

impl Noise {
    /// A new one.
    pub(super) fn new() -> Noise {
        // `fastest()` does not compress at all.
        let level = CompressionLvl::new(1).unwrap_or_default();
        let mut compressor = Compressor::new(level);
        let out = vec![0; compressor.deflate_compress_bound(SAMPLE)];
        Noise { compressor, out }
    }

    /// How many bytes at the beginning of a shuffled chunk of this shape are noise: complete planes of `elem`.
    pub(super) fn prefix(&mut self, shuffled: &[u8], elem: usize, shape: &[u64]) -> usize {
        let plane = shuffled.len() / elem.max(1);
        if plane < LEAST {
            return 0;
        }
        let planes = shuffled.chunks_exact(plane).take(elem);
        plane
            * planes
                .take_while(|plane| self.is_noise(plane, shape))
                .count()
    }

    fn is_noise(&mut self, plane: &[u8], shape: &[u64]) -> bool {
        is_even(plane) && !repeats(plane, shape) && self.stays(plane)
    }

    /// Whether a sample from the middle does not get smaller by one percent.
    fn stays(&mut self, plane: &[u8]) -> bool {
        let start = (plane.len() - SAMPLE) / 2;
        let sample = &plane[start..start + SAMPLE];
        let compressed = self.compressor.deflate_compress(sample, &mut self.out);
        compressed.is_ok_and(|len| len >= SAMPLE - SAMPLE / 100)
    }
}

/// Whether the entropy of single bytes is that of random ones, or nearly.
fn is_even(plane: &[u8]) -> bool {
    let mut counts = [[0_u32; 256]; 4];
    for bytes in plane.as_chunks::<4>().0 {
        for (count, &byte) in counts.iter_mut().zip(bytes) {
            count[usize::from(byte)] += 1;
        }
    }
    let all = (plane.len() / 4 * 4) as f64;
    let sum: f64 = (0..256)
        .map(|byte| {
            counts
                .iter()
                .map(|count| f64::from(count[byte]))
                .sum::<f64>()
        })
        .filter(|&count| count > 0.0)
        .map(|count| count * count.log2())
        .sum();
    let entropy = all.log2() - sum / all;
    // Random bytes have less than 8 bits in a sample of this size (Miller 1955: 255 / (2 n ln 2)).
    entropy > 7.98 - 184.0 / all
}

/// Whether eight bytes at some places are those one step before along an axis.
fn repeats(plane: &[u8], shape: &[u64]) -> bool {
    let mut step = 1_usize;
    for &len in shape.iter().rev() {
        let lag = step;
        step = step.saturating_mul(len as usize);
        if lag + 8 >= plane.len() || len < 2 {
            continue;
        }
        let last = plane.len() - 8 - lag;
        let found = (0..PLACES)
            .map(|at| lag + last * at / PLACES)
            .any(|at| plane[at..at + 8] == plane[at - lag..at - lag + 8]);
        if found {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bytes (xorshift, Marsaglia 2003).
    fn random(len: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .take(len)
        .collect()
    }

    #[test]
    fn noise_is_what_does_not_get_smaller() {
        let mut noise = Noise::new();
        let plane = 40 * 1000;
        let bytes = random(2 * plane);
        let ramp: Vec<u8> = (0..2 * plane).map(|at| at as u8).collect();
        let mut static_levels = bytes[..plane / 2].repeat(2);
        static_levels.extend(&ramp[..plane]);
        let mut half = bytes[..plane].to_vec();
        half.extend(&ramp[..plane]);
        let shape = [2, 20, 1000];
        assert_eq!(noise.prefix(&bytes, 2, &shape), 2 * plane);
        assert_eq!(noise.prefix(&half, 2, &shape), plane);
        assert_eq!(noise.prefix(&ramp, 2, &shape), 0);
        assert_eq!(noise.prefix(&static_levels, 2, &shape), 0);
        assert_eq!(
            noise.prefix(
                &bytes.iter().map(|byte| byte & 0x7f).collect::<Vec<_>>(),
                2,
                &shape
            ),
            0
        );
        assert_eq!(noise.prefix(&bytes[..1000], 2, &[500]), 0);
    }
}
