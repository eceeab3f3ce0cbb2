//! The operations of the metadata service, one declaration each: what it changes, its name, its arguments, its reply.
//!
//! `operation.rs` says what is made of them. Their order is their number on the wire.

use serde::{Deserialize, Serialize};
use slabfs_model::{ChunkId, Coords, Hyperslab, Placement, Region, ServerId, Version};
use slabfs_objstore::server::{ServerOrders, ServerReport};
use std::time::Duration;

use super::arguments::{self, NewObject, RenameFlags, ResizeHow, Rewrite, XattrFlags};
use super::bounded;
use super::couple::{
    CoupledOpen, MAX_COUPLED_OPENS, MAX_MATCH_BOXES, MAX_WATCHED, Matched, Watched, Watching,
};
use super::defaults::{Defaults, DefaultsChange};
use super::find::{Caller, Found};
use super::lock::{
    HeldLocks, LockAsk, LockEpoch, LockList, LockNews, LockReply, LockTicket, LocksReclaimed,
};
use super::operation::{Effect, Operation, operations};
use super::reply::{
    self, Attached, Beat, CommitReply, Created, DirEntry, DumpPage, Entry, Lease, Permitted,
    Relocated, Reply, ReserveReply, Resized, ServerInfo, Spare,
};
use super::right::{
    Looked, RightAsk, RightGive, RightHeld, RightNews, RightReply, RightTicket, RightsBegun,
    RightsEpoch, Unflushed,
};
use super::shard::{Birth, Links, MAX_UNFINISHED, Unlinked};
use super::spec::SpecChange;
use super::tags::{TagChange, TagsPage};
use super::tiling::{Stored, StoredChunk, TilingReply, WantedPart};
use super::types::{Ino, Kind, Time};
use super::{
    MAX_COMMIT_RECORDS, MAX_CREATE, MAX_PATHS, MAX_RELEASE, MAX_REPORTED_SERVERS, MAX_RIGHT_GIVES,
    MAX_RIGHTS_HELD, MdError,
};
use crate::core::{Core, Ctx};
use crate::{
    dump, locks, matcher, namespace, placement, rights, service, sessions, shards, tags, tilings,
};

