//! Tests of the defaults of containers, and of the creation of many objects at once.

use slabfs_model::{DType, Tag};

use super::support::*;
use crate::Service;
use crate::api::{
    DefaultKey, Defaults, DefaultsChange, Ino, Kind, MAX_CREATE, MdError, NewObject, Op, ROOT,
    Reply, Request, SpecChange, op,
};
use crate::client::Md;

fn dtype(text: &str) -> SpecChange {
    SpecChange {
        dtype: Some(text.parse::<DType>().unwrap()),
        ..SpecChange::default()
    }
}

fn dims(text: &str) -> SpecChange {
    SpecChange {
        dims: Some(slabfs_model::parse_dims(text).unwrap()),
        ..SpecChange::default()
    }
}

fn set(md: &Md, ino: Ino, spec: SpecChange, tags: &[(&str, i64)]) -> Result<Defaults, MdError> {
    let tags = tags
        .iter()
        .map(|&(key, value)| (key.to_owned(), Tag::int(value)))
        .collect();
    md.call(op::SetDefaults {
        ino,
        change: DefaultsChange {
            clear: vec![],
            set: Defaults { spec, tags },
        },
    })
}

fn new_in(parent: Ino, name: &str, spec: SpecChange) -> NewObject {
    NewObject {
        parent,
        name: name.as_bytes().to_vec(),
        mode: 0o644,
        uid: 1,
        gid: 2,
        spec,
        tags: vec![],
    }
}

#[test]
fn containers_hand_their_defaults_down() {
    let (_service, md) = ready();
    let run = make(&md, ROOT, "run", Kind::Directory).unwrap();
    let spec = SpecChange {
        codec: Some("lz4".parse().unwrap()),
        ..dtype("f4")
    };
    set(&md, run, spec, &[("b", 1), ("a", 2)]).unwrap();
    let inner = make(&md, run, "inner", Kind::Directory).unwrap();
    // The outer container changes; the inner one keeps the defaults that it was given.
    let cleared = DefaultsChange {
        clear: vec![DefaultKey::All],
        set: Defaults::default(),
    };
    assert!(
        md.call(op::SetDefaults {
            ino: run,
            change: cleared
        })
        .unwrap()
        .is_empty()
    );
    assert_eq!(
        md.call(op::GetDefaults { ino: inner }).unwrap().tags.len(),
        2
    );
    assert!(md.call(op::GetDefaults { ino: ROOT }).unwrap().is_empty());

    let object = make(&md, inner, "temp", Kind::Object).unwrap();
    let now = info(md.call(op::GetAttr { ino: object }).unwrap());
    assert!(!now.declared && !now.codec.is_none());
    let keys: Vec<String> = md.tags(object).unwrap().into_iter().map(|t| t.0).collect();
    assert_eq!(keys, ["a", "b"]);
    let now = info(md.declare(object, dims("4,4"), None).unwrap());
    assert_eq!((now.dtype.to_string().as_str(), now.declared), ("f4", true));
    assert!(!now.codec.is_none());
    // Once declared, the object no longer follows the defaults.
    let now = info(md.declare(object, dtype("i8"), None).unwrap());
    assert_eq!(now.dtype.to_string(), "i8");
    // Objects of other kinds get no defaults.
    let link = make(&md, inner, "link", Kind::Symlink).unwrap();
    assert!(md.tags(link).unwrap().is_empty());
}

#[test]
fn defaults_are_of_containers_and_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let object;
    {
        let service = service_in(dir.path());
        let md = attach(&service);
        set(&md, ROOT, dtype("f4"), &[("a", 1)]).unwrap();
        object = file(&md, "x");
        assert_eq!(
            set(&md, object, dtype("f4"), &[]),
            Err(MdError::NotDirectory)
        );
        assert_eq!(
            md.call(op::GetDefaults { ino: object }),
            Err(MdError::NotDirectory)
        );
        assert!(set(&md, ROOT, dims("4"), &[]).is_err());
        service.close().unwrap();
    }
    let service = service_in(dir.path());
    let md = attach(&service);
    assert_eq!(
        md.call(op::GetDefaults { ino: ROOT }).unwrap().spec,
        dtype("f4")
    );
    let now = info(md.declare(object, dims("4"), None).unwrap());
    assert_eq!(now.dtype.to_string(), "f4");
}

