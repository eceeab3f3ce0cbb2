//! The plots of `docs/scale.md`: the time of a step against the number of mounts, a plot for each work.

use std::path::Path;

use anyhow::{Context, anyhow};
use plotters::prelude::*;

use crate::scenario::Work;

/// A work, a number of shards, and the time of a step by mounts.
pub(crate) type Curve = (Work, usize, Vec<(f64, f64)>);

const SIZE: (u32, u32) = (560, 360);

/// Writes `scale-WORK.svg` to a directory.
pub(crate) fn write(dir: &Path, curves: &[Curve]) -> anyhow::Result<()> {
    for (work, name) in [
        (Work::Files, "files"),
        (Work::Shared, "shared"),
        (Work::Read, "read"),
    ] {
        let path = dir.join(format!("scale-{name}.svg"));
        let own: Vec<&Curve> = curves.iter().filter(|curve| curve.0 == work).collect();
        draw(&path, name, &own)
            .map_err(|error| anyhow!("{error}"))
            .with_context(|| format!("drawing {}", path.display()))?;
    }
    Ok(())
}

fn draw(path: &Path, name: &str, curves: &[&Curve]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = curves
        .iter()
        .flat_map(|curve| curve.2.iter().map(|point| point.1))
        .fold(0.1, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(56)
        .build_cartesian_2d((10f64..10_000f64).log_scale(), 0f64..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("mounts")
        .y_desc(format!("seconds of a step ({name})"))
        .draw()?;
    for (number, (_, shards, points)) in curves.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                colour.stroke_width(2),
            ))?
            .label(format!("{shards} shards"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .draw()?;
    root.present()?;
    Ok(())
}
