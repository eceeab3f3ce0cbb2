//! Writes the seeds of the targets whose inputs are not text, to `tests/fuzz/corpus` under the working
//! directory; to be run after a change of messages: `cargo run --manifest-path tests/fuzz/Cargo.toml
//! --target-dir target/fuzz --bin seeds`.

use std::fs;
use std::path::Path;

use serde::Serialize;
use slabfs_mdserver::api::{
    Caller, Create, Find, Kind, Op, ROOT, RenameFlags, Request, ResizeHow, RightArea, RightAsk,
    RightGive, RightHeld, RightMode, RightSerial, RightTicket, RightsEpoch, SetAttr, SpecChange,
    TagChange, XattrFlags, op,
};
use slabfs_model::{ChunkId, Codec, Coords, Fill, Hyperslab, ObjectId, Region, SessionId, Tag};
use slabfs_objstore::wire::VERSIONS;
use slabfs_objstore::wire::messages::{
    ClipItem, ListQuery, ReadItem, SealItem, Wipe, WriteItem, WriteOp, kind,
};
use slabfs_objstore::{ChunkForm, ChunkName};

fn write(target: &str, name: &str, bytes: &[u8]) {
    let dir = Path::new("tests/fuzz/corpus").join(target);
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join(name), bytes).expect("a seed");
}

fn postcard(value: &impl Serialize) -> Vec<u8> {
    postcard::to_allocvec(value).expect("a value")
}

