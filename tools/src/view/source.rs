//! What is drawn: elements along at most two axes of an array, with names, units and coordinates by the CF conventions
//! (<https://cfconventions.org>): the tags `long_name`, `units`, `_FillValue`, `missing_value`, `scale_factor`,
//! `add_offset`, and an array of one axis in the same directory with the name of an axis.
//!
//! Elements are read with steps, by the view of an open file: data servers send what is drawn and nothing else.

use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value as Json};
use slabfs_model::{Axis as Selected, DType, Hyperslab, Selection, Tag, Value as TagValue};

use super::{element, program, ticks};
use crate::create::DIM_NAMES;
use crate::{onmount, tags};

/// Elements of an array that can be drawn.
pub(super) struct Source {
    object: PathBuf,
    dims: Vec<u64>,
    slab: Hyperslab,
    dtype: DType,
    tags: Map<String, Json>,
    names: Vec<Option<String>>,
    /// Values of elements that have none.
    missing: Vec<f64>,
    /// The axes along which there is more than one element: one or two, or none.
    drawn: Vec<usize>,
    /// What is said of the axes that are not drawn.
    fixed: Vec<String>,
}

/// An axis of what was read.
pub(super) struct Axis {
    /// Its name and units.
    pub(super) title: String,
    /// The values are those of a coordinate, and not indexes.
    pub(super) coordinate: bool,
    /// One for each element that was read; they go only up, or only down.
    pub(super) values: Vec<f64>,
}

/// What was read.
pub(super) struct Sample {
    pub(super) axes: Vec<Axis>,
    /// In the order of the array; NaN where there is no value.
    pub(super) values: Vec<f64>,
}

impl Sample {
    /// Whether it is drawn as a picture, and not as a line.
    pub(super) fn is_picture(&self) -> bool {
        self.axes.len() == 2
    }
}

impl Source {
    /// What is selected, without an axis of one element; of more than two axes the first index of the slower ones.
    pub(super) fn of(path: &Path, selection: Option<&Selection>) -> anyhow::Result<Source> {
        let (object, dims, mut slab) = program::of_selection(path, selection)?;
        let info = onmount::info(&object)?;
        let dtype: DType = info["dtype"].as_str().unwrap_or_default().parse()?;
        element::numbers(&dtype, &[]).with_context(|| format!("cannot draw {}", path.display()))?;
        if slab.is_empty() {
            bail!("{} selects no elements", path.display());
        }
        let tags = tags::of::<&str>(&object, &[])?;
        let names = names(&tags, dims.len());
        let longer: Vec<usize> = (0..dims.len())
            .filter(|&axis| slab.axes[axis].len() > 1)
            .collect();
        let (others, drawn) = longer.split_at(longer.len().saturating_sub(2));
        for &axis in others {
            slab.axes[axis] = Selected::span(slab.axes[axis].cell(0), 1);
        }
        let mut missing = Vec::new();
        for key in ["_FillValue", "missing_value"] {
            missing.extend(numbers_of(&tags, key));
        }
        // As xarray has it: what was never written has no value, if it can be distinguished from zero.
        let fill = info["fill"]
            .as_f64()
            .or_else(|| info["fill"].as_str()?.parse().ok());
        missing.extend(fill.filter(|fill| *fill != 0.0));
        let mut source = Source {
            object,
            dtype,
            tags,
            names,
            missing,
            fixed: Vec::new(),
            drawn: drawn.to_vec(),
            dims,
            slab,
        };
        let fixed = (0..source.dims.len())
            .filter(|axis| !source.drawn.contains(axis) && source.dims[*axis] > 1)
            .map(|axis| source.at(axis));
        source.fixed = fixed.collect();
        Ok(source)
    }

    /// The file that is drawn.
    pub(super) fn object(&self) -> &Path {
        &self.object
    }

    /// The numbers of elements along the axes that are drawn, slowest first.
    pub(super) fn shape(&self) -> Vec<u64> {
        let axes = self.drawn.iter();
        axes.map(|&axis| self.slab.axes[axis].len()).collect()
    }

    /// What it is: its name and what is selected of the axes that are not drawn.
    pub(super) fn title(&self) -> String {
        let name = tags::one_line(&self.object.display().to_string());
        let long =
            text_of(&self.tags, "long_name").or_else(|| text_of(&self.tags, "standard_name"));
        let mut parts = vec![name];
        parts.extend(long);
        let title = parts.join(": ");
        match self.fixed.is_empty() {
            true => title,
            false => format!("{title}, {}", self.fixed.join(", ")),
        }
    }

    /// The units of its values.
    pub(super) fn units(&self) -> Option<String> {
        text_of(&self.tags, "units")
    }

