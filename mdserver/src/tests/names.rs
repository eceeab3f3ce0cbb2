//! Tests of names: each rule by itself, and random operations against a simple model.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

use super::support::*;
use crate::api::{
    Ino, Kind, MAX_XATTR_VALUE, MdError, ROOT, RenameFlags, SetAttr, SetTime, SpecChange, Time,
    XattrFlags, op,
};
use crate::client::Md;

#[test]
fn create_lookup_unlink() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    assert_eq!(md.lookup(ROOT, b"a").unwrap().attr.ino, ino);
    assert_eq!(md.call(new(ROOT, "a", Kind::Object)), Err(MdError::Exists));
    let mut again = new(ROOT, "a", Kind::Object);
    again.exclusive = false;
    let created = md.call(again).unwrap();
    assert!(!created.created);
    assert_eq!(created.entry.attr.ino, ino);
    md.unlink(ROOT, b"a").unwrap();
    assert_eq!(md.lookup(ROOT, b"a"), Err(MdError::NotFound));
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
}

#[test]
fn equal_files_change_independently() {
    let (_service, md) = ready();
    let (a, b) = (file(&md, "a"), file(&md, "b"));
    let seen = |ino| info(md.call(op::GetAttr { ino }).unwrap());
    let held = md.call(op::GetAttr { ino: a }).unwrap();
    let alike = seen(b);
    assert_eq!(seen(a), alike);
    let dims = Some(slabfs_model::Coords::from_slice(&[4, 4]));
    let change = SpecChange {
        dims,
        ..SpecChange::default()
    };
    md.declare(a, change, None).unwrap();
    assert_ne!(seen(a), alike);
    assert_eq!(seen(b), alike);
    assert_eq!(info(held), alike, "a returned value does not change");
    let c = file(&md, "c");
    assert_eq!(seen(c), alike);
}

#[test]
fn bad_names_are_refused() {
    let (_service, md) = ready();
    let long = "x".repeat(256);
    assert_eq!(
        md.call(new(ROOT, &long, Kind::Object)),
        Err(MdError::NameTooLong)
    );
    for name in ["", ".", "..", "a/b", "a\0b"] {
        let result = md.call(new(ROOT, name, Kind::Object));
        assert!(matches!(result, Err(MdError::Invalid(_))), "{name:?}");
    }
    assert!(make(&md, ROOT, &"x".repeat(255), Kind::Object).is_ok());
}

#[test]
fn directories_count_their_links() {
    let (_service, md) = ready();
    let a = make(&md, ROOT, "a", Kind::Directory).unwrap();
    let b = make(&md, a, "b", Kind::Directory).unwrap();
    assert_eq!(md.call(op::GetAttr { ino: a }).unwrap().attr.nlink, 3);
    assert_eq!(md.call(op::GetAttr { ino: ROOT }).unwrap().attr.nlink, 3);
    assert_eq!(md.lookup(b, b"..").unwrap().attr.ino, a);
    assert_eq!(md.lookup(b, b".").unwrap().attr.ino, b);
    assert_eq!(md.rmdir(ROOT, b"a"), Err(MdError::NotEmpty));
    assert_eq!(md.unlink(ROOT, b"a"), Err(MdError::IsDirectory));
    md.rmdir(a, b"b").unwrap();
    md.rmdir(ROOT, b"a").unwrap();
    assert_eq!(md.call(op::GetAttr { ino: ROOT }).unwrap().attr.nlink, 2);
    assert_eq!(make(&md, a, "c", Kind::Object), Err(MdError::NotFound));
    assert_eq!(md.rmdir(ROOT, b"a"), Err(MdError::NotFound));
}

#[test]
fn a_setgid_directory_hands_its_group_down() {
    let (_service, md) = ready();
    let mut dir = new(ROOT, "d", Kind::Directory);
    dir.mode = 0o2775;
    dir.gid = 77;
    let dir = md.call(dir).unwrap().entry.attr.ino;
    let sub = md.call(new(dir, "s", Kind::Directory)).unwrap().entry.attr;
    assert_eq!((sub.gid, sub.mode & 0o2000), (77, 0o2000));
    let file = md.call(new(dir, "f", Kind::Object)).unwrap().entry.attr;
    assert_eq!((file.gid, file.mode & 0o2000), (77, 0));
}

