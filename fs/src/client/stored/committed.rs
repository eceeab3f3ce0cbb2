//! The committed data of a slab: finds the chunks that hold it and reads their bytes, one message a server. Holes read
//! as the fill value.

use std::cell::Cell;

use slabfs_mdserver::api::{Stored, op};
use slabfs_model::layout::{Grid, GridPart};
use slabfs_model::{Coords, Hyperslab, Region, ServerId, fill_slab, fill_slab_at, scatter};
use slabfs_objstore::client::ReadPiece;
use slabfs_objstore::{ChunkForm, ChunkName, StoreError};

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings::Need;

/// One part of a request in one chunk.
#[derive(Debug)]
pub(in crate::client) struct Piece {
    /// The place of the cells in the request's packed box.
    pub(in crate::client) want: Hyperslab,
    /// The cells of the chunk.
    pub(in crate::client) chunk: Hyperslab,
    /// The chunk is a lattice with gaps: the data under it is not cut out, and the chunk is painted over it.
    pub(in crate::client) over: bool,
    /// The chunk is a lattice, whichever part of it this is: small reads of it are better fetched together.
    pub(in crate::client) lattice: bool,
    pub(in crate::client) server: ServerId,
    pub(in crate::client) name: ChunkName,
    pub(in crate::client) form: ChunkForm,
}

/// The parts of a request in the committed object.
#[derive(Debug, Default)]
pub(in crate::client) struct Committed {
    /// Oldest first.
    pub(in crate::client) pieces: Vec<Piece>,
    /// Packed boxes without stored data.
    pub(in crate::client) holes: Vec<Region>,
}

/// The destinations of the pieces of a plan.
#[derive(Debug)]
pub(in crate::client) struct Laid {
    /// Pieces that are contiguous in the packed bytes: first byte, length, piece; sorted.
    direct: Vec<(usize, usize, usize)>,
    /// Other pieces, read into a buffer of their own.
    detours: Vec<(usize, Vec<u8>)>,
}

thread_local! {
    /// Plans of this thread that had cells which were never written.
    static UNWRITTEN: Cell<u64> = const { Cell::new(0) };
}

/// How many plans of this thread had cells that were never written. A read of a coupled object compares two of these
/// numbers: fill is wrong where it has waited for its cells.
pub(in crate::client) fn unwritten() -> u64 {
    UNWRITTEN.get()
}

impl Client {
    /// Finds the chunks of `slab`.
    ///
    /// # Errors
    /// Fails also if the slab lies in too many parts for one request.
    pub(in crate::client) fn plan(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        plan: &mut Committed,
    ) -> Result<(), FsError> {
        match self.plan_if_few(object, geometry, slab, plan)? {
            true => Ok(()),
            false => Err(too_many()),
        }
    }

    /// As [`Client::plan`]; returns false, with nothing planned, if it takes several requests
    /// ([`Client::read_committed`]).
    pub(in crate::client) fn plan_if_few(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        plan: &mut Committed,
    ) -> Result<bool, FsError> {
        if let Some(grid) = &geometry.grid {
            if has_many_parts(grid, slab) {
                return Ok(false);
            }
            self.plan_grid(object, geometry, grid, slab, plan)?;
            return Ok(true);
        }
        let bounds = slab.bounds();
        // For an empty slab no record is looked up, wherever it is.
        let nothing = Region::all(&[]);
        let need = Need::Within(bounds.as_ref().unwrap_or(&nothing));
        self.with_tiling(object, geometry, need, |tiling| {
            let mut parts = Vec::new();
            let planned = tiling.plan_within(slab, MOST_PARTS, &mut parts, &mut plan.holes);
            if planned.is_err() {
                plan.holes.clear();
                return Ok(false);
            }
            if !plan.holes.is_empty() {
                UNWRITTEN.set(UNWRITTEN.get() + 1);
            }
            for part in parts {
                match &part.record.value {
                    Stored::Fill => push_holes(&part.want, &mut plan.holes),
                    Stored::Dropped => return Err(dropped(&part.record.slab)),
                    Stored::Chunk(stored) => plan.pieces.push(Piece {
                        server: stored.server,
                        name: stored.name(),
                        form: stored.form(&part.record.slab, &geometry.info),
                        over: !part.solid,
                        lattice: !part.record.slab.is_box(),
                        want: part.want,
                        chunk: part.chunk,
                    }),
                }
            }
            Ok(true)
        })?
    }

