//! A bar on terminals: how much is done, how fast, and the time that is left.

use indicatif::{ProgressBar, ProgressStyle};

/// The bar of one file; it is not shown if the output is no terminal.
pub(crate) fn bar(what: &str, bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let template = "{msg} {wide_bar} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}