#[test]
fn hard_links_share_the_inode() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    assert_eq!(md.link(ino, ROOT, b"b").unwrap().attr.nlink, 2);
    assert_eq!(md.link(ino, ROOT, b"b"), Err(MdError::Exists));
    assert!(matches!(
        md.link(ROOT, ROOT, b"c"),
        Err(MdError::NotPermitted(_))
    ));
    // Renaming one onto the other does nothing.
    md.rename(ROOT, b"a", ROOT, b"b", RenameFlags::Replace)
        .unwrap();
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 2);
    md.unlink(ROOT, b"a").unwrap();
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 1);
    md.unlink(ROOT, b"b").unwrap();
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
}

#[test]
fn renames_keep_the_rules() {
    let (_service, md) = ready();
    let a = make(&md, ROOT, "a", Kind::Directory).unwrap();
    let b = make(&md, a, "b", Kind::Directory).unwrap();
    let f = file(&md, "f");
    let rename = |p, n: &str, q, m: &str, flags| md.rename(p, n.as_bytes(), q, m.as_bytes(), flags);
    use RenameFlags::{Exchange, NoReplace, Replace};
    assert!(matches!(
        rename(ROOT, "a", b, "x", Replace),
        Err(MdError::Invalid(_))
    ));
    assert!(matches!(
        rename(ROOT, "a", a, "x", Replace),
        Err(MdError::Invalid(_))
    ));
    assert_eq!(
        rename(ROOT, "f", ROOT, "a", Replace),
        Err(MdError::IsDirectory)
    );
    assert_eq!(
        rename(ROOT, "a", ROOT, "f", Replace),
        Err(MdError::NotDirectory)
    );
    assert_eq!(rename(a, "b", ROOT, "a", Replace), Err(MdError::NotEmpty));
    assert_eq!(
        rename(ROOT, "f", ROOT, "a", NoReplace),
        Err(MdError::Exists)
    );
    assert_eq!(
        rename(ROOT, "f", ROOT, "none", Exchange),
        Err(MdError::NotFound)
    );
    assert_eq!(
        rename(ROOT, "none", ROOT, "f", Replace),
        Err(MdError::NotFound)
    );
    assert!(matches!(
        rename(a, "b", ROOT, "a", Exchange),
        Err(MdError::Invalid(_))
    ));

    rename(a, "b", ROOT, "f", Exchange).unwrap();
    assert_eq!(md.lookup(a, b"b").unwrap().attr.ino, f);
    assert_eq!(md.lookup(ROOT, b"f").unwrap().attr.ino, b);
    assert_eq!(md.lookup(b, b"..").unwrap().attr.ino, ROOT);
    assert_eq!(md.call(op::GetAttr { ino: a }).unwrap().attr.nlink, 2);
    assert_eq!(md.call(op::GetAttr { ino: ROOT }).unwrap().attr.nlink, 4);

    let c = make(&md, ROOT, "c", Kind::Directory).unwrap();
    rename(ROOT, "c", ROOT, "f", Replace).unwrap();
    assert_eq!(md.lookup(ROOT, b"f").unwrap().attr.ino, c);
    assert_eq!(md.call(op::GetAttr { ino: b }), Err(MdError::NotFound));
    assert_eq!(md.call(op::GetAttr { ino: ROOT }).unwrap().attr.nlink, 4);
}

#[test]
fn attributes_are_set() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    let before = md.call(op::GetAttr { ino }).unwrap().attr;
    let time = Time {
        sec: -5,
        nsec: 999_999_999,
    };
    let set = SetAttr {
        mode: Some(0o107_777),
        uid: Some(9),
        mtime: Some(SetTime::To(time)),
        ..SetAttr::default()
    };
    let attr = md.setattr(ino, set).unwrap().attr;
    assert_eq!((attr.mode, attr.uid, attr.gid), (0o7777, 9, 2));
    assert_eq!((attr.mtime, attr.atime), (time, before.atime));
    assert!(attr.change > before.change && attr.ctime >= before.ctime);
    let bad = SetTime::To(Time {
        sec: 0,
        nsec: 1_000_000_000,
    });
    let set = SetAttr {
        atime: Some(bad),
        ..SetAttr::default()
    };
    assert!(matches!(md.setattr(ino, set), Err(MdError::Invalid(_))));
}