    fn plan_grid(
        &self,
        object: &Object,
        geometry: &Geometry,
        grid: &Grid,
        slab: &Hyperslab,
        plan: &mut Committed,
    ) -> Result<(), FsError> {
        if geometry.info.stripe.is_empty() {
            // No server has ever been assigned, so no data is stored.
            plan.holes.push(Region::all(&slab.packed_shape()));
            return Ok(());
        }
        for part in grid_parts(grid, slab)? {
            let chunk = self.grid_chunk(object, geometry, grid, part.at)?;
            plan.pieces.push(Piece {
                server: chunk.server,
                name: chunk.name,
                form: chunk.form,
                want: part.want,
                chunk: part.chunk,
                over: false,
                lattice: false,
            });
        }
        Ok(())
    }

    /// Reads the committed data of `slab`, packed, into `out`, in as many requests as necessary.
    pub(in crate::client) fn read_committed(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let mut plan = Committed::default();
        if !self.plan_if_few(object, geometry, slab, &mut plan)? {
            return self.read_halves(object, geometry, slab, out);
        }
        for piece in &plan.pieces {
            self.ensure_known(piece.server)?;
        }
        let mut laid = plan.lay(slab);
        plan.fill_holes(geometry, slab, out);
        let mut requests = Vec::with_capacity(plan.pieces.len());
        plan.requests(&mut laid, out, &mut requests);
        self.servers()
            .read(&mut requests)
            .map_err(|(_, error)| error)?;
        let found: Vec<bool> = requests.iter().map(|request| request.found).collect();
        drop(requests);
        self.settle_read(geometry, &plan, slab, laid, &found, out)
    }

    /// Reads the two halves of a slab that lies in too many parts. Packed, they are consecutive.
    fn read_halves(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
        mut out: &mut [u8],
    ) -> Result<(), FsError> {
        let shape = slab.packed_shape();
        let Some(axis) = shape.iter().position(|&len| len > 1) else {
            return Err(too_many());
        };
        let half = shape[axis] / 2;
        for (from, len) in [(0, half), (half, shape[axis] - half)] {
            let mut region = Region::all(&shape);
            region.offset[axis] = from;
            region.shape[axis] = len;
            for (packed, cells) in slab.parts(&region) {
                let (own, rest) = out.split_at_mut(packed.volume() as usize);
                self.read_committed(object, geometry, &cells, own)?;
                out = rest;
            }
        }
        Ok(())
    }

    /// If the object's stripe has changed, a grid chunk that is missing on a draining server may have moved: the
    /// returned error makes the caller refresh the object.
    pub(in crate::client) fn unless_moved(
        &self,
        geometry: &Geometry,
        piece: &Piece,
    ) -> Result<(), FsError> {
        let entry = self.md().call(op::GetAttr {
            ino: geometry.attr.ino,
        })?;
        let same = entry
            .info
            .is_some_and(|info| info.stripe == geometry.info.stripe);
        if same {
            return Ok(());
        }
        Err(StoreError::Missing(piece.name.clone()).into())
    }