fn metadata() {
    let name = |name: &str| name.as_bytes().to_vec();
    let create = |called: &str, kind| {
        Op::Create(Create {
            parent: ROOT,
            name: name(called),
            kind,
            mode: 0o644,
            uid: 1,
            gid: 2,
            rdev: 0,
            target: (kind == Kind::Symlink).then(|| name("target")),
            exclusive: true,
            open: false,
        })
    };
    let ino = ObjectId(2);
    let dims = Coords::from_slice(&[4, 4]);
    let declare = |change| {
        Op::Declare(op::Declare {
            ino,
            change,
            rewrite: None,
        })
    };
    let array = SpecChange {
        dims: Some(dims.clone()),
        ..SpecChange::default()
    };
    let names = [
        create("a", Kind::Object),
        create("b", Kind::Directory),
        create("c", Kind::Symlink),
        Op::Lookup(op::Lookup {
            parent: ROOT,
            name: name("a"),
        }),
        Op::Link(op::Link {
            ino,
            parent: ROOT,
            name: name("d"),
        }),
        Op::Rename(op::Rename {
            parent: ROOT,
            name: name("a"),
            new_parent: ROOT,
            new_name: name("b"),
            flags: RenameFlags::Exchange,
        }),
        Op::ReadDir(op::ReadDir {
            ino: ROOT,
            cookie: 0,
            limit: 10,
        }),
        Op::Unlink(op::Unlink {
            parent: ROOT,
            name: name("d"),
        }),
        Op::Rmdir(op::Rmdir {
            parent: ROOT,
            name: name("a"),
        }),
        Op::SetAttr(op::SetAttr {
            ino,
            set: SetAttr {
                mode: Some(0o600),
                ..SetAttr::default()
            },
        }),
    ];
    let attributes = [
        create("a", Kind::Object),
        Op::SetXattr(op::SetXattr {
            ino,
            name: name("user.k"),
            value: name("3"),
            flags: XattrFlags::Either,
        }),
        Op::GetXattr(op::GetXattr {
            ino,
            name: name("user.k"),
        }),
        Op::ListXattr(op::ListXattr { ino }),
        Op::RemoveXattr(op::RemoveXattr {
            ino,
            name: name("user.k"),
        }),
    ];
    let tag = |key: &str, text: &str| (key.to_owned(), Tag::infer(text).expect("a tag"));
    let find = |query: &str| {
        Op::Find(Find {
            query: query.to_owned(),
            limit: 10,
            with_tags: true,
            ..Find::default()
        })
    };
    let set = vec![
        tag("k", "3"),
        tag("l", "[1, 2.5, \"abc\"]"),
        tag("t", "abcdef"),
    ];
    let remove = vec!["k".to_owned()];
    let change = |set, remove| {
        Op::Tag(op::Tag {
            changes: vec![TagChange { ino, set, remove }],
        })
    };
    let tags = [
        create("a", Kind::Object),
        change(set, vec![]),
        find("k = 3 and t = *bcd* and l > 2"),
        find("name = a or has k*"),
        Op::Tags(op::Tags { ino, after: None }),
        change(vec![], remove),
        find("not k in 1..5"),
    ];
    let arrays = [
        create("a", Kind::Object),
        declare(array),
        Op::LeaseChunks(op::LeaseChunks { count: 4 }),
        Op::Open(op::Open { ino }),
        Op::Tiling(op::Tiling {
            ino,
            known: slabfs_model::Version(0),
            after: None,
            wanted: Some(slabfs_mdserver::api::WantedPart {
                region: slabfs_model::Region::all(&[4, 4]),
                most: 256,
            }),
        }),
        Op::Resize(op::Resize {
            ino,
            dims,
            how: ResizeHow::SetDims,
        }),
        Op::Reserve(op::Reserve { ino, upto: 100 }),
        Op::Clear(op::Clear { ino }),
        Op::SpareGeneration(op::SpareGeneration {
            ino,
            placement: "dynamic".parse().expect("a placement"),
        }),
        Op::Release(op::Release { inos: vec![ino] }),
        Op::Sync(op::Sync {}),
        Op::StatFs(op::StatFs {}),
        Op::Servers(op::Servers {}),
        Op::Locks(op::Locks {
            ino: Some(ino),
            who: Some(Caller::default()),
        }),
        Op::Paths(op::Paths {
            inos: vec![ino],
            who: None,
        }),
        Op::Detach(op::Detach { clean: true }),
    ];
    let epoch = RightsEpoch(1);
    let boxes = || {
        RightArea::Boxes(vec![
            Region::new(&[3], &[4]),
            Region::new(&[5], &[u64::MAX]),
        ])
    };
    let ask = |mode, area, ticket| {
        Op::AskRight(op::AskRight {
            epoch,
            ask: RightAsk {
                ino,
                mode,
                area,
                ticket: RightTicket(ticket),
            },
        })
    };
    let rights = [
        create("a", Kind::Object),
        ask(RightMode::Write, boxes(), 1),
        ask(RightMode::Read, RightArea::All, 2),
        Op::GiveRights(op::GiveRights {
            epoch,
            gives: vec![RightGive {
                ino,
                serial: RightSerial(1),
                keep: Some(RightMode::Read),
                area: boxes(),
            }],
        }),
        Op::CancelRight(op::CancelRight {
            epoch,
            ticket: RightTicket(2),
        }),
        Op::RightEvents(op::RightEvents {
            epoch,
            seen: 0,
            wait_ms: 0,
        }),
        Op::Stat(op::Stat { ino, keep: false }),
        Op::ReportSize(op::ReportSize {
            question: 1,
            unflushed: None,
        }),
        Op::ResetRights(op::ResetRights {
            held: vec![RightHeld {
                ino,
                mode: RightMode::Write,
                area: boxes(),
            }],
        }),
    ];
    for (called, ops) in [
        ("rights", &rights[..]),
        ("names", &names[..]),
        ("attributes", &attributes),
        ("tags", &tags),
        ("arrays", &arrays),
    ] {
        let mut bytes = vec![0];
        for op in ops {
            bytes.extend(postcard(&Request {
                session: SessionId(1),
                seq: 1,
                done_below: 0,
                op: op.clone(),
            }));
        }
        write("metadata", called, &bytes);
    }
}