#[test]
fn extended_attributes() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    assert_eq!(md.getxattr(ino, b"user.x"), Err(MdError::NoData));
    md.setxattr(ino, b"user.x", b"1", XattrFlags::Create)
        .unwrap();
    assert_eq!(
        md.setxattr(ino, b"user.x", b"2", XattrFlags::Create),
        Err(MdError::Exists)
    );
    assert_eq!(
        md.setxattr(ino, b"user.y", b"2", XattrFlags::Replace),
        Err(MdError::NoData)
    );
    md.setxattr(ino, b"user.y", b"", XattrFlags::Either)
        .unwrap();
    assert_eq!(md.getxattr(ino, b"user.x").unwrap(), b"1");
    assert_eq!(
        md.call(op::ListXattr { ino }).unwrap(),
        [b"user.x".to_vec(), b"user.y".to_vec()]
    );
    let big = vec![0; MAX_XATTR_VALUE + 1];
    assert!(matches!(
        md.setxattr(ino, b"user.z", &big, XattrFlags::Either),
        Err(MdError::TooBig(_))
    ));
    md.setxattr(ino, b"user.z", &big[1..], XattrFlags::Either)
        .unwrap();
    md.removexattr(ino, b"user.x").unwrap();
    assert_eq!(md.removexattr(ino, b"user.x"), Err(MdError::NoData));
    let names: Vec<_> = (0..17_000).map(|i| format!("user.{i:0>250}")).collect();
    let set = |name: &String| md.setxattr(ino, name.as_bytes(), b"", XattrFlags::Either);
    assert!(
        names
            .iter()
            .any(|name| set(name) == Err(MdError::TooManyTags))
    );
    md.unlink(ROOT, b"a").unwrap();
}

#[test]
fn listings_are_stable_under_change() {
    let (_service, md) = ready();
    let dir = make(&md, ROOT, "d", Kind::Directory).unwrap();
    for i in 0..300 {
        make(&md, dir, &format!("keep{i}"), Kind::Object).unwrap();
        make(&md, dir, &format!("drop{i}"), Kind::Object).unwrap();
    }
    let (mut seen, mut cookie, mut round) = (BTreeSet::new(), 0, 0);
    loop {
        let page = md.readdir(dir, cookie, 7).unwrap();
        let Some(last) = page.last() else { break };
        cookie = last.cookie;
        for entry in &page {
            assert!(entry.cookie >= 16 && entry.cookie < 1 << 63);
            assert!(seen.insert(entry.name.clone()), "{:?} twice", entry.name);
        }
        if round < 300 {
            md.unlink(dir, format!("drop{round}").as_bytes()).unwrap();
            make(&md, dir, &format!("new{round}"), Kind::Object).unwrap();
        }
        round += 1;
    }
    for i in 0..300 {
        assert!(seen.contains(format!("keep{i}").as_bytes()));
    }
}

#[test]
fn an_open_file_outlives_its_name() {
    let (_service, md) = ready();
    let ino = file(&md, "a");
    md.call(op::Open { ino }).unwrap();
    md.call(op::Open { ino }).unwrap();
    md.unlink(ROOT, b"a").unwrap();
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 0);
    assert_eq!(md.link(ino, ROOT, b"b"), Err(MdError::NotFound));
    md.release(vec![ino]).unwrap();
    assert!(md.call(op::GetAttr { ino }).is_ok());
    md.release(vec![ino, ino]).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
}

#[test]
fn symbolic_links_and_nodes() {
    let (_service, md) = ready();
    let link = md.call(new(ROOT, "l", Kind::Symlink)).unwrap().entry.attr;
    assert_eq!((link.size, link.mode), (6, 0o777));
    assert_eq!(md.call(op::ReadLink { ino: link.ino }).unwrap(), b"target");
    let mut device = new(ROOT, "c", Kind::CharDevice);
    device.rdev = 0x0103;
    assert_eq!(md.call(device).unwrap().entry.attr.rdev, 0x0103);
    let mut bad = new(ROOT, "m", Kind::Symlink);
    bad.target = Some(vec![b'x'; 4096]);
    assert_eq!(md.call(bad).map(|_| ()), Err(MdError::NameTooLong));
}

/// A simple model of a directory tree.
#[derive(Debug, Default)]
struct Model {
    /// Names of directories by number; 0 is the root.
    directories: BTreeMap<usize, BTreeMap<String, Node>>,
    next: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Directory(usize),
    File(usize),
}

