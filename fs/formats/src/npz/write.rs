//! Writes the variables of a tree as members of an archive, one after the other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slabfs_datamodel::npy::header;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::path_of;
use crate::boxes::Block;
use crate::npy::elements::{no_row, offset};
use crate::output::Output;
use crate::sink::Sink;
use crate::tree::{Group, Variable};
use crate::{FormatError, Result};

/// The file of an archive that is being written. After an error nothing is written any more: an archive that is dropped would
/// try to complete the file, and print that it cannot.
struct Target {
    file: io::BufWriter<File>,
    given_up: Arc<AtomicBool>,
    /// Where the next byte is written, and the end of the file: also of one that is given up.
    position: u64,
    end: u64,
}

impl Target {
    fn given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self.given_up() {
            true => bytes.len(),
            false => self.file.write(bytes)?,
        };
        self.position += written as u64;
        self.end = self.end.max(self.position);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.given_up() {
            true => Ok(()),
            false => self.file.flush(),
        }
    }
}

impl Seek for Target {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = match (self.given_up(), to) {
            (false, to) => self.file.seek(to)?,
            (true, SeekFrom::Start(position)) => position,
            (true, SeekFrom::Current(more)) => self.position.saturating_add_signed(more),
            (true, SeekFrom::End(more)) => self.end.saturating_add_signed(more),
        };
        Ok(self.position)
    }
}

/// Gives an archive up when it is dropped.
struct GivesUp(Arc<AtomicBool>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An `.npz` file that is being written.
pub struct Writer {
    /// Dropped before the archive.
    _given_up: GivesUp,
    zip: Option<ZipWriter<Target>>,
    output: Output,
    /// The variable that is being written, and the bytes of it that are written.
    now: Option<(String, u64)>,
    /// The variables that were not begun yet, as paths with their headers, in the order of the tree.
    waiting: VecDeque<(String, Vec<u8>, bool)>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("output", &self.output)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates a file for all variables of `tree`.
    ///
    /// # Errors
    /// The directory cannot be written, or NumPy has no such type.
    pub fn create(path: &Path, tree: &Group) -> Result<Writer> {
        let mut waiting = VecDeque::new();
        let mut wrong = None;
        tree.each(&mut |group, found| {
            for variable in &found.variables {
                let name = path_of(group, variable);
                match header::write(variable) {
                    Ok(header) => waiting.push_back((name, header, variable.deflate.is_some())),
                    Err(why) => wrong = wrong.take().or(Some((name, why))),
                }
            }
        });
        if let Some((name, why)) = wrong {
            return Err(FormatError::unsupported(path, name, why));
        }
        let output = Output::at(path)?;
        let file = File::create_new(output.unfinished())
            .map_err(|error| FormatError::file(path, "creating it", &error))?;
        let given_up = Arc::new(AtomicBool::new(false));
        let target = Target {
            file: io::BufWriter::with_capacity(1 << 18, file),
            given_up: given_up.clone(),
            position: 0,
            end: 0,
        };
        Ok(Writer {
            _given_up: GivesUp(given_up),
            zip: Some(ZipWriter::new(target)),
            output,
            now: None,
            waiting,
        })
    }

    fn zip(&mut self) -> Result<&mut ZipWriter<Target>> {
        let path = self.output.path();
        self.zip
            .as_mut()
            .ok_or_else(|| FormatError::unsupported(path, "it", "is complete already"))
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> FormatError {
        FormatError::file(self.output.path(), "writing it", why)
    }

    /// Begins the next member.
    fn begin(&mut self) -> Result<()> {
        if let Some((name, header, deflate)) = self.waiting.pop_front() {
            let method = match deflate {
                true => CompressionMethod::Deflated,
                false => CompressionMethod::Stored,
            };
            let options = SimpleFileOptions::default()
                .compression_method(method)
                .large_file(true);
            let started = self.zip()?.start_file(format!("{name}.npy"), options);
            started.map_err(|error| self.failed(&error))?;
            let written = self.zip()?.write_all(&header);
            written.map_err(|error| self.failed(&error))?;
            self.now = Some((name, 0));
        }
        Ok(())
    }
}

impl Sink for Writer {
    fn write(
        &mut self,
        group: &str,
        variable: &Variable,
        block: &Block,
        data: &[u8],
    ) -> Result<()> {
        let name = path_of(group, variable);
        while self.now.as_ref().is_none_or(|(now, _)| *now != name) && !self.waiting.is_empty() {
            self.begin()?;
        }
        let position = offset(variable, block);
        match &mut self.now {
            Some((now, written)) if *now == name && position == Some(*written) => {
                *written += data.len() as u64;
            }
            _ => return Err(no_row(self.output.path(), variable)),
        }
        let written = self.zip()?.write_all(data);
        written.map_err(|error| self.failed(&error))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        // Those without elements.
        while !self.waiting.is_empty() {
            self.begin()?;
        }
        let Some(zip) = self.zip.take() else {
            return Err(self.failed(&"it is complete already"));
        };
        let mut target = zip.finish().map_err(|error| self.failed(&error))?;
        target.flush().map_err(|error| self.failed(&error))?;
        drop(target);
        self.output.finish()
    }
}
