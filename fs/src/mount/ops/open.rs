//! Open: returns a handle on an object, on a selection, or on the text of a hidden file.
//!
//! `O_TRUNC` comes as a separate setattr, `O_CREAT` as a create. `O_APPEND` on a selection is `EINVAL`: it has a fixed
//! size and cannot be appended to.
//!
//! A selection opened for writing changes size and times of the object without the kernel's knowledge. While it is
//! open the kernel does not cache the attributes of the plain inode (`Shared::shown`); those it has cached already are
//! dropped here, before the open is answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::{Errno, FileHandle, FopenFlags, OpenAccMode, OpenFlags, ReplyOpen};
use slabfs_mdserver::api::op;
use slabfs_model::Selection;

use super::release;
use crate::call;
use crate::client::{FsError, Handle, OpenMode};
use crate::mount::call::Call;
use crate::mount::composed::{Composed, selected};
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::hdf5_files;
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::shared::{Caller, Shared};
use crate::view::hidden::{self, Hidden};
use crate::view::made::{Content, Made, padded};
use crate::view::nodes::Node;

/// Whether `inode` can be opened without a request and without a wait: the files that describe the mount can be read
/// while its metadata service is down.
pub(in crate::mount) fn answers_locally(shared: &Shared, inode: u64) -> bool {
    match shared.nodes.get(inode) {
        Some(Node::Hidden(Hidden::Stats | Hidden::Call)) => true,
        // Without a metadata service the open fails at once.
        Some(Node::Hidden(Hidden::Status)) => shared.client.lapsed(),
        _ => false,
    }
}

/// Opens `inode` and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    flags: OpenFlags,
    reply: ReplyOpen,
) {
    let work = move |shared: &Arc<Shared>| match open(shared, caller, inode, flags) {
        Ok(Open::File(file)) if file.handle().awaits_end() => {
            let waiter = shared.clone();
            shared
                .waits
                .submit(Box::new(move || match file.handle().await_end() {
                    Ok(()) => give(&waiter, Open::File(file), flags, move |number, kernel| {
                        reply.opened(number, kernel)
                    }),
                    Err(error) => reply.error(report("open", inode, &error.into())),
                }));
        }
        Ok(open) => give(shared, open, flags, move |number, kernel| {
            reply.opened(number, kernel)
        }),
        Err(failure) => reply.error(shared.refusal("open", inode, None, &failure)),
    };
    match shared.nodes.get(inode) {
        // It may take long: not on the threads for operations.
        Some(Node::Made(made)) if matches!(made.content, Content::Hdf5(_)) => {
            let worker = shared.clone();
            shared
                .openers
                .submit(caller.uid, Box::new(move || work(&worker)));
        }
        _ => work(shared),
    }
}

/// Adds an open file to the handles, and gives its number to the kernel with `reply`; takes it back if the reply came
/// too late, for which that returns false.
pub(super) fn give(
    shared: &Arc<Shared>,
    open: Open,
    flags: OpenFlags,
    reply: impl FnOnce(FileHandle, FopenFlags) -> bool + Send + 'static,
) {
    let kernel = kernel_flags(shared, &open, flags);
    let stale = stale_attributes(shared, &open);
    let open = Arc::new(open);
    let opened = open.clone();
    shared.settle_retained(&open, move |shared| {
        let number = FileHandle(shared.handles.insert(opened));
        let opener = shared.clone();
        let give = move || {
            if !reply(number, kernel) {
                release::take_back(&opener, number.0);
            }
        };
        match stale {
            None => give(),
            Some(plain) => shared.forget_attributes(plain, give),
        }
    });
}