#[derive(Debug, Clone)]
enum Step {
    File(usize, String),
    Directory(usize, String),
    Link(usize, String, usize, String),
    Unlink(usize, String),
    Rmdir(usize, String),
    Rename(usize, String, usize, String, RenameFlags),
}

impl Model {
    fn new() -> Self {
        Self {
            directories: BTreeMap::from([(0, BTreeMap::new())]),
            next: 1,
        }
    }

    fn get(&self, dir: usize, name: &str) -> Option<Node> {
        self.directories[&dir].get(name).copied()
    }

    fn put(&mut self, dir: usize, name: &str, node: Node) {
        self.directories
            .get_mut(&dir)
            .unwrap()
            .insert(name.to_owned(), node);
    }

    fn take(&mut self, dir: usize, name: &str) {
        self.directories.get_mut(&dir).unwrap().remove(name);
    }

    fn below(&self, top: usize, dir: usize) -> bool {
        top == dir
            || self.directories[&top].values().any(|node| match node {
                Node::Directory(sub) => self.below(*sub, dir),
                Node::File(_) => false,
            })
    }

    /// Applies a step; returns whether it succeeds, as the service should.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::File(dir, name) | Step::Directory(dir, name) => {
                if self.get(*dir, name).is_some() {
                    return false;
                }
                let number = self.next;
                self.next += 1;
                if matches!(step, Step::File(..)) {
                    self.put(*dir, name, Node::File(number));
                } else {
                    self.directories.insert(number, BTreeMap::new());
                    self.put(*dir, name, Node::Directory(number));
                }
                true
            }
            Step::Link(dir, name, to, new) => match (self.get(*dir, name), self.get(*to, new)) {
                (Some(node @ Node::File(_)), None) => {
                    self.put(*to, new, node);
                    true
                }
                _ => false,
            },
            Step::Unlink(dir, name) => match self.get(*dir, name) {
                Some(Node::File(_)) => {
                    self.take(*dir, name);
                    true
                }
                _ => false,
            },
            Step::Rmdir(dir, name) => match self.get(*dir, name) {
                Some(Node::Directory(gone)) if self.directories[&gone].is_empty() => {
                    self.take(*dir, name);
                    self.directories.remove(&gone);
                    true
                }
                _ => false,
            },
            Step::Rename(dir, name, to, new, flags) => self.rename(*dir, name, *to, new, *flags),
        }
    }

    fn rename(&mut self, dir: usize, name: &str, to: usize, new: &str, flags: RenameFlags) -> bool {
        let Some(source) = self.get(dir, name) else {
            return false;
        };
        let target = self.get(to, new);
        if let Node::Directory(moved) = source
            && self.below(moved, to)
        {
            return false;
        }
        match (target, flags) {
            (Some(_), RenameFlags::NoReplace) | (None, RenameFlags::Exchange) => return false,
            (Some(other), RenameFlags::Exchange) => {
                if let Node::Directory(moved) = other
                    && self.below(moved, dir)
                {
                    return false;
                }
                self.put(dir, name, other);
                self.put(to, new, source);
                return true;
            }
            (Some(other), RenameFlags::Replace) if other == source => return true,
            (Some(other), RenameFlags::Replace) => match (source, other) {
                (Node::File(_), Node::File(_)) => {}
                (Node::Directory(_), Node::Directory(gone))
                    if self.directories[&gone].is_empty() =>
                {
                    self.directories.remove(&gone);
                }
                _ => return false,
            },
            (None, _) => {}
        }
        self.take(dir, name);
        self.put(to, new, source);
        true
    }
}

/// The same step on the service; directories are found by their number.
fn run(md: &Md, inos: &mut BTreeMap<usize, Ino>, model: &Model, step: &Step) -> bool {
    let dir = |number: &usize| inos[number];
    match step {
        Step::File(d, name) => make(md, dir(d), name, Kind::Object)
            .map(|ino| inos.insert(model.next, ino))
            .is_ok(),
        Step::Directory(d, name) => make(md, dir(d), name, Kind::Directory)
            .map(|ino| inos.insert(model.next, ino))
            .is_ok(),
        Step::Link(d, name, to, new) => md
            .lookup(dir(d), name.as_bytes())
            .and_then(|entry| md.link(entry.attr.ino, dir(to), new.as_bytes()))
            .is_ok(),
        Step::Unlink(d, name) => md.unlink(dir(d), name.as_bytes()).is_ok(),
        Step::Rmdir(d, name) => md.rmdir(dir(d), name.as_bytes()).is_ok(),
        Step::Rename(d, name, to, new, flags) => md
            .rename(dir(d), name.as_bytes(), dir(to), new.as_bytes(), *flags)
            .is_ok(),
    }
}

