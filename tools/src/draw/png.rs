//! PNG files.

use anyhow::Context;

/// Encodes rows of red, green and blue.
pub(super) fn encode(width: u32, height: u32, data: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().context("PNG")?;
    writer.write_image_data(data).context("PNG")?;
    writer.finish().context("PNG")?;
    Ok(out)
}