/// Opens without replying; the caller adds the result to the handles.
pub(super) fn open(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    flags: OpenFlags,
) -> Outcome<Open> {
    let mode = mode(flags);
    match shared.node(inode)? {
        Node::Plain(ino) => {
            let handle = shared.client.open(ino, mode, None)?;
            Ok(file(shared, (inode, caller.pid), mode, None, handle))
        }
        Node::Selection(node) => {
            if mode.append {
                return refused(
                    Errno::EINVAL,
                    "a selection has a fixed size: nothing can be appended to it",
                );
            }
            let selection = node.selection.clone();
            let handle = shared.client.open(node.object, mode, Some(&selection))?;
            Ok(file(
                shared,
                (inode, caller.pid),
                mode,
                Some(selection),
                handle,
            ))
        }
        Node::Hidden(Hidden::Call) => call(shared, caller),
        Node::Hidden(_) if mode.write => refused(Errno::EACCES, "hidden files are read-only"),
        Node::Hidden(what) => Ok(Open::Text(text(shared, what)?)),
        Node::Search(_) => refused(Errno::EISDIR, "this is a directory"),
        Node::Found(_) => refused(Errno::ELOOP, "this is a link"),
        Node::Chunks(_) => refused(Errno::EISDIR, "this is a directory"),
        Node::Made(_) if mode.write => refused(Errno::EACCES, "views are read-only"),
        Node::Made(made) => self::made(shared, caller, inode, &made),
    }
}

/// Opens a file of a view.
fn made(shared: &Arc<Shared>, caller: Caller, inode: u64, made: &Made) -> Outcome<Open> {
    let opener = (inode, caller.pid);
    match &made.content {
        Content::Text(text) => Ok(Open::Text(text.clone())),
        Content::Elements(header, form) => {
            let file = Composed::new(opener.0, opener.1).with_bytes(header.clone());
            let file = file.with_object(made.of, form.clone());
            file.open_all(shared)?;
            Ok(Open::Composed(file))
        }
        Content::Hdf5(file) => {
            let file = hdf5_files::open(shared, &caller.with_groups(), opener, file)?;
            file.open_all(shared)?;
            Ok(Open::Composed(file))
        }
        Content::Chunk(chunk) => {
            let file = selected(shared, opener, made.of, (&chunk.start, &chunk.end()))?;
            let bytes = file.handle().size();
            if chunk.is_complete() && bytes == chunk.bytes() {
                return Ok(Open::File(file));
            }
            let mut data = Vec::new();
            let mut take = |part: &[u8]| data.extend_from_slice(part);
            file.handle().read(0, bytes as usize, &mut take)?;
            let axes = chunk.end().into_iter().zip(&chunk.start);
            let expected = axes.fold(chunk.form.elem, |all, (end, start)| all * (end - start));
            if data.len() as u64 != expected {
                return refused(
                    Errno::EIO,
                    "the object has become smaller since the chunk was looked up",
                );
            }
            Ok(Open::Text(padded(chunk, &data)))
        }
    }
}

/// An open file of the mount over a handle of the client; `opener` is the caller's process.
pub(in crate::mount) fn file(
    shared: &Arc<Shared>,
    (inode, opener): (u64, u32),
    mode: OpenMode,
    selection: Option<Selection>,
    handle: Arc<Handle>,
) -> Open {
    let family = shared.families.join(handle.ino(), inode, mode.write);
    let id = shared.next_open.fetch_add(1, Ordering::Relaxed);
    let mount = Arc::downgrade(shared);
    Open::File(OpenFile::new(
        mount,
        id,
        (inode, opener),
        mode,
        selection,
        handle,
        family,
    ))
}

/// The mode in which the flags of `open(2)` open an object.
pub(super) fn mode(flags: OpenFlags) -> OpenMode {
    let write = flags.acc_mode() != OpenAccMode::O_RDONLY;
    OpenMode {
        write,
        append: write && flags.0 & libc::O_APPEND != 0,
    }
}