fn compare(md: &Md, inos: &BTreeMap<usize, Ino>, model: &Model) {
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    for (number, names) in &model.directories {
        let ino = inos[number];
        let mut listed = BTreeMap::new();
        let mut cookie = 0;
        loop {
            let page = md.readdir(ino, cookie, 3).unwrap();
            let Some(last) = page.last() else { break };
            cookie = last.cookie;
            for entry in page {
                let name = String::from_utf8(entry.name).unwrap();
                listed.insert(name, entry.entry.attr.ino);
            }
        }
        let expected: BTreeMap<_, _> = names
            .iter()
            .map(|(name, node)| match node {
                Node::Directory(n) | Node::File(n) => (name.clone(), inos[n]),
            })
            .collect();
        assert_eq!(listed, expected);
        let mut subdirectories = 0;
        for (name, node) in names {
            let found = md.lookup(ino, name.as_bytes()).unwrap().attr;
            assert_eq!(found.ino, listed[name]);
            match node {
                Node::Directory(n) => {
                    subdirectories += 1;
                    assert_eq!(md.lookup(inos[n], b"..").unwrap().attr.ino, ino);
                }
                Node::File(_) => *links.entry(found.ino).or_default() += 1,
            }
        }
        assert_eq!(
            md.call(op::GetAttr { ino }).unwrap().attr.nlink,
            2 + subdirectories
        );
    }
    for (ino, count) in &links {
        assert_eq!(
            md.call(op::GetAttr { ino: *ino }).unwrap().attr.nlink,
            *count
        );
    }
    let inodes = model.directories.len() + links.len();
    assert_eq!(md.call(op::StatFs {}).unwrap().inodes, inodes as u64);
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8, u8, u8, u8)>> {
    prop::collection::vec(any::<(u8, u8, u8, u8, u8, u8)>(), 1..60)
}

/// A step with directories that exist now.
fn pick(model: &Model, raw: (u8, u8, u8, u8, u8, u8)) -> Step {
    let directories: Vec<usize> = model.directories.keys().copied().collect();
    let dir = |pick: u8| directories[pick as usize % directories.len()];
    let name = |pick: u8| format!("n{}", pick % 5);
    let (what, d, n, to, new, flags) = raw;
    let flags = [
        RenameFlags::Replace,
        RenameFlags::NoReplace,
        RenameFlags::Exchange,
    ][flags as usize % 3];
    match what % 8 {
        0 => Step::File(dir(d), name(n)),
        1 | 2 => Step::Directory(dir(d), name(n)),
        3 => Step::Link(dir(d), name(n), dir(to), name(new)),
        4 => Step::Unlink(dir(d), name(n)),
        5 => Step::Rmdir(dir(d), name(n)),
        _ => Step::Rename(dir(d), name(n), dir(to), name(new), flags),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn names_behave_as_the_model(raw in steps()) {
        let (_service, md) = ready();
        let mut model = Model::new();
        let mut inos = BTreeMap::from([(0, ROOT)]);
        for raw in raw {
            let step = pick(&model, raw);
            let done = run(&md, &mut inos, &model, &step);
            prop_assert_eq!(done, model.step(&step), "{:?}", step);
        }
        compare(&md, &inos, &model);
    }

    #[test]
    fn names_survive_a_restart(raw in steps(), cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        let mut inos = BTreeMap::from([(0, ROOT)]);
        let (before, after) = raw.split_at(cut.index(raw.len()));
        for part in [before, after] {
            let service = service_in(dir.path());
            let md = attach(&service);
            compare(&md, &inos, &model);
            for raw in part {
                let step = pick(&model, *raw);
                let done = run(&md, &mut inos, &model, &step);
                prop_assert_eq!(done, model.step(&step), "{:?}", step);
            }
            service.close().unwrap();
        }
        let service = service_in(dir.path());
        compare(&attach(&service), &inos, &model);
    }
}