#[test]
fn many_at_once_or_none() {
    let (_service, md) = ready();
    let run = make(&md, ROOT, "run", Kind::Directory).unwrap();
    set(&md, run, dtype("f4"), &[("a", 1)]).unwrap();
    let mut objects: Vec<NewObject> = (0..100)
        .map(|i| {
            new_in(
                if i % 2 == 0 { run } else { ROOT },
                &format!("o{i}"),
                dims("4,4"),
            )
        })
        .collect();
    objects[2].tags = vec![("a".to_owned(), Tag::int(9)), ("c".to_owned(), Tag::int(3))];
    let made = md.create_many(objects.clone()).unwrap();
    assert_eq!(made.len(), 100);
    let attr = md.lookup(run, b"o2").unwrap();
    assert_eq!((attr.attr.ino, attr.attr.size), (made[2], 64));
    let tags = md.tags(made[2]).unwrap();
    assert_eq!(tags[0].1, Tag::int(9));
    assert_eq!(tags.len(), 2);
    assert_eq!(
        info(md.lookup(ROOT, b"o1").unwrap()).dtype.to_string(),
        "u1"
    );
    assert_eq!(md.call(op::GetAttr { ino: run }).unwrap().attr.nlink, 2);

    // One name exists already: nothing is created.
    let more: Vec<NewObject> = [new_in(run, "p", dims("4")), objects[4].clone()].into();
    let error = md.create_many(more).unwrap_err();
    assert_eq!(
        error,
        MdError::At {
            index: 1,
            error: Box::new(MdError::Exists)
        }
    );
    assert_eq!(md.lookup(run, b"p").unwrap_err(), MdError::NotFound);
    // The same name twice in one request, too.
    let twice = vec![new_in(run, "q", dims("4")), new_in(run, "q", dims("4"))];
    assert!(matches!(
        md.create_many(twice),
        Err(MdError::At { index: 1, .. })
    ));
    let wrong = SpecChange {
        fill: Some("red".to_owned()),
        ..dims("4")
    };
    assert!(matches!(
        md.create_many(vec![new_in(run, "q", wrong)]),
        Err(MdError::At { index: 0, .. })
    ));
    let many = (0..=MAX_CREATE)
        .map(|i| new_in(run, &format!("m{i}"), dims("4")))
        .collect();
    assert!(matches!(md.create_many(many), Err(MdError::Invalid(_))));
    for i in (0..100).rev() {
        let parent = if i % 2 == 0 { run } else { ROOT };
        md.unlink(parent, format!("o{i}").as_bytes()).unwrap();
    }
    md.rmdir(ROOT, b"run").unwrap();
}

#[test]
fn a_batch_that_is_sent_again_happens_once() {
    let (service, _) = ready();
    let metadata = std::sync::Arc::new(Remote(service.clone()));
    let md = Md::attach(metadata.clone(), "there", 2, false).unwrap().0;
    let request = Request {
        session: md.session(),
        seq: 1,
        done_below: 1,
        op: Op::CreateMany(op::CreateMany {
            objects: vec![new_in(ROOT, "a", dims("4")), new_in(ROOT, "b", dims("4"))],
        }),
    };
    let first = service.call_remote(request.clone()).unwrap();
    assert!(matches!(&first, Reply::CreatedMany(made) if made.len() == 2));
    assert_eq!(service.call_remote(request).unwrap(), first);
}

/// A caller whose requests are handled as if they came over a socket.
struct Remote(std::sync::Arc<Service>);

impl crate::api::Metadata for Remote {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        self.0.call_remote(request)
    }

    fn session_count(&self) -> u32 {
        1
    }
}
