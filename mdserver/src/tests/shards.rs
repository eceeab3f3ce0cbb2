//! Tests of a filesystem that is divided into shards: names in one service, objects in others; clients that leave things undone.

use proptest::prelude::*;
use slabfs_model::{ShardId, Tag};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::support::*;
use crate::api::{
    Birth, Entry, Ino, Kind, Links, MdError, NewObject, ROOT, RenameFlags, Shard, op,
};
use crate::client::{Md, Shards};
use crate::kv::MemoryKv;
use crate::{Service, ServiceOptions};

fn shard(index: u8, of: u8) -> Arc<Service> {
    let options = ServiceOptions {
        shard: Shard {
            index: ShardId(index),
            of,
        },
        ..quiet()
    };
    Arc::new(Service::over(Box::new(MemoryKv::new()), options).unwrap().0)
}

fn divided(of: u8) -> Vec<Arc<Service>> {
    (0..of).map(|index| shard(index, of)).collect()
}

fn mount(services: &[Arc<Service>]) -> Shards {
    Shards::new(services.iter().map(attach).collect())
}

fn missing(error: &MdError) -> bool {
    *error == MdError::NotFound
}

/// Creates a file and opens it, as a mount does.
fn create(shards: &Shards, name: &str) -> Result<Ino, MdError> {
    let mut create = new(ROOT, name, Kind::Object);
    create.exclusive = false;
    create.open = true;
    let (made, _) = shards.create::<(), MdError>(&create, |made| {
        let ino = made.entry.attr.ino;
        let md = shards.of(ino)?;
        let births: Vec<Birth> = made.birth.as_deref().cloned().into_iter().collect();
        let opened = match births.is_empty() {
            true => md.call(op::Open { ino }).map(Some),
            false => md
                .call(op::Adopt { births, open: true })
                .map(|entries| entries.into_iter().next()),
        };
        match opened {
            Err(MdError::NotFound) => Ok(None),
            opened => Ok(opened?.map(|entry| (entry, ()))),
        }
    })?;
    Ok(made.entry.attr.ino)
}

fn look(shards: &Shards, name: &str) -> Result<Entry, MdError> {
    let ino = shards.names().lookup(ROOT, name.as_bytes())?.attr.ino;
    let md = shards.of(ino)?;
    let found = shards.entry(ino, missing, || md.call(op::GetAttr { ino }))?;
    found.ok_or(MdError::NotFound)
}

/// Does all that is left to do, also what another mount may be about to do.
fn finish_all(shards: &Shards) {
    shards.finish(Duration::ZERO).unwrap();
}

#[test]
fn objects_are_in_other_shards_than_their_names() {
    let services = divided(3);
    let shards = mount(&services);
    let inos: Vec<Ino> = (0..8)
        .map(|at| create(&shards, &format!("f{at}")).unwrap())
        .collect();
    let of = |index| {
        inos.iter()
            .filter(|ino| ino.shard() == ShardId(index))
            .count()
    };
    assert_eq!([of(0), of(1), of(2)], [0, 4, 4]);
    for (at, ino) in inos.iter().enumerate() {
        let entry = look(&shards, &format!("f{at}")).unwrap();
        assert_eq!((entry.attr.ino, entry.attr.nlink), (*ino, 1));
        assert!(entry.info.is_some());
        shards.of(*ino).unwrap().release(vec![*ino]).unwrap();
    }
    let directory = make(shards.names(), ROOT, "d", Kind::Directory).unwrap();
    assert_eq!(directory.shard(), ShardId::NAMES);
    let lease = shards.all()[2].call(op::LeaseChunks { count: 2 }).unwrap();
    assert_eq!(lease.first.0 >> 44, 2);
    assert_eq!(shards.all()[1].session().shard(), ShardId(1));

    // Known to be complete, the shard of names has nothing but names.
    shards.report().unwrap();
    assert_eq!(
        shards
            .names()
            .call(op::Births { inos: inos.clone() })
            .unwrap(),
        []
    );
    let stub = shards.names().lookup(ROOT, b"f0").unwrap();
    assert_eq!(stub.info, None);

    shards.link(inos[0], directory, b"second".to_vec()).unwrap();
    assert_eq!(look(&shards, "f0").unwrap().attr.nlink, 2);
    shards.unlink(ROOT, b"f0".to_vec()).unwrap();
    let md = shards.of(inos[0]).unwrap();
    assert_eq!(md.call(op::GetAttr { ino: inos[0] }).unwrap().attr.nlink, 1);
    shards
        .rename(op::Rename {
            parent: ROOT,
            name: b"f1".to_vec(),
            new_parent: directory,
            new_name: b"second".to_vec(),
            flags: RenameFlags::Replace,
        })
        .unwrap();
    assert_eq!(
        md.call(op::GetAttr { ino: inos[0] }),
        Err(MdError::NotFound)
    );
}