    /// Completes the read of a plan: `found` holds, for each request, whether the chunk exists.
    pub(in crate::client) fn settle_read(
        &self,
        geometry: &Geometry,
        plan: &Committed,
        slab: &Hyperslab,
        laid: Laid,
        found: &[bool],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let pieces = &plan.pieces;
        let missing: Vec<usize> = laid
            .order()
            .zip(found)
            .filter(|(_, found)| !**found)
            .map(|(index, _)| index)
            .collect();
        // A grid chunk that was never written reads as fill; a chunk in the tiling must exist.
        if let Some(index) = missing
            .iter()
            .find(|index| matches!(pieces[**index].name, ChunkName::Free(_)))
        {
            return Err(StoreError::Missing(pieces[*index].name.clone()).into());
        }
        if missing.is_empty() && laid.detours.is_empty() {
            return Ok(());
        }
        let draining = self.known.lock().draining.clone();
        if let Some(index) = missing
            .iter()
            .find(|index| draining.contains(&pieces[**index].server))
        {
            self.unless_moved(geometry, &pieces[*index])?;
        }
        let (shape, first) = packed_form(slab);
        for index in &missing {
            paint_fill(out, &shape, &pieces[*index].want, geometry, first);
        }
        for (index, bytes) in laid.detours {
            if !missing.contains(&index) {
                scatter(&bytes, &pieces[index].want, out, &shape);
            }
        }
        Ok(())
    }

    /// Reads cells of one chunk.
    pub(in crate::client) fn read_one(
        &self,
        server: ServerId,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let mut piece = [ReadPiece {
            server,
            name,
            form,
            slab,
            out,
            found: true,
        }];
        self.servers()
            .read(&mut piece)
            .map_err(|(_, error)| error)?;
        if !piece[0].found {
            return Err(StoreError::Missing(name.clone()).into());
        }
        Ok(())
    }
}

/// The maximum number of parts of chunks in a request: it bounds what is planned and sent.
pub(in crate::client) const MOST_PARTS: usize = 1 << 20;

fn dropped(slab: &Hyperslab) -> FsError {
    let bounds = slab.bounds();
    let rows = bounds.map_or((0, 0), |bounds| (bounds.offset[0], bounds.end(0)));
    FsError::Dropped(rows.0, rows.1)
}

pub(in crate::client) fn too_many() -> FsError {
    FsError::Invalid(format!(
        "the request lies in more than {MOST_PARTS} parts of chunks; ask for less at once: smaller selections, \
         or several batches. Where writes over each other made so many, a copy of the object has fewer"
    ))
}

/// The parts of a grid's chunks that together are `slab`.
pub(in crate::client) fn grid_parts(
    grid: &Grid,
    slab: &Hyperslab,
) -> Result<Vec<GridPart>, FsError> {
    let mut parts = Vec::new();
    if has_many_parts(grid, slab) {
        return Err(too_many());
    }
    grid.plan(slab, &mut parts);
    Ok(parts)
}

/// Whether a slab lies in more chunks of a grid than one request may have.
fn has_many_parts(grid: &Grid, slab: &Hyperslab) -> bool {
    let Some(bounds) = slab.bounds() else {
        return false;
    };
    let places = (0..bounds.rank()).map(|axis| {
        let chunk = grid.chunk[axis].max(1);
        (bounds.end(axis) - 1) / chunk - bounds.offset[axis] / chunk + 1
    });
    places.fold(1u64, u64::saturating_mul) > MOST_PARTS as u64
}

impl Committed {
    /// The destinations of the pieces of `slab`: pieces that are contiguous in the packed bytes are read directly,
    /// others through a buffer of their own.
    pub(in crate::client) fn lay(&self, slab: &Hyperslab) -> Laid {
        let shape = slab.packed_shape();
        // Solid parts are disjoint and may be read in any order. With a lattice with gaps among them, parts may overlap
        // and are painted in plan order.
        let disjoint = !self.pieces.iter().any(|piece| piece.over);
        let mut laid = Laid {
            direct: Vec::new(),
            detours: Vec::new(),
        };
        for (index, piece) in self.pieces.iter().enumerate() {
            match dense_range(&shape, &piece.want).filter(|_| disjoint) {
                Some((at, len)) => laid.direct.push((at, len, index)),
                None => {
                    let bytes = vec![0; piece.want.volume() as usize];
                    laid.detours.push((index, bytes));
                }
            }
        }
        laid.direct.sort_unstable();
        laid
    }

