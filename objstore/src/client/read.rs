//! Reading pieces, and showing chunks of this process in place.

use std::borrow::Cow;
use std::io::IoSliceMut;

use slabfs_model::{Hyperslab, ServerId};
use smallvec::SmallVec;

use super::{
    Counters, ReadPiece, Servers, Table, Target,
    counters::touched,
    fanout::{
        Asker, Failure, Job, MUCH, Message, Request, Sorter, decode, encode, remote_messages,
        weight,
    },
    same_host::Chunk,
    target,
};
use crate::{
    cut::cut,
    error::{Result, StoreError},
    name::{ChunkForm, ChunkName},
    store::ChunkSource,
    wire::{
        Incoming, MAX_DATA, TRAILER, WireResult,
        messages::{Found, ReadItem, ReadReply, kind},
        read_trailer,
    },
};

impl Servers {
    /// Reads all pieces. A chunk that does not exist is not an error: its piece's `found` is false. On an error
    /// returns the first failed piece and its error; the other pieces may have been read.
    pub fn read(&self, pieces: &mut [ReadPiece<'_>]) -> Result<(), (usize, StoreError)> {
        let mut total = 0u64;
        for (i, piece) in pieces.iter_mut().enumerate() {
            let bytes = piece.out.len() as u64;
            if piece.slab.volume() != bytes {
                let text = format!(
                    "{}: {bytes} bytes for {} cells",
                    piece.name,
                    piece.slab.volume()
                );
                return Err((i, StoreError::Invalid(text)));
            }
            total += bytes;
            piece.found = true;
        }
        let table = self.table();
        let in_order = total <= MUCH || pieces.windows(2).all(|w| w[0].server == w[1].server);
        if !(in_order && self.read_here(&table, pieces)?) {
            let mut jobs = sort(pieces)?;
            self.fan_out(&table, &mut jobs, false)?;
            self.counters.read.answered(remote_messages(&jobs));
            let messages = jobs.iter().flat_map(|job| &job.messages);
            let missing: SmallVec<[usize; 8]> = messages
                .flat_map(|message| &message.parts)
                .filter(|part| !part.found)
                .map(|part| part.piece)
                .collect();
            drop(jobs);
            for piece in missing {
                pieces[piece].found = false;
            }
        }
        for piece in pieces.iter().filter(|piece| piece.found) {
            count(&self.counters, piece.form, piece.out.len() as u64);
        }
        Ok(())
    }

    /// Reads the pieces in order if all servers are in this process, or the files of their chunks are open here. Returns
    /// false if not, or if a file is damaged: then the servers have to be asked.
    fn read_here(&self, table: &Table, pieces: &mut [ReadPiece<'_>]) -> Result<bool, Failure> {
        let is_here = |piece: &ReadPiece<'_>| match table.get(&piece.server) {
            Some(Target::Local(_)) => true,
            Some(Target::Remote(_)) => self.same_host.has(piece.server, piece.name),
            None => false,
        };
        if !pieces.iter().all(is_here) {
            return Ok(false);
        }
        for (i, piece) in pieces.iter_mut().enumerate() {
            let (name, form, slab) = (piece.name, piece.form, piece.slab);
            if let Some(Target::Local(store)) = table.get(&piece.server) {
                let read = read_piece(store.as_ref(), name, form, slab, piece.out);
                piece.found = read.map_err(|e| (i, e))?;
                continue;
            }
            let read = |chunk: &Chunk| chunk.read(form, slab, piece.out);
            if self.same_host.with(piece.server, name, read).is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shows cells of a chunk in place, if its server is in this process or its same-host file is open here, and they
    /// are contiguous; else returns `false` without calling `f`. `f` must not use this object's servers.
    pub fn show(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let table = self.table();
        let shown = match target(&table, server)? {
            Target::Local(store) => store.show(name, form, slab, f)?,
            Target::Remote(_) => {
                let shown = (self.same_host).with(server, name, |chunk| chunk.show(form, slab, f));
                shown.unwrap_or(false)
            }
        };
        if shown {
            count(&self.counters, form, slab.volume());
        }
        Ok(shown)
    }

    /// As [`Servers::show`] for a chunk whose same-host file is open here, without waiting for a server or a disk:
    /// returns false also where that is not possible. `f` must let the kernel copy the bytes and not read them
    /// itself: the file's length was checked within the last second only, and where the file is shorter by now the
    /// kernel returns an error but a read by `f` raises SIGBUS. Where the kernel `keeps` the bytes, as pages, the
    /// length is checked each time.
    pub fn show_at_once(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        keeps: bool,
        f: &mut dyn FnMut(&[u8]),
    ) -> bool {
        let show = |chunk: &Chunk| chunk.show_at_once(form, slab, keeps, f);
        let shown = self.same_host.with(server, name, show).unwrap_or(false);
        if shown {
            count(&self.counters, form, slab.volume());
        }
        shown
    }
}

fn count(counters: &Counters, form: &ChunkForm, sent: u64) {
    counters.read.piece(sent, touched(form, sent));
}

/// Reads a piece; returns whether its chunk exists.
fn read_piece(
    source: &(impl ChunkSource + ?Sized),
    name: &ChunkName,
    form: &ChunkForm,
    slab: &Hyperslab,
    out: &mut [u8],
) -> Result<bool> {
    match source.read(name, form, slab, out) {
        Ok(()) => Ok(true),
        Err(StoreError::Missing(_)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// A piece, or a part of one that is too large for a message.
struct Part<'a> {
    piece: usize,
    name: &'a ChunkName,
    form: &'a ChunkForm,
    slab: Cow<'a, Hyperslab>,
    out: &'a mut [u8],
    found: bool,
}

#[derive(Default)]
struct Read<'a> {
    parts: Vec<Part<'a>>,
}

fn sort<'a>(pieces: &'a mut [ReadPiece<'_>]) -> Result<Vec<Job<Read<'a>>>, Failure> {
    let mut sorter = Sorter::<Read<'a>>::new();
    for (i, piece) in pieces.iter_mut().enumerate() {
        let (server, name, form) = (piece.server, piece.name, piece.form);
        let mut put = |slab: Cow<'a, Hyperslab>, out: &'a mut [u8]| {
            let weight = weight(name, Some(form), Some(&slab));
            let message = sorter.message(server, out.len() as u64, weight, Read::default);
            message.parts.push(Part {
                piece: i,
                name,
                form,
                slab,
                out,
                found: true,
            });
        };
        if piece.out.len() <= MAX_DATA {
            put(Cow::Borrowed(piece.slab), piece.out);
            continue;
        }
        let mut rest = &mut *piece.out;
        for part in cut(piece.slab, MAX_DATA as u64).map_err(|e| (i, e))? {
            let (out, more) = rest.split_at_mut(part.bytes as usize);
            rest = more;
            put(Cow::Owned(part.slab), out);
        }
    }
    Ok(sorter.jobs())
}

impl<'a> Message<'a> for Read<'a> {
    fn first(&self) -> usize {
        self.parts.first().map_or(0, |p| p.piece)
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.out.len() as u64).sum()
    }

    fn request(&self, _asker: Asker) -> WireResult<Request<'a>> {
        let parts = self.parts.iter();
        let items: Vec<_> = parts
            .map(|part| ReadItem {
                name: part.name,
                form: part.form,
                slab: part.slab.as_ref(),
            })
            .collect();
        Ok(Request::bare(kind::READ, encode(&items)?))
    }

    fn take(
        &mut self,
        control: &[u8],
        incoming: &mut Incoming<'_>,
    ) -> WireResult<Result<(), Failure>> {
        let reply: ReadReply = decode(control, incoming)?;
        if let [Found::Failed(e)] = &reply.pieces[..]
            && !reply.status_follows
        {
            // Also the reply to a request that the server could not decode.
            return Ok(Err((self.first(), e.clone())));
        }
        if reply.pieces.len() != self.parts.len() {
            let text = format!(
                "{} answers to {} pieces",
                reply.pieces.len(),
                self.parts.len()
            );
            return Err(incoming.protocol(text));
        }
        let mut failed: Option<Failure> = None;
        let mut outs: SmallVec<[IoSliceMut<'_>; 16]> = SmallVec::new();
        for (part, found) in self.parts.iter_mut().zip(reply.pieces) {
            part.found = found == Found::Yes;
            match found {
                Found::Yes => outs.push(IoSliceMut::new(part.out)),
                Found::No => {}
                Found::Failed(e) => {
                    failed.get_or_insert((part.piece, e));
                }
            }
        }
        incoming.read_vectored(&mut outs)?;
        drop(outs);
        if reply.status_follows {
            let (mut number, mut trailer) = ([0; size_of::<u32>()], [0; TRAILER]);
            let mut outs = [&mut number[..], &mut trailer].map(IoSliceMut::new);
            incoming.read_vectored(&mut outs)?;
            let part = self.parts.get(u32::from_le_bytes(number) as usize);
            match (read_trailer(&trailer), part) {
                (Some(None), _) => {}
                // Also for a chunk deleted meanwhile: a retry gets `Found::No`.
                (Some(Some(e)), Some(part)) => {
                    if failed.as_ref().is_none_or(|(first, _)| part.piece < *first) {
                        failed = Some((part.piece, e));
                    }
                }
                _ => return Err(incoming.protocol("the end of a read cannot be read")),
            }
        }
        Ok(failed.map_or(Ok(()), Err))
    }

    fn chunks(&self) -> Vec<(&'a ChunkName, &'a ChunkForm)> {
        self.parts.iter().map(|p| (p.name, p.form)).collect()
    }

    fn read_from(&mut self, source: &(impl ChunkSource + ?Sized)) -> Result<(), Failure> {
        for part in &mut self.parts {
            part.found = read_piece(source, part.name, part.form, &part.slab, part.out)
                .map_err(|e| (part.piece, e))?;
        }
        Ok(())
    }
}