/// How the kernel treats the handle. It sends a flush at each `close`, since `close` ends the process's record locks on the
/// file, whichever handle they were taken through; but not where no program locks the file ([`Shared::needs_no_flush`]).
///
/// In mode `strict` pages of a plain inode stay: old ones are dropped by this mount (`retained.rs`). In mode `commit` an open
/// is one of the moments from which others' data is seen.
fn kernel_flags(shared: &Shared, open: &Open, flags: OpenFlags) -> FopenFlags {
    let direct = FopenFlags::FOPEN_DIRECT_IO;
    let file = match open {
        Open::Composed(file) if file.has_small_arrays() => return FopenFlags::FOPEN_NOFLUSH,
        Open::Text(_) | Open::Composed(_) | Open::Call(_) => {
            return direct | FopenFlags::FOPEN_NOFLUSH;
        }
        Open::File(file) => file,
    };
    let parallel = direct | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
    let plain = file.inode == file.object.0;
    let mut kernel = parallel;
    if plain && shared.reads_pages(file, flags) {
        file.set_pages();
        kernel = FopenFlags::empty();
    }
    if plain && shared.client.strict() {
        kernel |= FopenFlags::FOPEN_KEEP_CACHE;
    }
    if shared.needs_no_flush(file) {
        kernel |= FopenFlags::FOPEN_NOFLUSH;
    }
    kernel
}

/// The inode whose attributes the kernel must no longer cache.
fn stale_attributes(shared: &Shared, open: &Open) -> Option<u64> {
    match open {
        Open::File(file) if shared.needs_size(file) => Some(file.object.0),
        Open::File(file) if file.write && file.is_selection() => Some(file.object.0),
        Open::File(_) | Open::Text(_) | Open::Composed(_) | Open::Call(_) => None,
    }
}

/// Each open gets its own call.
fn call(shared: &Arc<Shared>, caller: Caller) -> Outcome<Open> {
    let number = shared.next_open.fetch_add(1, Ordering::Relaxed);
    let place = shared.calls.open(number, caller.uid)?;
    let context = call::Context::new(shared.client.clone(), caller.with_groups());
    Ok(Open::Call(Arc::new(Call::new(context, place))))
}

fn text(shared: &Shared, what: Hidden) -> Outcome<Vec<u8>> {
    let client = &shared.client;
    let value = match what {
        Hidden::Stats => client.stats(),
        Hidden::Status if client.replaced() => {
            let error = FsError::Replaced.to_string();
            let service = (client.metadata_addr(), Some(error.as_str()));
            hidden::status(
                client.names().md().session().0,
                false,
                false,
                service,
                Vec::new(),
                &[],
            )
        }
        Hidden::Status if client.lapsed() => {
            return refused(Errno::EIO, "the metadata service does not answer");
        }
        Hidden::Status => {
            // A service whose journal has failed answers everything else.
            let synced = client.sync_metadata();
            let metadata_error = synced.err().map(|error| error.to_string());
            hidden::status(
                client.names().md().session().0,
                client.alone(),
                client.local(),
                (client.metadata_addr(), metadata_error.as_deref()),
                client.names().md().call(op::Engine {})?,
                &client.servers()?,
            )
        }
        Hidden::Layout(ino) => match serde_json::to_value(client.of(ino).layout(ino)?) {
            Ok(value) => value,
            Err(error) => {
                tracing::error!(%error, "a layout cannot be written as JSON");
                return refused(Errno::EIO, "a layout cannot be written as JSON");
            }
        },
        Hidden::Top
        | Hidden::Find
        | Hidden::LayoutDirectory(_)
        | Hidden::NpyDirectory(_)
        | Hidden::Hdf5Directory(_)
        | Hidden::ZarrDirectory(_)
        | Hidden::ZarrGroup(_)
        | Hidden::ZarrArray(_) => {
            return refused(Errno::EISDIR, "this is a directory");
        }
        Hidden::Call => return refused(Errno::EACCES, "a call is asked before it is read"),
    };
    Ok(hidden::text(&value))
}