fn chunks() {
    let shape = Coords::from_slice(&[4, 8]);
    let form = |codec| ChunkForm {
        shape: shape.clone(),
        elem: 4,
        codec,
        fill: Fill::from_bytes(&[1, 2, 3, 4]),
    };
    let all = Hyperslab::from_region(&Region::new(&[0, 0], &[4, 8]));
    let free = ChunkName::Free(ChunkId(5));
    let grid = ChunkName::Grid {
        object: ObjectId(7),
        generation: 1,
        at: Coords::from_slice(&[0, 0]),
    };
    let asked = |which: u16, control: Vec<u8>, payload: &[u8]| {
        let mut bytes = vec![(which - kind::READ) as u8];
        bytes.extend_from_slice(&(control.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        bytes.extend(control);
        bytes.extend_from_slice(payload);
        bytes
    };
    // A session and its connection epoch.
    let asker = (SessionId(3), 0u64);
    let from = |items: Vec<u8>| [postcard(&asker), items].concat();
    for (called, name, codec, op) in [
        ("put", &free, Codec::None, WriteOp::Put),
        ("coded", &free, Codec::ShuffleZstd(3), WriteOp::Put),
        (
            "encoded",
            &free,
            Codec::ShuffleDeflate(4),
            WriteOp::PutEncoded,
        ),
        ("append", &free, Codec::Lz4, WriteOp::Append { at: 0 }),
        ("grid", &grid, Codec::None, WriteOp::Write(all.clone())),
    ] {
        let (name, form, slab) = (name.clone(), form(codec), all.clone());
        let item = WriteItem {
            name: name.clone(),
            form: form.clone(),
            op,
            bytes: 32,
        };
        let read = ReadItem {
            name: name.clone(),
            form: form.clone(),
            slab,
        };
        let mut bytes = asked(kind::WRITE, from(postcard(&vec![item])), &[9; 32]);
        if called == "encoded" {
            bytes.extend(asked(kind::READ_ENCODED, postcard(&name), &[]));
        }
        if called == "append" {
            let seal = SealItem {
                name: name.clone(),
                form: form.clone(),
            };
            bytes.extend(asked(kind::SEAL, postcard(&vec![seal]), &[]));
        }
        bytes.extend(asked(kind::READ, postcard(&vec![read.clone()]), &[]));
        bytes.extend(asked(kind::VERIFY, postcard(&vec![name.clone()]), &[]));
        bytes.extend(asked(kind::SYNC, postcard(&vec![name.clone()]), &[]));
        if called == "grid" {
            let keep = Coords::from_slice(&[2, 2]);
            let clip = ClipItem {
                name: name.clone(),
                form,
                keep,
            };
            bytes.extend(asked(kind::CLIP, from(postcard(&vec![clip])), &[]));
            bytes.extend(asked(kind::PUNCH, from(postcard(&vec![read])), &[]));
            let wipe = Wipe {
                object: ObjectId(7),
                below: Some(2),
            };
            bytes.extend(asked(kind::WIPE, from(postcard(&vec![wipe])), &[]));
        }
        let list = ListQuery {
            after: None,
            limit: 9,
        };
        bytes.extend(asked(kind::LIST, postcard(&list), &[]));
        bytes.extend(asked(kind::DELETE, from(postcard(&vec![name])), &[]));
        write("chunks", called, &bytes);
    }
}

fn wire() {
    let (oldest, newest) = VERSIONS;
    let mut hello = [oldest.to_le_bytes(), newest.to_le_bytes()].concat();
    hello.extend_from_slice(&[7; 32]);
    let sent = |kind: u8, control: &[u8]| [&[kind, control.len() as u8, 0], control].concat();
    let to_server = [
        vec![1],
        sent(1, &hello),
        sent(0x20, b"request"),
        sent(0x20, b""),
    ]
    .concat();
    let mut challenge = vec![2, 0, 0, 0];
    challenge.extend_from_slice(&[7; 32]);
    let to_client = [
        vec![3],
        sent(2, &challenge),
        sent(4, b""),
        sent(0x21, b"reply"),
    ]
    .concat();
    write("wire", "to-server", &to_server);
    write("wire", "to-client", &to_client);
    write(
        "wire",
        "refused",
        &[vec![3], sent(5, &[0, 0, b'n', b'o'])].concat(),
    );
    write("wire", "noise", b"\0GET / HTTP/1.0\r\n\r\n");
}

fn journal() {
    // Two files: three records, a mark, the next file; one more record and the end. Then with damage.
    let record = [0, 2, 1, b'a', 1, b'1', 1, b'b', 2, b'2', b'2', 1, 1, b'a'];
    let flat = |parts: &[&[u8]]| parts.concat();
    let one = flat(&[&[4], &record, &record, &[4], &record]);
    let two = flat(&[&[2], &record, &[5]]);
    write("journal", "clean", &flat(&[&[1], &one, &two]));
    write("journal", "opened", &flat(&[&[0x71], &one, &two]));
    let flipped = flat(&[&[3], &record, &[8, 90, 0, 0, 0, 0, 0, 0, 0, 1], &record]);
    write("journal", "flipped", &flat(&[&[0x35], &flipped, &two]));
    let cut = flat(&[&[2], &record, &[9, 130, 0, 0, 0, 0, 0, 0, 0]]);
    write("journal", "cut", &flat(&[&[0x70], &cut]));
    let foreign = [
        7, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 2, 3, 4,
    ];
    write(
        "journal",
        "numbers",
        &flat(&[&[0x30], &[2], &record, &foreign]),
    );
    write(
        "journal",
        "garbage",
        &flat(&[&[0x30], &[3], &record, &[6, 5, 1, 2, 3, 4, 5], &record]),
    );
}

fn main() {
    metadata();
    chunks();
    wire();
    journal();
}
