//! The hand-written encoders produce what postcard produces, and it decodes to the same record.

use std::sync::Arc;

use proptest::prelude::*;
use serde::Serialize;
use slabfs_model::{
    Codec, Coords, Coupling, Fill, Layout, MaxDim, ObjectId, Placement, ServerId, SessionId, Tag,
    Version,
};
use smallvec::SmallVec;

use super::*;
use crate::api::{Birth, Defaults, Entry, SpecChange};
use crate::records::decode;

fn by_postcard<T: Serialize>(record: &T) -> Vec<u8> {
    postcard::to_extend(record, vec![FORMAT]).unwrap()
}

/// Numbers of all encoded lengths, and those at which a length ends.
fn number() -> impl Strategy<Value = u64> {
    let edge = (0..64u32, 0..3u64).prop_map(|(bits, by)| (1u64 << bits).wrapping_sub(1) + by);
    prop_oneof![0..300u64, any::<u64>(), edge]
}

fn small() -> impl Strategy<Value = u32> {
    number().prop_map(|number| number as u32)
}

fn list() -> impl Strategy<Value = Coords> {
    prop::collection::vec(number(), 0..7).prop_map(Coords::from_vec)
}

fn servers() -> impl Strategy<Value = Vec<ServerId>> {
    prop::collection::vec(small().prop_map(ServerId), 0..4)
}

fn times() -> impl Strategy<Value = [Time; 4]> {
    let time = (any::<i64>(), 0..1_000_000_000u32, any::<bool>());
    let time = time.prop_map(|(sec, nsec, wanted)| {
        let sec = if wanted { sec % 2_000_000_000 } else { sec };
        Time { sec, nsec }
    });
    [time.clone(), time.clone(), time.clone(), time]
}

fn attr() -> impl Strategy<Value = Attr> {
    let kinds = prop::sample::select(vec![
        Kind::Directory,
        Kind::Object,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharDevice,
        Kind::BlockDevice,
    ]);
    let small = [small(), small(), small(), small(), small()];
    let large = [number(), number(), number(), number()];
    (kinds, small, large, times()).prop_map(|(kind, small, large, times)| {
        let [mode, nlink, uid, gid, rdev] = small;
        let [ino, size, stored, change] = large;
        let [atime, mtime, ctime, crtime] = times;
        Attr {
            ino: ObjectId(ino),
            kind,
            mode,
            nlink,
            uid,
            gid,
            rdev,
            size,
            stored,
            atime,
            mtime,
            ctime,
            crtime,
            change,
        }
    })
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![
        Just(Layout::Aligned),
        Just(Layout::Canonical),
        list().prop_map(Layout::Grid),
    ]
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop_oneof![
        Just(Codec::None),
        Just(Codec::ShuffleLz4),
        any::<u32>().prop_map(Codec::Deflate),
        any::<i32>().prop_map(Codec::ShuffleZstd),
    ]
}

fn placements() -> impl Strategy<Value = Placement> {
    prop_oneof![
        Just(Placement::Object),
        Just(Placement::Region),
        Just(Placement::Dynamic),
        Just(Placement::Local),
        small().prop_map(|id| Placement::Server(ServerId(id))),
    ]
}

fn max_dims() -> impl Strategy<Value = Vec<MaxDim>> {
    let max = prop_oneof![Just(MaxDim::Unlimited), number().prop_map(MaxDim::Fixed)];
    prop::collection::vec(max, 0..6)
}

fn couplings() -> impl Strategy<Value = Coupling> {
    let texts = vec![
        "off",
        "keep=memory",
        "keep=file,timeout=7ms,matchers=9,end=never",
    ];
    prop::sample::select(texts).prop_map(|text| text.parse().unwrap())
}

fn info() -> impl Strategy<Value = ArrayInfo> {
    let dtypes = prop::sample::select(vec!["u1", "f4", ">i8", "U3", "S65536"]);
    let form = (dtypes, list(), max_dims(), layouts(), codecs());
    let where_to = (
        placements(),
        servers(),
        prop::option::of(list()),
        couplings(),
    );
    let fill = prop::collection::vec(any::<u8>(), 0..20);
    let numbers = (small(), number(), number());
    (form, where_to, fill, any::<[bool; 6]>(), numbers).prop_map(
        |(form, where_to, fill, flags, numbers)| ArrayInfo {
            dtype: form.0.parse().unwrap(),
            dims: form.1,
            max_dims: form.2,
            fill: Fill::from_bytes(&fill),
            layout: form.3,
            codec: form.4,
            declared: flags[0],
            given: Given {
                dtype: flags[1],
                dims: flags[2],
                max_dims: flags[3],
                layout: flags[4],
            },
            holds: flags[5],
            generation: numbers.0,
            placement: where_to.0,
            stripe: where_to.1,
            blocks: where_to.2,
            tiling: Version(numbers.1),
            chunk_limit: numbers.2,
            couple: where_to.3,
        },
    )
}

