//! An open file of a view (`view::made`): bytes that were made, and elements that are read from objects.
//!
//! Each object is read through a selection of all elements that it had when the file was looked up. So a file does not
//! change its size, an object that grows meanwhile is read in its older form, and one that becomes smaller gives an error.
//! Many objects are opened when they are first read. Pages of the file that the kernel has are invalidated like those of any
//! inode that shows an object's elements (`families.rs`).

use std::sync::Arc;

use fuser::Errno;
use parking_lot::Mutex;
use slabfs_mdserver::api::Ino;

use super::errno::{Outcome, refused};
use super::open_file::{Open, OpenFile};
use super::ops::open::file;
use super::shared::Shared;
use crate::client::{FsError, OpenMode};
use crate::view::made::Form;

/// So many objects are opened with the file.
const FEW: usize = 64;
/// Bytes of an array, on average, below which a file is read through pages.
const SMALL: u64 = 1 << 20;

/// An open file that is composed of parts.
pub(super) struct Composed {
    inode: u64,
    /// The process that opened it.
    opener: u32,
    /// Without gaps, from the beginning of the file on.
    parts: Vec<Part>,
    size: u64,
}

struct Part {
    start: u64,
    len: u64,
    what: What,
}

enum What {
    /// So many bytes from this one on.
    Bytes(Arc<Vec<u8>>, usize),
    Zeros,
    Object {
        ino: Ino,
        form: Form,
        open: Mutex<Option<Arc<OpenFile>>>,
    },
}

/// A read that lies in one object: its open file, and the offset in it.
pub(super) type InObject = (Arc<OpenFile>, u64);

impl Composed {
    pub(super) fn new(inode: u64, opener: u32) -> Composed {
        Composed {
            inode,
            opener,
            parts: Vec::new(),
            size: 0,
        }
    }

    /// Adds bytes at the end.
    pub(super) fn with_bytes(self, bytes: Vec<u8>) -> Composed {
        let len = bytes.len();
        self.with_part(&Arc::new(bytes), 0, len)
    }

    /// Adds some of these bytes at the end.
    pub(super) fn with_part(self, bytes: &Arc<Vec<u8>>, from: usize, len: usize) -> Composed {
        self.with(len as u64, What::Bytes(bytes.clone(), from))
    }

    /// Adds zeros at the end.
    pub(super) fn with_zeros(self, len: u64) -> Composed {
        self.with(len, What::Zeros)
    }

    /// Adds the elements of an object at the end.
    pub(super) fn with_object(self, ino: Ino, form: Form) -> Composed {
        let len = form.bytes();
        let open = Mutex::new(None);
        self.with(len, What::Object { ino, form, open })
    }

    fn with(mut self, len: u64, what: What) -> Composed {
        if len > 0 {
            let start = self.size;
            self.parts.push(Part { start, len, what });
            self.size += len;
        }
        self
    }

    /// Opens the objects, if they are few: the file then shares pages with others, and shows objects that are removed.
    pub(super) fn open_all(&self, shared: &Arc<Shared>) -> Outcome<()> {
        let objects = || {
            self.parts.iter().filter_map(|part| match &part.what {
                What::Object { ino, form, open } => Some((*ino, form, open)),
                _ => None,
            })
        };
        if objects().count() <= FEW {
            for (ino, form, open) in objects() {
                self.opened(shared, ino, form, open)?;
            }
        }
        Ok(())
    }

    /// As `fsync` of each object that is open: reads that follow see what others have stored.
    pub(super) fn fsync(&self) -> Result<(), FsError> {
        for part in &self.parts {
            if let What::Object { open, .. } = &part.what {
                let open = open.lock().clone();
                open.map_or(Ok(()), |open| open.fsync())?;
            }
        }
        Ok(())
    }

    /// Bytes of the file.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is read through the kernel's pages: programs read what describes many small arrays in many small pieces,
    /// each of which would be a request. Elements of large arrays are read twice as fast without pages.
    pub(super) fn has_small_arrays(&self) -> bool {
        let objects = self.parts.iter();
        let objects = objects.filter(|part| matches!(part.what, What::Object { .. }));
        let (count, bytes) =
            objects.fold((0, 0), |(count, bytes), part| (count + 1, bytes + part.len));
        count > 1 && bytes / count < SMALL
    }