#[test]
fn an_open_object_without_a_name_stays_until_it_is_closed() {
    let services = divided(2);
    let shards = mount(&services);
    let ino = create(&shards, "a").unwrap();
    shards.unlink(ROOT, b"a".to_vec()).unwrap();
    let md = shards.of(ino).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 0);
    md.release(vec![ino]).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
    // The name is free, and its next object another one.
    assert_ne!(create(&shards, "a").unwrap(), ino);
}

#[test]
fn a_name_whose_creator_died_has_its_object() {
    let services = divided(2);
    let shards = mount(&services);
    let dead = attach(&services[0]);
    let tag = Tag::text("climate");
    let object = NewObject {
        parent: ROOT,
        name: b"a".to_vec(),
        mode: 0o640,
        uid: 7,
        gid: 8,
        spec: Default::default(),
        tags: vec![("project".to_owned(), tag.clone())],
    };
    let inos = dead
        .call(op::CreateMany {
            objects: vec![object],
        })
        .unwrap();
    let entry = look(&shards, "a").unwrap();
    assert_eq!(
        (entry.attr.ino, entry.attr.mode, entry.attr.uid),
        (inos[0], 0o640, 7)
    );
    let md = shards.of(inos[0]).unwrap();
    assert_eq!(md.tags(inos[0]).unwrap(), [("project".to_owned(), tag)]);
    shards.report().unwrap();
    assert_eq!(shards.names().call(op::Births { inos }).unwrap(), []);

    // Without anyone who looks.
    let ino = dead
        .call(new(ROOT, "b", Kind::Object))
        .unwrap()
        .entry
        .attr
        .ino;
    let md = shards.of(ino).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
    shards.finish(Duration::from_secs(3600)).unwrap();
    assert_eq!(
        md.call(op::GetAttr { ino }),
        Err(MdError::NotFound),
        "it may be under way"
    );
    finish_all(&shards);
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 1);
}

#[test]
fn a_removed_object_is_not_created_by_a_late_request() {
    let services = divided(2);
    let shards = mount(&services);
    let slow = attach(&services[0]);
    let made = slow.call(new(ROOT, "a", Kind::Object)).unwrap();
    let (ino, birth) = (made.entry.attr.ino, *made.birth.unwrap());
    shards.unlink(ROOT, b"a".to_vec()).unwrap();
    let md = shards.of(ino).unwrap();
    let adopt = |open| {
        md.call(op::Adopt {
            births: vec![birth.clone()],
            open,
        })
    };
    assert_eq!(adopt(true).unwrap(), []);
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
    // The same if it had existed.
    let made = slow.call(new(ROOT, "b", Kind::Object)).unwrap();
    let births = vec![*made.birth.unwrap()];
    md.call(op::Adopt {
        births: births.clone(),
        open: false,
    })
    .unwrap();
    shards.unlink(ROOT, b"b".to_vec()).unwrap();
    let late = op::Adopt {
        births,
        open: false,
    };
    assert_eq!(md.call(late).unwrap(), []);
}

#[test]
fn an_old_number_of_links_has_no_effect() {
    let services = divided(2);
    let shards = mount(&services);
    let ino = create(&shards, "a").unwrap();
    shards.report().unwrap();
    shards.link(ino, ROOT, b"b".to_vec()).unwrap();
    let old = Links {
        ino,
        count: 1,
        change: 1,
        unborn: false,
    };
    let md = shards.of(ino).unwrap();
    md.call(op::SetLinks { links: vec![old] }).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 2);
    shards.unlink(ROOT, b"a".to_vec()).unwrap();
    shards.unlink(ROOT, b"b".to_vec()).unwrap();
    // It is open still: an old message must not give it a name again.
    md.call(op::SetLinks { links: vec![old] }).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }).unwrap().attr.nlink, 0);
    md.release(vec![ino]).unwrap();
    assert_eq!(md.call(op::GetAttr { ino }), Err(MdError::NotFound));
}

#[test]
fn births_that_do_not_fit_are_refused() {
    let services = divided(2);
    let shards = mount(&services);
    let made = shards.names().call(new(ROOT, "a", Kind::Object)).unwrap();
    let birth = *made.birth.unwrap();
    let md = &shards.all()[1];
    let refused = |change: &dyn Fn(&mut Birth)| {
        let mut wrong = birth.clone();
        change(&mut wrong);
        let adopt = op::Adopt {
            births: vec![wrong],
            open: true,
        };
        matches!(
            md.call(adopt),
            Err(MdError::Invalid(_) | MdError::TooBig(_))
        )
    };
    assert!(refused(&|birth| birth.entry.attr.ino = ROOT));
    assert!(refused(&|birth| birth.entry.attr.kind = Kind::Directory));
    assert!(refused(&|birth| birth.entry.info = None));
    assert!(refused(&|birth| {
        let info = birth.entry.info.as_mut().unwrap();
        info.dims = slabfs_model::Coords::from_slice(&[u64::MAX, u64::MAX]);
        info.max_dims = vec![slabfs_model::MaxDim::Unlimited; 2];
    }));
    assert!(refused(&|birth| {
        birth.entry.info.as_mut().unwrap().max_dims.clear();
    }));
    assert!(refused(&|birth| {
        let shape = slabfs_model::Coords::from_slice(&[0]);
        birth.entry.info.as_mut().unwrap().layout = slabfs_model::Layout::Grid(shape);
    }));
    assert!(!refused(&|_| ()));
}