fn specs() -> impl Strategy<Value = SpecChange> {
    (prop::option::of(list()), prop::option::of(codecs())).prop_map(|(dims, codec)| SpecChange {
        dims,
        codec,
        fill: Some("7".to_owned()),
        ..SpecChange::default()
    })
}

fn objects() -> impl Strategy<Value = Object> {
    let numbers = (number(), small(), number());
    let reserve = || (number().prop_map(SessionId), number());
    let reserves = prop::collection::vec(reserve(), 0..3);
    let clearing = prop::option::of(reserve());
    let inherited = prop::option::of(specs().prop_map(Box::new));
    (info(), inherited, numbers, reserves, clearing, servers()).prop_map(
        |(info, inherited, numbers, reserves, clearing, strays)| Object {
            info: info.into(),
            inherited,
            next_order: numbers.0,
            spare: numbers.1,
            stored: numbers.2,
            reserves: SmallVec::from_vec(reserves),
            clearing,
            strays: SmallVec::from_vec(strays),
        },
    )
}

fn bodies() -> impl Strategy<Value = Body> {
    let defaults = specs().prop_map(|spec| {
        let tags = vec![("a".to_owned(), Tag::int(-5))];
        Arc::new(Defaults { spec, tags })
    });
    let directory = (
        number(),
        number(),
        any::<bool>(),
        prop::option::of(defaults),
    );
    prop_oneof![
        objects().prop_map(|object| Body::Object(Box::new(object))),
        directory.prop_map(|(parent, entries, collided, defaults)| Body::Directory {
            parent: ObjectId(parent),
            entries,
            collided,
            defaults,
        }),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(Body::Symlink),
        Just(Body::Node),
        Just(Body::Remote(None)),
        (attr(), info(), prop::option::of(specs())).prop_map(|(attr, info, inherited)| {
            let info = Some(info.into());
            Body::Remote(Some(Box::new(Birth {
                entry: Entry { attr, info },
                inherited,
                tags: vec![(b"user.a".to_vec(), Tag::int(-5))],
            })))
        }),
    ]
}

fn inodes() -> impl Strategy<Value = Inode> {
    let xattrs = (small(), small(), any::<bool>());
    let xattrs = xattrs.prop_map(|(count, names, spread)| Xattrs {
        count,
        names,
        spread,
    });
    let name = (
        number(),
        number(),
        prop::collection::vec(any::<u8>(), 0..256),
    );
    let name = name.prop_map(|(parent, slot, name)| Named {
        parent: ObjectId(parent),
        slot,
        name,
    });
    let names = prop::collection::vec(name, 0..4).prop_map(SmallVec::from_vec);
    (attr(), xattrs, names, bodies()).prop_map(|(attr, xattrs, names, body)| Inode {
        attr,
        xattrs,
        names,
        body,
    })
}

proptest! {
    #[test]
    fn inodes_are_written_as_postcard_writes_them(all in prop::collection::vec(inodes(), 1..4)) {
        let mut writer = Writer::new();
        for inode in all {
            let bytes = writer.inode(&inode).unwrap();
            prop_assert_eq!(&bytes, &by_postcard(&inode));
            let read = decode::<Inode>(b"key", &bytes);
            // Not everything that can be encoded is accepted when decoded: 33 axes are not.
            if let Ok(read) = read {
                prop_assert_eq!(read, inode);
            }
        }
    }

    #[test]
    fn counts_are_written_as_postcard_writes_them(count in number()) {
        prop_assert_eq!(Writer::new().count(count), by_postcard(&count));
    }

    #[test]
    fn slots_are_written_as_postcard_writes_them(
        name in prop::collection::vec(any::<u8>(), 0..256),
        ino in number(),
    ) {
        let mut writer = Writer::new();
        for slot in [Slot::Gone, Slot::Entry { name, ino: ObjectId(ino) }] {
            let bytes = writer.slot(&slot);
            prop_assert_eq!(&bytes, &by_postcard(&slot));
            prop_assert_eq!(decode::<Slot>(b"key", &bytes).unwrap(), slot);
        }
    }
}
