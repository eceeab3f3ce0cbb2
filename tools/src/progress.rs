//! The progress of a long command: how much of how much, the rate and the time left, on a line of the terminal that is
//! removed at the end. Nothing is written where stderr is no terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// The line; removed when this is dropped.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Begins the line of a command that handles `total` bytes.
    pub(crate) fn begin(what: &'static str, total: u64) -> Progress {
        let bar = ProgressBar::new(total);
        let style = ProgressStyle::with_template(
            "{msg} [{bar:24}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
        );
        // A wrong template leaves the crate's own.
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("##."));
        }
        bar.set_message(what);
        Progress(bar)
    }

    /// No line, for output to programs.
    pub(crate) fn none() -> Progress {
        Progress(ProgressBar::hidden())
    }

    /// So many bytes are done; of more than the total, that is the new total.
    pub(crate) fn at(&self, bytes: u64) {
        if self.0.length().is_some_and(|total| bytes > total) {
            self.0.set_length(bytes);
        }
        self.0.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