#[test]
fn a_service_of_another_shard_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = |index, of| ServiceOptions {
        shard: Shard {
            index: ShardId(index),
            of,
        },
        ..quiet()
    };
    let (service, _) = Service::open(dir.path(), options(1, 3)).unwrap();
    service.close().unwrap();
    for (index, of) in [(0, 1), (1, 2), (2, 3)] {
        let error = Service::open(dir.path(), options(index, of)).unwrap_err();
        assert!(error.to_string().contains("shard 1 of 3"), "{error}");
    }
    let (service, _) = Service::open(dir.path(), options(1, 3)).unwrap();
    service.close().unwrap();
    // A filesystem with one service cannot be divided.
    let dir = tempfile::tempdir().unwrap();
    let (service, _) = Service::open(dir.path(), options(0, 1)).unwrap();
    service.close().unwrap();
    assert!(Service::open(dir.path(), options(0, 2)).is_err());
}

/// A mount whose requests to the shard of objects are lost from some moment on.
#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    Unlink(u8),
    Rename(u8, u8),
    Link(u8, u8),
    /// As the above, by a mount that dies after the first request.
    Dies(Box<Step>),
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..4_u8;
    let steps = prop_oneof![
        name.clone().prop_map(Step::Create),
        name.clone().prop_map(Step::Unlink),
        (name.clone(), name.clone()).prop_map(|(a, b)| Step::Rename(a, b)),
        (name.clone(), name).prop_map(|(a, b)| Step::Link(a, b)),
    ];
    (steps, any::<bool>()).prop_map(|(step, dies)| match dies {
        true => Step::Dies(Box::new(step)),
        false => step,
    })
}

fn run(shards: &Shards, step: &Step) {
    let name = |at: &u8| vec![b'a' + at];
    let result = match step {
        Step::Create(at) => create(shards, &char::from(b'a' + at).to_string())
            .and_then(|ino| shards.of(ino)?.release(vec![ino])),
        Step::Unlink(at) => shards.unlink(ROOT, name(at)),
        Step::Rename(from, to) => shards.rename(op::Rename {
            parent: ROOT,
            name: name(from),
            new_parent: ROOT,
            new_name: name(to),
            flags: RenameFlags::Replace,
        }),
        Step::Link(from, to) => shards
            .names()
            .lookup(ROOT, &name(from))
            .and_then(|entry| shards.link(entry.attr.ino, ROOT, name(to)).map(drop)),
        Step::Dies(step) => return run(shards, step),
    };
    let expected = [MdError::NotFound, MdError::Exists, MdError::SessionLost];
    if let Err(error) = result {
        assert!(expected.contains(&error), "{step:?}: {error}");
    }
}

/// The sessions of a mount whose sessions with the objects' shards are over.
fn dead(services: &[Arc<Service>]) -> Shards {
    let all = services.iter().enumerate().map(|(at, service)| {
        let md = attach(service);
        if at > 0 {
            md.call(op::Detach { clean: true }).unwrap();
        }
        md
    });
    Shards::new(all.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However many mounts leave things undone, in the end each name has its object with the right number of links, and no
    /// object is left without a name.
    #[test]
    fn names_and_objects_agree_in_the_end(steps in prop::collection::vec(step(), 1..40)) {
        let services = divided(3);
        let shards = mount(&services);
        let early = Cell::new(0);
        for step in &steps {
            match step {
                Step::Dies(_) => run(&dead(&services), step),
                step => run(&shards, step),
            }
            early.set(early.get() + 1);
            if early.get() % 7 == 0 {
                finish_all(&shards);
            }
        }
        finish_all(&shards);
        let mut names = std::collections::BTreeMap::new();
        let listed = shards
            .names()
            .call(op::ReadDir { ino: ROOT, cookie: 0, limit: 100 })
            .unwrap();
        for entry in listed {
            *names.entry(entry.entry.attr.ino).or_insert(0) += 1;
        }
        for (ino, count) in &names {
            let md: &Md = shards.of(*ino).unwrap();
            prop_assert_eq!(md.call(op::GetAttr { ino: *ino }).unwrap().attr.nlink, *count);
        }
        let mut objects = 0;
        for service in &services[1..] {
            // One of them is its root directory.
            let inodes = attach(service).call(op::StatFs {}).unwrap().inodes;
            objects += inodes as usize - 1;
        }
        prop_assert_eq!(objects, names.len());
        for service in &services {
            let mut found = Vec::new();
            crate::check::metadata(&*service.core().kv, &mut |finding| found.push(finding)).unwrap();
            prop_assert_eq!(found, vec![]);
        }
        prop_assert_eq!(shards.names().call(op::Unfinished { older_ms: 0 }).unwrap(), vec![]);
    }
}