    /// The bytes of a read, if they were made and lie in one part.
    pub(super) fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let part = self.part(offset)?;
        match &part.what {
            What::Bytes(bytes, from) => {
                let at = from + (offset - part.start) as usize;
                let end = from + part.len as usize;
                (at + len <= end).then(|| &bytes[at..at + len])
            }
            _ => None,
        }
    }

    /// The number of bytes of a read of `len` bytes at `offset`.
    pub(super) fn readable(&self, offset: u64, len: u32) -> usize {
        self.size.saturating_sub(offset).min(len.into()) as usize
    }

    /// The object of a read, if it lies in one.
    pub(super) fn object(
        &self,
        shared: &Arc<Shared>,
        offset: u64,
        len: usize,
    ) -> Outcome<Option<InObject>> {
        let Some(part) = self.part(offset) else {
            return Ok(None);
        };
        let at = offset - part.start;
        if at + len as u64 > part.len {
            return Ok(None);
        }
        Ok(match &part.what {
            What::Bytes(..) | What::Zeros => None,
            What::Object { ino, form, open } => Some((self.opened(shared, *ino, form, open)?, at)),
        })
    }

    /// Whether a read begins in an object that is not open yet.
    pub(super) fn must_open(&self, offset: u64) -> bool {
        self.part(offset).is_some_and(|part| match &part.what {
            What::Bytes(..) | What::Zeros => false,
            What::Object { open, .. } => open.lock().is_none(),
        })
    }

    /// Reads bytes of any parts.
    pub(super) fn read(
        &self,
        shared: &Arc<Shared>,
        by_kernel: bool,
        offset: u64,
        out: &mut [u8],
    ) -> Outcome<()> {
        let mut done = 0;
        while done < out.len() {
            let offset = offset + done as u64;
            let Some(part) = self.part(offset) else {
                return refused(Errno::EIO, "a read beyond the file");
            };
            let at = offset - part.start;
            let len = (part.len - at).min((out.len() - done) as u64) as usize;
            let into = &mut out[done..done + len];
            match &part.what {
                What::Bytes(bytes, from) => {
                    let at = from + at as usize;
                    into.copy_from_slice(&bytes[at..at + len]);
                }
                What::Zeros => into.fill(0),
                What::Object { ino, form, open } => {
                    let open = self.opened(shared, *ino, form, open)?;
                    let mut got = 0;
                    let mut sink = |bytes: &[u8]| {
                        got = bytes.len();
                        into[..got].copy_from_slice(bytes);
                    };
                    let read = match by_kernel {
                        true => {
                            open.note_mapped();
                            open.handle().read_page(at, len, &mut sink)
                        }
                        false => open.handle().read(at, len, &mut sink),
                    };
                    match read {
                        Ok(()) if got == len => {}
                        // The selection is not in it any more.
                        Ok(()) | Err(FsError::Invalid(_)) => {
                            return refused(
                                Errno::EIO,
                                "the object has become smaller since the file was opened",
                            );
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            done += len;
        }
        Ok(())
    }

    fn part(&self, offset: u64) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.start <= offset);
        let part = &self.parts[after.checked_sub(1)?];
        (offset < part.start + part.len).then_some(part)
    }

    fn opened(
        &self,
        shared: &Arc<Shared>,
        ino: Ino,
        form: &Form,
        open: &Mutex<Option<Arc<OpenFile>>>,
    ) -> Outcome<Arc<OpenFile>> {
        if let Some(open) = &*open.lock() {
            return Ok(open.clone());
        }
        let made = Arc::new(elements(shared, (self.inode, self.opener), ino, form)?);
        let mut open = open.lock();
        Ok(open.get_or_insert(made).clone())
    }
}

/// Opens all elements of an object that has, or had, this form.
fn elements(shared: &Arc<Shared>, opener: (u64, u32), ino: Ino, form: &Form) -> Outcome<OpenFile> {
    let start = vec![0; form.dims.len()];
    let opened = selected(shared, opener, ino, (&start, &form.dims))?;
    if opened.handle().size() != form.bytes() {
        return refused(
            Errno::EIO,
            "the object has become smaller since the file was looked up",
        );
    }
    Ok(opened)
}

/// Opens a box of an object for reading.
pub(super) fn selected(
    shared: &Arc<Shared>,
    opener: (u64, u32),
    ino: Ino,
    (start, end): (&[u64], &[u64]),
) -> Outcome<OpenFile> {
    let mode = OpenMode::default();
    let selection =
        match start.is_empty() {
            // One element.
            true => None,
            false => Some(Form::selection(start, end).parse().map_err(
                |error: slabfs_model::SelectionError| FsError::Invalid(error.to_string()),
            )?),
        };
    let handle = shared.client.open(ino, mode, selection.as_ref())?;
    match file(shared, opener, mode, selection, handle) {
        Open::File(file) => Ok(file),
        _ => refused(Errno::EIO, "an object that is no file"),
    }
}