operations! {
    // Sessions.

    /// Opens a session. Needs no session.
    Asks Attach {
        /// Name of the machine, for people.
        host: String,
        /// Process there, for people.
        pid: u32,
        /// Ops that change something are refused in this session.
        read_only: bool,
        /// It takes part in rights; see [`crate::rights`].
        strict: bool,
    } -> Attached => sessions::attach;

    /// Keeps the session alive.
    Listens Heartbeat {
        /// As `done_below` of the request.
        floor: u64,
        /// Version of the list of data servers the caller has.
        servers_version: u64,
        /// The version that all its writes use: none is under way that began with an older one.
        knows: u64,
        /// It attached as strict; a restarted lock server does not know that.
        strict: bool,
    } -> Beat => sessions::heartbeat;

    /// Ends the session.
    Holds Detach {
        /// All chunks it stored are committed or deleted: no sweep is needed.
        clean: bool,
    } -> () => sessions::detach;

    // Names and attributes.

    /// Finds a name in a directory. Also `.` and `..`.
    Asks Lookup { parent: Ino, name: Vec<u8> } -> Entry => namespace::lookup;

    /// Attributes of an inode.
    Asks GetAttr { ino: Ino } -> Entry => namespace::get_attr;

    /// Creates an inode with a name.
    Writes Create {
        /// Directory it is created in.
        parent: Ino,
        /// Its name there.
        name: Vec<u8>,
        /// Kind of the inode.
        kind: Kind,
        /// Permission bits, after the umask.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group; a setgid directory gives its own instead.
        gid: u32,
        /// Device number of a device node.
        rdev: u32,
        /// Target of a symbolic link.
        target: Option<Vec<u8>>,
        /// Refuse when the name exists; otherwise an object that exists is returned as it is.
        exclusive: bool,
        /// Also count it as opened by this session, in the same step.
        open: bool,
    } -> Created => namespace::create;

    /// Creates objects, all of them or none. Returns their numbers, in order; an error of one is returned as
    /// [`MdError::At`].
    Writes CreateMany {
        /// The objects, at most [`MAX_CREATE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_CREATE }>")]
        objects: Vec<NewObject>,
    } -> Vec<Ino> => namespace::create_many;

    /// The defaults of a container.
    Asks GetDefaults { ino: Ino } -> Defaults => namespace::get_defaults;

    /// Changes the defaults of a container. Returns the defaults after the change.
    Writes SetDefaults {
        ino: Ino,
        /// What to clear and what to set.
        change: DefaultsChange,
    } -> Defaults => namespace::set_defaults;

    /// Gives an inode, not a directory, one more name in the directory `parent`.
    Writes Link { ino: Ino, parent: Ino, name: Vec<u8> } -> Entry => namespace::link;

    /// Removes a name of anything but a directory.
    Writes Unlink { parent: Ino, name: Vec<u8> } -> Unlinked => namespace::unlink;

    /// Removes an empty directory.
    Writes Rmdir { parent: Ino, name: Vec<u8> } -> () => namespace::rmdir;

    /// Renames as in POSIX.
    Writes Rename {
        /// Directory of the present name.
        parent: Ino,
        /// The present name.
        name: Vec<u8>,
        /// Directory of the new name.
        new_parent: Ino,
        /// The new name.
        new_name: Vec<u8>,
        /// What to do when the new name exists.
        flags: RenameFlags,
    } -> Unlinked => namespace::rename;

    /// Target of a symbolic link.
    Asks ReadLink { ino: Ino } -> Vec<u8> => namespace::read_link;

    /// Entries of a directory, without `.` and `..`; empty at the end. Cookies are at least 16 and below 2^63; the
    /// cookie of an entry does not change as long as its name does not.
    Asks ReadDir {
        ino: Ino,
        /// Returns entries with greater cookies; 0 for the start.
        cookie: u64,
        /// At most this many.
        limit: u32,
    } -> Vec<DirEntry> => namespace::read_dir;

    /// Sets attributes.
    Writes SetAttr { ino: Ino, set: arguments::SetAttr } -> Entry => namespace::set_attr;

    /// Sets an extended attribute.
    Writes SetXattr {
        ino: Ino,
        /// Full name, as `user.project`.
        name: Vec<u8>,
        value: Vec<u8>,
        /// What to do if it exists or does not.
        flags: XattrFlags,
    } -> () => namespace::set_xattr;

    /// Value of an extended attribute, by its full name.
    Asks GetXattr { ino: Ino, name: Vec<u8> } -> Vec<u8> => namespace::get_xattr;

    /// Names of the extended attributes, by bytes.
    Asks ListXattr { ino: Ino } -> Vec<Vec<u8>> => namespace::list_xattr;

    /// Removes an extended attribute, by its full name.
    Writes RemoveXattr { ino: Ino, name: Vec<u8> } -> () => namespace::remove_xattr;

    // Tags, and the search for them.

    /// Sets and removes tags of inodes, all in one step.
    Writes Tag {
        /// What to change; at most [`super::MAX_TAG_NAMES`] names.
        #[serde(deserialize_with = "super::tags::changes")]
        changes: Vec<TagChange>,
    } -> () => tags::tag;

    /// Tags of an inode, a page of them.
    Asks Tags {
        ino: Ino,
        /// Returns those with greater names.
        after: Option<String>,
    } -> TagsPage => tags::tags;

    /// A page of a search. Pages may be empty before the end; the last page has no [`Found::next`].
    #[derive(Default)]
    Asks Find {
        /// In the language of `docs/search.md`.
        query: String,
        /// Only what is below this container; `None` for everything.
        under: Option<Ino>,
        /// The caller: only what it could list is found, and tags only of what it may read. `None` finds everything.
        who: Option<Caller>,
        /// Only this inode, if it is found.
        only: Option<Ino>,
        /// At most this many hits in this page, and at most [`super::MAX_HITS`].
        limit: u32,
        /// Only share `.0` of `.1`: the shares are disjoint, and all together are everything.
        part: Option<(u32, u32)>,
        /// Only [`Found::count`] is wanted; a page counts as many as is possible in a short time.
        count_only: bool,
        /// Hits with their tags, up to [`super::MAX_HIT_TAGS`].
        with_tags: bool,
        /// Hits with this tag, to sort them.
        with_tag: Option<String>,
        /// Hits with [`super::Hit::form`].
        with_form: bool,
        /// [`Found::next`] of the page before.
        after: Option<Vec<u8>>,
    } -> Found => tags::find;

    // Opens.

    /// Counts one more open of the inode by this session.
    Holds Open { ino: Ino } -> Entry => namespace::open;

    /// Drops one open for each inode named; unlinked inodes that no session has open are removed.
    Holds Release {
        /// Inodes, one entry per open; at most [`MAX_RELEASE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_RELEASE }>")]
        inos: Vec<Ino>,
    } -> () => namespace::release;

    // Data of objects, and where it is.

    /// The tiling of an `aligned` object, a page of it; [`crate::client::Md::tiling`] merges them.
    Asks Tiling {
        ino: Ino,
        /// The version the caller has, `Version(0)` for none.
        known: Version,
        /// Returns the page after the record of this order.
        after: Option<u64>,
        /// The part that is wanted, if not everything; with `after`, the box of the previous page.
        wanted: Option<WantedPart>,
    } -> TilingReply => tilings::tiling;

    /// Chunk ids that are never handed out again: `count` of them.
    Writes LeaseChunks { count: u32 } -> Lease => sessions::lease_chunks;

    /// Allocates bytes that are about to be written: how many to which server, so that all servers end up with equal
    /// bytes. Replaces the session's previous allocation.
    Asks LeasePlaces {
        /// Bytes the caller expects to write soon.
        bytes: u64,
        /// The bytes it has stored on each server since its last request.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_REPORTED_SERVERS }>")]
        spent: Vec<(ServerId, u64)>,
    } -> Vec<(ServerId, u64)> => placement::lease_places;

    /// Marks a data server as draining, durably, or clears the mark.
    Marks SetDraining {
        server: ServerId,
        /// Whether it is to be drained.
        draining: bool,
    } -> () => placement::set_draining;

    /// A page of the objects that have data on a data server.
    Asks Holdings {
        server: ServerId,
        /// Returns objects with greater numbers; 0 for all.
        after: Ino,
    } -> reply::Holdings => placement::holdings;

    /// Takes or returns a write permit of a grid object, one of whose servers is being drained. Returns the object for a
    /// permit that is taken; [`MdError::Busy`] while others hold conflicting permits; for [`arguments::Permit::Back`]
    /// [`MdError::Stale`] if the permit was void, and everything done under it has to be redone.
    Asks Permit { ino: Ino, permit: arguments::Permit } -> Option<Box<Permitted>> => placement::permit;

    /// Replaces a server in the stripe of a grid object; its chunks were copied under a [`arguments::Permit::Move`] and are on
    /// disk.
    Writes Restripe {
        ino: Ino,
        /// Generation of the chunks.
        generation: u32,
        /// The server that has its chunks so far.
        from: ServerId,
        /// The server that has them now.
        to: ServerId,
    } -> Entry => placement::restripe;

    /// Replaces chunks of an `aligned` object by copies, where the records are unchanged.
    Writes Relocate {
        ino: Ino,
        /// Generation of the tiling.
        generation: u32,
        /// Order, the chunk that the record names, the copy. The copies are on disk.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_COMMIT_RECORDS }>")]
        moves: Vec<(u64, ChunkId, StoredChunk)>,
    } -> Box<Relocated> => tilings::relocate;

    /// Makes stored data part of an object, in one step.
    Writes Commit {
        /// Object.
        ino: Ino,
        /// Generation the data was written for; [`MdError::Stale`] if the object was emptied since.
        generation: u32,
        /// What was stored, in cells, oldest first: chunk ids leased by this session, each once. Empty for a grid. At
        /// most [`MAX_COMMIT_RECORDS`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_COMMIT_RECORDS }>")]
        records: Vec<(Hyperslab, Stored)>,
        /// What is shown of each record, in cells: a chunk that came from a file may reach beyond its part of the object.
        /// Empty if all of each is shown.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_COMMIT_RECORDS }>")]
        clips: Vec<Option<Region>>,
        /// Dims (elements) that the object has at least afterwards; longer axes stay.
        grow_to: Option<Coords>,
        /// Bytes that a byte object has at least afterwards; other objects grow by complete rows.
        size_at_least: u64,
        /// Modification time; the service's clock when `None` and `wrote`.
        mtime: Option<Time>,
        /// Data was written (and not only holes punched or the object grown).
        wrote: bool,
        /// Bytes of a grid that are newly allocated, or freed if negative, as far as the caller knows; added to
        /// [`super::Attr::stored`], up to the size. Ignored for `aligned`.
        stored: i64,
        /// The data is already on the data servers' disks: what it replaces needs no [`Settle`].
        settled: bool,
    } -> Box<CommitReply> => tilings::commit;

    /// Sets the dims, in elements, of an object whose rank does not change. Data outside is lost; for a grid, the caller
    /// clips the chunks on the data servers before a shrink.
    Writes Resize {
        ino: Ino,
        dims: Coords,
        /// The source of the change.
        how: ResizeHow,
    } -> Resized => tilings::resize;

    /// Sets dtype, dims and so on by the rules of [`SpecChange::resolve`].
    Writes Declare {
        ino: Ino,
        /// What to set.
        change: SpecChange,
        /// The rewritten data, where [`super::SpecPlan::Rewrite`] requires it.
        rewrite: Option<Rewrite>,
    } -> Entry => tilings::declare;

    /// Empties an object (`O_TRUNC`): all fill; fixed dims stay, an unlimited slowest axis gets length 0. The
    /// generation grows.
    Writes Clear { ino: Ino } -> Entry => tilings::clear;

    /// Announces that data beyond the recorded size of a grid object is about to be written.
    Writes Reserve {
        ino: Ino,
        /// Bytes of the object up to which data may be written.
        upto: u64,
    } -> ReserveReply => tilings::reserve;

    /// A generation, and servers, for grid chunks that are written before a [`Rewrite`] makes them part of the
    /// object.
    Writes SpareGeneration {
        ino: Ino,
        /// The placement that the object will have.
        placement: Placement,
    } -> Spare => tilings::spare_generation;

    /// The data of all commits up to a version is on the data servers' disks: the data that they replaced may be
    /// deleted (once the journal is on disk, too).
    Writes Settle {
        ino: Ino,
        /// Version of its tiling.
        version: Version,
    } -> () => tilings::settle;

    // The service itself.

    /// Returns once everything that was answered before is on the service's disk.
    Asks Sync {} -> () => service::sync;

    /// Totals over the data servers.
    Asks StatFs {} -> reply::StatFs => service::statfs;

    /// The data servers.
    Asks Servers {} -> Vec<ServerInfo> => service::servers;

    /// A page of a dump of all metadata; without a ticket a new dump is begun.
    Asks Dump {
        /// The dump, as named by its first page.
        ticket: Option<u64>,
        /// The first byte wanted.
        offset: u64,
    } -> DumpPage => dump::page;

    /// A data server reports to the service. Needs no session.
    Asks RegisterServer { report: ServerReport } -> ServerOrders => placement::register;

    // Locks; see `crate::locks`.

    /// Requests or releases a lock.
    Holds Lock {
        /// The epoch it is for.
        epoch: LockEpoch,
        ask: LockAsk,
    } -> LockReply => locks::lock;

    /// Cancels a waiting request for a lock. Returns whether the request waited.
    Asks CancelLock { ticket: LockTicket } -> bool => locks::cancel;

    /// Waits for the outcome of queued lock requests.
    Listens LockEvents {
        /// The epoch they are waiting in.
        epoch: LockEpoch,
        /// Number of the last event that the session has; events up to it are dropped.
        seen: u64,
        /// How long to wait for an event; at most ten seconds.
        wait_ms: u32,
    } -> LockNews => locks::events;

    /// Reclaims the session's locks (as in NFSv4), in one request or several; it then holds no others, none of its
    /// requests waits, and a new epoch begins.
    Holds ReclaimLocks {
        /// Its locks, or some of them.
        held: Vec<HeldLocks>,
        /// These are the first.
        first: bool,
        /// These are the last; the reclaim is complete.
        last: bool,
    } -> LocksReclaimed => locks::reclaim;

    // Rights; see `crate::rights`.

    /// Requests a right.
    Holds AskRight {
        /// The epoch it is for.
        epoch: RightsEpoch,
        ask: RightAsk,
    } -> RightReply => rights::ask;

    /// Cancels a waiting request; if it was granted meanwhile, the grant is valid.
    Asks CancelRight {
        /// The epoch it was for.
        epoch: RightsEpoch,
        ticket: RightTicket,
    } -> () => rights::cancel;

    /// Returns rights. No effect in an epoch that is over.
    Holds GiveRights {
        /// The epoch they were granted in.
        epoch: RightsEpoch,
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_RIGHT_GIVES }>")]
        gives: Vec<RightGive>,
    } -> () => rights::give;

    /// Waits for the lock server's events about rights.
    Listens RightEvents {
        /// The epoch the session is in.
        epoch: RightsEpoch,
        /// Number of the last event that the session has; events up to it are dropped.
        seen: u64,
        /// How long to wait for an event; at most ten seconds.
        wait_ms: u32,
    } -> RightNews => rights::events;

    /// Resets the session's rights: it holds none, and caches nothing that would need one, except those named here. A
    /// new epoch begins, in which it holds these as if they had been granted before its first grant.
    Holds ResetRights {
        /// All that it retains: rights that it held in the previous epoch. None if it does not know whether it held
        /// them.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_RIGHTS_HELD }>")]
        held: Vec<RightHeld>,
    } -> RightsBegun => rights::reset;

    /// Attributes of an inode, including unflushed writes of other sessions. Those of a directory may be cacheable.
    Asks Stat {
        ino: Ino,
        /// Whether the session would cache them.
        keep: bool,
    } -> Looked => rights::stat;

    /// Answers a [`super::RightEventKind::Size`].
    Asks ReportSize {
        /// The query.
        question: u64,
        /// The answer; `None` if nothing is unflushed.
        unflushed: Option<Unflushed>,
    } -> () => rights::report_size;

    /// Looks up a name in a directory, as [`Lookup`], and asks whether the result may be cached, also if no such name
    /// exists.
    Asks Look { parent: Ino, name: Vec<u8> } -> Looked => rights::look;

    /// Acknowledges a [`super::RightEventKind::Names`]; or reports, unsolicited, that the session caches no names at
    /// all.
    Asks ReportForgotten {
        /// The epoch that the session is in.
        epoch: RightsEpoch,
        /// The event; `None` for all names.
        change: Option<u64>,
    } -> () => rights::forgot;

    /// Attributes of an inode that was removed, without info, for a session that still has it; sets them first if they
    /// are given. [`MdError::NotFound`] if the removal is too long ago.
    Asks Removed {
        ino: Ino,
        /// What to set.
        set: Option<arguments::SetAttr>,
    } -> Entry => namespace::removed;

    /// Locks that are held or waited for, for people.
    Asks Locks {
        /// Those of this object and of its selections; `None` for all.
        ino: Option<Ino>,
        /// As in [`Find`]: paths that this caller could not list are left out.
        who: Option<Caller>,
    } -> LockList => locks::list;

    /// A path of each inode, for people; empty where it has none, or the caller could not list it.
    Asks Paths {
        /// The inodes, at most [`MAX_PATHS`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_PATHS }>")]
        inos: Vec<Ino>,
        /// As in [`Find`].
        who: Option<Caller>,
    } -> Vec<Vec<u8>> => tags::paths;

    // Coupled objects.

    /// The coupled objects that the session has open, in place of those that it reported before.
    Asks CoupledOpens {
        /// Number of this list; an older one has no effect.
        number: u64,
        /// All of them.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_COUPLED_OPENS }>")]
        opens: Vec<CoupledOpen>,
    } -> () => matcher::opens;

    /// Waits until cells of a coupled object are written, or no more data comes; returns its tiling then.
    Listens Match {
        ino: Ino,
        /// The version of the tiling that the caller has, `Version(0)` for none.
        known: Version,
        /// The cells; they may lie beyond the object's present size.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_MATCH_BOXES }>")]
        cells: Vec<Region>,
        /// The thread that reads; 0 if it is not known.
        pid: u32,
        /// How long it has waited already, in milliseconds.
        waited_ms: u64,
        /// How long to wait; at most ten seconds. The caller asks again.
        wait_ms: u32,
    } -> Box<Matched> => matcher::matched;

    /// Who waits for what of a coupled object, and who has it open, for people.
    Asks CoupleStatus { ino: Ino } -> Box<super::couple::CoupleStatus> => matcher::status;

    /// Ends the stream of a coupled object: reads of what is not written do not wait any more.
    Marks EndStream { ino: Ino } -> () => matcher::end;

    /// A writer of a coupled object closes it without data that it had written: reads of what is not there fail.
    Marks BreakStream { ino: Ino } -> () => matcher::broken;

    /// Waits until anything has changed of coupled objects that the session watches, and returns that. The session has
    /// acknowledged the versions that it names.
    Listens Watch {
        /// All that it watches.
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_WATCHED }>")]
        objects: Vec<Watching>,
        /// How long to wait; at most ten seconds.
        wait_ms: u32,
    } -> Vec<Watched> => matcher::watch;

    /// A server in the memory of this session's mount ends, and its data with it.
    Marks EndMemory { server: ServerId } -> () => placement::end_memory;

    /// Waits until a name exists in a container whose new objects of that name are coupled.
    Listens AwaitName {
        parent: Ino,
        name: Vec<u8>,
        /// How long to wait; at most ten seconds. The caller asks again.
        wait_ms: u32,
    } -> super::couple::NameWait => matcher::await_name;

    /// Waits until the queue of a coupled object has room for rows. A write of more rows than the queue has begins when the
    /// readers have come to its first one.
    Listens AwaitRoom {
        ino: Ino,
        /// The first row that is written.
        from: u64,
        /// The end of the last row that is written.
        rows: u64,
        /// How long to wait; at most ten seconds. The caller asks again.
        wait_ms: u32,
    } -> super::couple::Room => matcher::await_room;

    /// The state of the engine that the metadata is on, as names and values; empty if that is a directory of the service.
    Asks Engine {} -> Vec<(String, String)> => service::engine;

    // Objects in shards; see `super::shard`.

    /// To the shard of names: what the shards of these objects need to create them. Those without a name, and those that are known to
    /// be created, are left out.
    Asks Births {
        /// The objects, at most [`MAX_CREATE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_CREATE }>")]
        inos: Vec<Ino>,
    } -> Vec<Birth> => shards::births;

    /// Attributes of inodes, without unflushed writes of other sessions. Those that do not exist are left out.
    Asks GetAttrs {
        /// The inodes, at most [`MAX_PATHS`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_PATHS }>")]
        inos: Vec<Ino>,
    } -> Vec<Entry> => shards::get_attrs;

    /// To the shard of objects: creates those that do not exist. Returns all of them, without those that were removed since.
    Writes Adopt {
        /// The objects, at most [`MAX_CREATE`].
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_CREATE }>")]
        births: Vec<Birth>,
        /// Also count each as opened by this session, in the same step.
        open: bool,
    } -> Vec<Entry> => shards::adopt;

    /// To the shard of objects: how many names they have.
    Writes SetLinks {
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_UNFINISHED }>")]
        links: Vec<Links>,
    } -> () => shards::set_links;

    /// To the shard of names: names of objects whose shards may not have them yet. The caller does what is left, with [`Births`], [`Adopt`] and [`SetLinks`], and then [`Finish`].
    Asks Unfinished {
        /// Of changes that were this long ago at least, in milliseconds: the client whose change it was does it at once.
        older_ms: u64,
    } -> Vec<Links> => shards::unfinished;

    /// To the shard of names: the shards of these objects have created them and have their links.
    Writes Finish {
        #[serde(deserialize_with = "bounded::list::<_, _, { MAX_UNFINISHED }>")]
        links: Vec<Links>,
    } -> () => shards::finish;
}

/// A time to wait for an event.
#[must_use]
pub fn millis(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)
}
