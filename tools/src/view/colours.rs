//! Colour maps: 256 colours each, from the smallest value to the largest.
//!
//! `colours.txt` has the tables of Matplotlib, so that a picture has the colours that Matplotlib gives the same values: viridis,
//! inferno (S. van der Walt and N. Smith) and cividis (J. Nuñez and others, doi:10.1371/journal.pone.0199239), which are even to the
//! eye and in the public domain (CC0); coolwarm (K. Moreland, doi:10.1007/978-3-642-10520-3_9) for values around a middle.

use crate::draw::canvas::Rgb;

/// Of what has no value: missing, or not a number.
pub(super) const MISSING: Rgb = [0xc8; 3];

/// A colour map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colours {
    Viridis,
    Cividis,
    Inferno,
    Coolwarm,
    Gray,
}

const TABLES: &str = include_str!("colours.txt");
/// Colours of a line of `colours.txt`.
const LINE: usize = 16;

impl Colours {
    /// Its colours.
    pub(super) fn table(self) -> Vec<Rgb> {
        let name = match self {
            Colours::Viridis => "viridis",
            Colours::Cividis => "cividis",
            Colours::Inferno => "inferno",
            Colours::Coolwarm => "coolwarm",
            Colours::Gray => return (0..=255).map(|level| [level; 3]).collect(),
        };
        let lines = TABLES.lines().skip_while(|line| *line != name).skip(1);
        let hex: String = lines.take(256 / LINE).collect();
        let level = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap_or_default(), 16);
        let colour = |at: usize| [at, at + 2, at + 4].map(|at| level(at).unwrap_or_default());
        (0..256).map(|index| colour(6 * index)).collect()
    }
}

/// The place of a value in a table, as Matplotlib has it.
pub(super) fn index(value: f64, (low, high): (f64, f64)) -> Option<usize> {
    if value.is_nan() {
        return None;
    }
    Some((part(value, (low, high)) * 256.0).clamp(0.0, 255.0) as usize)
}

/// How far a value is from the low end of a range to the high one, 0 to 1; 0 if there is no way.
pub(super) fn part(value: f64, (low, high): (f64, f64)) -> f64 {
    match high > low {
        // The difference of large values may be too large.
        true if (high - low).is_infinite() => (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
        true => (value - low) / (high - low),
        false => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_complete() {
        use clap::ValueEnum;
        for map in Colours::value_variants() {
            assert_eq!(map.table().len(), 256);
        }
        let viridis = Colours::Viridis.table();
        assert_eq!(
            [viridis[0], viridis[128], viridis[255]],
            [[68, 1, 84], [32, 144, 140], [253, 231, 36]]
        );
        assert_eq!(Colours::Coolwarm.table()[128], [221, 220, 219]);
    }

    #[test]
    fn values_outside_have_the_colours_of_the_ends() {
        let place = |value| index(value, (2.0, 4.0));
        assert_eq!(place(2.0), Some(0));
        assert_eq!(place(3.0), Some(128));
        assert_eq!([place(4.0), place(9.0)], [Some(255); 2]);
        assert_eq!([place(-9.0), place(f64::NEG_INFINITY)], [Some(0); 2]);
        assert_eq!(place(f64::NAN), None);
        assert_eq!(index(7.0, (7.0, 7.0)), Some(0));
        assert_eq!(index(0.0, (-1.7e308, 1.7e308)), Some(128));
    }
}