    /// The pieces, if they are the packed bytes of `slab` one after the other.
    pub(in crate::client) fn in_order(&self, slab: &Hyperslab) -> Option<Vec<&Piece>> {
        if let [piece] = self.pieces.as_slice() {
            return (piece.want.volume() == slab.volume()).then(|| vec![piece]);
        }
        if self.pieces.iter().any(|piece| piece.over) {
            return None;
        }
        let shape = slab.packed_shape();
        let ranges = self.pieces.iter().map(|piece| {
            let (at, len) = dense_range(&shape, &piece.want)?;
            Some((at, len, piece))
        });
        let mut ranges: Vec<_> = ranges.collect::<Option<_>>()?;
        ranges.sort_unstable_by_key(|(at, ..)| *at);
        let mut end = 0;
        let follow = ranges.iter().all(|(at, len, _)| {
            let follows = *at == end;
            end += len;
            follows
        });
        (follow && end as u64 == slab.volume())
            .then(|| ranges.into_iter().map(|(.., piece)| piece).collect())
    }

    /// Fills the parts without stored data.
    pub(in crate::client) fn fill_holes(
        &self,
        geometry: &Geometry,
        slab: &Hyperslab,
        out: &mut [u8],
    ) {
        if self.holes.is_empty() {
            return;
        }
        let (shape, first) = packed_form(slab);
        for hole in &self.holes {
            paint_fill(out, &shape, &Hyperslab::from_region(hole), geometry, first);
        }
    }

    /// Appends the requests for the packed bytes `out`, in the order of [`Laid::order`].
    pub(in crate::client) fn requests<'a>(
        &'a self,
        laid: &'a mut Laid,
        out: &'a mut [u8],
        requests: &mut Vec<ReadPiece<'a>>,
    ) {
        let mut rest = out;
        let mut consumed = 0;
        for (at, len, index) in &laid.direct {
            let (_, tail) = std::mem::take(&mut rest).split_at_mut(at - consumed);
            let (part, tail) = tail.split_at_mut(*len);
            rest = tail;
            consumed = at + len;
            requests.push(request(&self.pieces[*index], part));
        }
        for (index, bytes) in &mut laid.detours {
            requests.push(request(&self.pieces[*index], bytes));
        }
    }
}

impl Laid {
    /// The pieces, in the order of their requests.
    fn order(&self) -> impl Iterator<Item = usize> {
        let direct = self.direct.iter().map(|(_, _, index)| *index);
        direct.chain(self.detours.iter().map(|(index, _)| *index))
    }
}

/// The packed shape of a slab, and the first cell of its last axis: it is inside an element only if a selection is cut
/// there.
fn packed_form(slab: &Hyperslab) -> (Coords, u64) {
    let first = slab.axes.last().map_or(0, |axis| axis.start);
    (slab.packed_shape(), first)
}

fn request<'a>(piece: &'a Piece, out: &'a mut [u8]) -> ReadPiece<'a> {
    ReadPiece {
        server: piece.server,
        name: &piece.name,
        form: &piece.form,
        slab: &piece.chunk,
        out,
        found: true,
    }
}

/// The first byte and the length of `slab` in a dense buffer of `shape`, if it is contiguous there.
pub(in crate::client) fn dense_range(shape: &[u64], slab: &Hyperslab) -> Option<(usize, usize)> {
    let region = slab.as_region()?;
    let mut at = 0u64;
    let mut full = true;
    for axis in (0..shape.len()).rev() {
        if !full && region.shape[axis] != 1 {
            return None;
        }
        full &= region.shape[axis] == shape[axis];
    }
    for (dim, offset) in shape.iter().zip(&region.offset) {
        at = at * dim + offset;
    }
    Some((at as usize, region.volume() as usize))
}

/// A punched part: all its cells read as fill.
fn push_holes(want: &Hyperslab, holes: &mut Vec<Region>) {
    if let Some(region) = want.as_region() {
        holes.push(region);
    }
}

fn paint_fill(out: &mut [u8], shape: &[u64], slab: &Hyperslab, geometry: &Geometry, first: u64) {
    if first.is_multiple_of(geometry.info.dtype.size().max(1)) {
        fill_slab(out, shape, slab, &geometry.info.fill);
    } else {
        fill_slab_at(out, shape, slab, &geometry.info.fill, first);
    }
}