    /// Reads every so many elements along each axis that is drawn.
    pub(super) fn read(&self, steps: &[u64]) -> anyhow::Result<Sample> {
        let mut slab = self.slab.clone();
        for (&axis, &step) in self.drawn.iter().zip(steps) {
            slab.axes[axis] = every(&slab.axes[axis], step);
        }
        let mut values = read(&self.object, &self.dims, &slab, &self.dtype)?;
        let scale = numbers_of(&self.tags, "scale_factor").first().copied();
        let offset = numbers_of(&self.tags, "add_offset").first().copied();
        for value in &mut values {
            *value = match self.missing.contains(value) {
                true => f64::NAN,
                false => *value * scale.unwrap_or(1.0) + offset.unwrap_or(0.0),
            };
        }
        let axes = self.drawn.iter();
        let axes = axes
            .map(|&axis| self.axis(axis, &slab.axes[axis]))
            .collect();
        Ok(Sample { axes, values })
    }

    fn name(&self, axis: usize) -> String {
        match &self.names[axis] {
            Some(name) => tags::one_line(name),
            None => format!("axis {axis}"),
        }
    }

    fn axis(&self, axis: usize, read: &Selected) -> Axis {
        let name = self.name(axis);
        let own = *read;
        if let Some((values, units)) = self.coordinate(axis, own)
            && (values.is_sorted_by(|a, b| a < b) || values.is_sorted_by(|a, b| a > b))
        {
            return Axis {
                title: units.map_or(name.clone(), |units| format!("{name} ({units})")),
                coordinate: true,
                values,
            };
        }
        Axis {
            title: name,
            coordinate: false,
            values: (0..read.len()).map(|i| read.cell(i) as f64).collect(),
        }
    }

    /// `time[3] = 18 hours since …`
    fn at(&self, axis: usize) -> String {
        let slab = self.slab.axes[axis];
        let place = format!("{}[{}]", self.name(axis), slab.cell(0));
        match self.coordinate(axis, slab) {
            Some((values, units)) if values.len() == 1 && values[0].is_finite() => {
                let units = units.map_or_else(String::new, |units| format!(" {units}"));
                format!("{place} = {}{units}", ticks::short(values[0]))
            }
            _ => place,
        }
    }

    /// Values and units of the coordinate of an axis, if there is one of numbers.
    fn coordinate(&self, axis: usize, read_of: Selected) -> Option<(Vec<f64>, Option<String>)> {
        let path = self.object.with_file_name(self.names[axis].as_ref()?);
        if !path.is_file() {
            return None;
        }
        let info = onmount::info(&path).ok()?;
        let dims = [self.dims[axis]];
        if info["dims"] != Json::from(dims.to_vec()) {
            return None;
        }
        let dtype: DType = info["dtype"].as_str()?.parse().ok()?;
        let slab = Hyperslab {
            axes: [read_of].into_iter().collect(),
        };
        let values = read(&path, &dims, &slab, &dtype).ok()?;
        let units = tags::of(&path, &["units"]).ok()?;
        Some((values, text_of(&units, "units")))
    }
}

/// Every `step`-th of the selected elements of an axis.
fn every(axis: &Selected, step: u64) -> Selected {
    let (start, own) = match axis.as_span() {
        Some((start, _)) => (start, 1),
        None => (axis.start, axis.stride),
    };
    Selected::every(start, own.saturating_mul(step), axis.len().div_ceil(step))
}

fn read(object: &Path, dims: &[u64], slab: &Hyperslab, dtype: &DType) -> anyhow::Result<Vec<f64>> {
    let mut how = OpenOptions::new();
    let pattern = program::pattern(dims, slab);
    let mut file = program::viewed(how.read(true), object, &pattern)?;
    let bytes = (slab.volume() * dtype.size()) as usize;
    let mut elements = vec![0; bytes];
    file.read_exact(&mut elements)
        .map_err(|error| onmount::explain(object, error))?;
    element::numbers(dtype, &elements)
}

fn tag(tags: &Map<String, Json>, key: &str) -> Option<Tag> {
    Tag::from_json(tags.get(key)?).ok()
}

fn text_of(tags: &Map<String, Json>, key: &str) -> Option<String> {
    let tag = tag(tags, key)?;
    let text = match tag.values().first()? {
        TagValue::Text(text) => text.trim().to_owned(),
        _ => return None,
    };
    (!text.is_empty()).then(|| tags::one_line(&text))
}

fn numbers_of(tags: &Map<String, Json>, key: &str) -> Vec<f64> {
    let tag = tag(tags, key);
    let values = tag.iter().flat_map(|tag| tag.values());
    values
        .filter_map(|value| match value {
            TagValue::Number(number) => Some(number.as_f64()),
            _ => None,
        })
        .collect()
}

fn names(tags: &Map<String, Json>, rank: usize) -> Vec<Option<String>> {
    let tag = tag(tags, DIM_NAMES);
    let names = tag.and_then(|tag| serde_json::from_slice::<Vec<String>>(&tag.bytes).ok());
    let mut names: Vec<Option<String>> = names
        .unwrap_or_default()
        .into_iter()
        // It is the name of a file.
        .map(|name| {
            Some(name).filter(|name| !name.is_empty() && !name.contains('/') && name != "..")
        })
        .collect();
    names.resize(rank, None);
    names
}
