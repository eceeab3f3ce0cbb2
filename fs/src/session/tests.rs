//! Tests of sessions over a filesystem in this process: names, forms, tags, searches, data, and permissions.

use std::path::Path;
use std::time::Duration;

use super::*;

fn f4() -> DType {
    "f4".parse().unwrap()
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn names(container: &Container) -> Vec<String> {
    let mut names: Vec<String> = container
        .list()
        .unwrap()
        .map(|listed| listed.unwrap().name.into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn names_are_created_listed_renamed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let run = session.create_container("run1").unwrap();
    assert_eq!(kind(session.create_container("run1")), ErrorKind::Exists);
    assert_eq!(
        kind(session.create_container("no/run")),
        ErrorKind::NotFound
    );
    assert_eq!(kind(session.create_container(".slabfs")), ErrorKind::Denied);
    let spec = ObjectSpec::array([4], f4());
    run.create("temp", &spec).unwrap().close().unwrap();
    run.create("name@@[x", &spec).unwrap().close().unwrap();
    assert_eq!(kind(run.create("temp", &spec)), ErrorKind::Exists);
    assert_eq!(kind(run.create("temp@[0]", &spec)), ErrorKind::Invalid);
    // With no object `part` to select from, this is an ordinary name.
    run.create("part@[0]", &spec).unwrap().close().unwrap();
    assert_eq!(names(&run), ["name@@[x", "part@[0]", "temp"]);
    assert_eq!(kind(run.container("temp")), ErrorKind::NotContainer);
    assert_eq!(
        kind(session.open("run1", Access::Read)),
        ErrorKind::IsContainer
    );
    assert_eq!(
        kind(session.open("run1/none", Access::Read)),
        ErrorKind::NotFound
    );
    assert_eq!(kind(session.root().remove("run1")), ErrorKind::NotEmpty);

    let root = session.root();
    root.rename("run1", "run2", RenameFlags::NoReplace).unwrap();
    // The container is the same under its new name.
    assert_eq!(run.stat("temp").unwrap().size, 16);
    assert_eq!(root.stat("/run2/temp").unwrap().kind, Kind::Object);
    let taken = run.rename("temp", "name@@[x", RenameFlags::NoReplace);
    assert_eq!(kind(taken), ErrorKind::Exists);
    run.rename("temp", "name@@[x", RenameFlags::Replace)
        .unwrap();
    run.remove("name@@[x").unwrap();
    run.remove("part@[0]").unwrap();
    assert_eq!(names(&run), [] as [&str; 0]);
    root.remove("run2").unwrap();
    assert_eq!(kind(run.stat("temp")), ErrorKind::NotFound);
    session.close().unwrap();
    assert_eq!(kind(root.stat("")), ErrorKind::Closed);
}

#[test]
fn selections_move_bytes_both_ways() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let spec = ObjectSpec::array([4, 6], "u1".parse().unwrap()).fill("9");
    let object = session.create("a", &spec).unwrap();
    object.write("[1:3,::2]", &[1, 2, 3, 4, 5, 6]).unwrap();
    object
        .write(Region::new(&[3, 0], &[1, 2]), &[7, 8])
        .unwrap();
    let all = [
        9, 9, 9, 9, 9, 9, //
        1, 9, 2, 9, 3, 9, //
        4, 9, 5, 9, 6, 9, //
        7, 8, 9, 9, 9, 9,
    ];
    assert_eq!(object.read(Select::All).unwrap(), all);
    // Columns in Fortran order.
    let mut columns = [0; 4];
    let select = || Region::new(&[1, 0], &[2, 2]);
    object
        .read_into(select(), &mut columns, &Memory::strides([1, 2]))
        .unwrap();
    assert_eq!(columns, [1, 4, 9, 9]);
    object
        .write_from(select(), &[1, 2, 3, 4], &Memory::strides([1, 2]))
        .unwrap();
    assert_eq!(object.read("[1:3,:2]").unwrap(), [1, 3, 2, 4]);

    assert_eq!(object.read("[3:9,1:99]").unwrap(), [8, 9, 9, 9, 9]);
    for wrong in ["[4]", "[0,0,0]", "0:2", "[x]"] {
        assert_eq!(kind(object.read(wrong)), ErrorKind::Invalid, "{wrong}");
    }
    let short = object.write("[0]", &[1, 2, 3]);
    assert!(
        short
            .as_ref()
            .is_err_and(|error| error.to_string().contains("6 bytes")),
        "{short:?}"
    );
    assert_eq!(
        kind(object.read(Region::new(&[3, 0], &[2, 1]))),
        ErrorKind::Invalid
    );
    object.sync().unwrap();
    object.close().unwrap();

    let reader = session.open("a", Access::Read).unwrap();
    assert_eq!(kind(reader.write("[0]", &[0; 6])), ErrorKind::ReadOnly);
    let writer = session.open("a", Access::Write).unwrap();
    assert_eq!(kind(writer.read("[0]")), ErrorKind::Invalid);
    // The data outlasts the session.
    drop((reader, writer));
    session.close().unwrap();
    drop(session);
    let again = Session::alone(dir.path()).unwrap();
    let object = again.open("a", Access::Read).unwrap();
    assert_eq!(object.read("[3]").unwrap(), [7, 8, 9, 9, 9, 9]);
}

#[test]
fn data_written_in_parts_becomes_one_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let spec = ObjectSpec::array([8, 8], "u1".parse().unwrap());
    let object = session.create("a", &spec).unwrap();
    for row in 0..8u8 {
        let region = Region::new(&[u64::from(row), 0], &[1, 4]);
        object.write(region, &[row; 4]).unwrap();
    }
    object.flush().unwrap();
    let client = session.client().unwrap();
    assert_eq!(client.names().md().requests().commits, 1);
    assert_eq!(object.read("[::7,3]").unwrap(), [0, 7]);
}

#[test]
fn forms_are_set_copied_and_changed() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let spec = ObjectSpec::new()
        .with("dims", "2,8")
        .and_then(|spec| spec.with("max_dims", "unlimited,8"))
        .and_then(|spec| spec.with("dtype", "f4"))
        .and_then(|spec| spec.with("codec", "shuffle+zstd:3"))
        .unwrap();
    let object = session.create("a", &spec).unwrap();
    object.set_dims([5, 8]).unwrap();
    assert_eq!(object.dims().unwrap().as_slice(), [5, 8]);
    assert_eq!(object.size(), 5 * 8 * 4);
    assert_eq!(kind(object.set_dims([5, 9])), ErrorKind::Invalid);
    assert_eq!(kind(object.set_dims([5])), ErrorKind::Invalid);
    let array = object.stat().unwrap().array.unwrap();
    assert_eq!(array.codec.to_string(), "shuffle+zstd:3");
    assert_eq!(array.max_dims[0], MaxDim::Unlimited);

    let like = ObjectSpec::new()
        .dims([3])
        .like(&object.stat().unwrap())
        .unwrap();
    let other = session.create("b", &like).unwrap();
    let array = other.stat().unwrap().array.unwrap();
    assert_eq!((array.dims.as_slice(), array.dtype), (&[3][..], f4()));
    let bytes = session.create("plain", &ObjectSpec::new()).unwrap();
    assert_eq!(
        kind(ObjectSpec::new().like(&bytes.stat().unwrap())),
        ErrorKind::Invalid
    );
    bytes.declare(&ObjectSpec::array([7], f4())).unwrap();
    assert_eq!(bytes.size(), 28);

    for (property, text) in [
        ("dims", "x"),
        ("dtype", "q9"),
        ("colour", "red"),
        ("chunks", "3"),
    ] {
        let wrong = ObjectSpec::new().with(property, text);
        assert_eq!(kind(wrong), ErrorKind::Invalid, "{property}");
    }
    let untyped = session.create("c", &ObjectSpec::new().dims([3]));
    assert!(untyped.is_err_and(|error| error.to_string().contains("dtype")));
}

#[test]
fn many_objects_are_created_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let run = session.create_container("run").unwrap();
    let spec = ObjectSpec::array([4], f4());
    let names = |from: u32, to: u32| (from..to).map(|n| (format!("o{n}"), spec.clone()));
    assert_eq!(run.create_many(names(0, 1500)).unwrap(), 1500);
    assert_eq!(run.list().unwrap().count(), 1500);
    let error = run.create_many(names(1490, 1510).rev()).unwrap_err();
    assert_eq!(
        (error.kind(), error.index()),
        (ErrorKind::Exists, Some(10)),
        "{error}"
    );
    assert_eq!(kind(run.stat("o1505")), ErrorKind::NotFound);
    let modes = ["a", "b", "o0"].map(|name| (name, spec.clone()));
    let [first, rest @ ..] = modes;
    let modes = [(first.0, first.1.mode(0o600))].into_iter().chain(rest);
    assert_eq!(run.create_many(modes).unwrap_err().index(), Some(2));
    assert_eq!(kind(run.stat("a")), ErrorKind::NotFound);
}

#[test]
fn tags_and_searches() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let run = session.create_container("run").unwrap();
    for step in 0..6 {
        let spec = ObjectSpec::array([4], f4()).tag("step", Tag::int(step));
        run.create(format!("o{step}"), &spec).unwrap();
    }
    let found = |query: &Query| -> Vec<String> {
        let found = session.find(query).unwrap();
        found
            .iter()
            .map(|found| found.path.display().to_string())
            .collect()
    };
    let query = Query::new("step >= 2").sort("step").limit(2);
    assert_eq!(found(&query), ["run/o2", "run/o3"]);
    let shares: u64 = (0..3)
        .map(|part| {
            session
                .count(&Query::new("has step").part(part, 3))
                .unwrap()
        })
        .sum();
    assert_eq!(shares, 6);
    assert_eq!(
        kind(session.find(&Query::new("step >"))),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(session.find(&Query::new("has step").below("none"))),
        ErrorKind::NotFound
    );

    let edit = |path: &str, value: i64| TagEdit {
        path: path.into(),
        set: vec![
            ("new".into(), Tag::int(value)),
            ("note".into(), Tag::text("x")),
        ],
        remove: vec!["step".into()],
    };
    run.tag([edit("", 1), edit("o0", 2)]).unwrap();
    assert_eq!(
        run.tags("o0").unwrap(),
        [("new".into(), Tag::int(2)), ("note".into(), Tag::text("x"))]
    );
    assert_eq!(found(&Query::new("new = 1 and kind = container")), ["run"]);
    let error = run.tag([edit("o1", 1), edit("none", 2)]).unwrap_err();
    assert_eq!(
        (error.kind(), error.index()),
        (ErrorKind::NotFound, Some(1))
    );
    assert_eq!(run.tags("o1").unwrap(), [("step".into(), Tag::int(1))]);

    let object = session.open("run/o1", Access::Read).unwrap();
    object
        .tag(vec![("k".into(), Tag::text("v"))], vec![])
        .unwrap();
    assert_eq!(object.tags().unwrap().len(), 2);
    let hits = session
        .find(&Query::new("k = v").with_tags().with_array())
        .unwrap();
    assert_eq!((hits.len(), hits[0].tags.len()), (1, 2));
    assert_eq!(hits[0].array.as_ref().unwrap().1.as_slice(), [4]);
}

/// Transfers that were made before the session was closed fail with `Closed` when they are started.
#[test]
fn a_transfer_started_after_the_end_of_its_session_fails_with_closed() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let object = session
        .create("late", &ObjectSpec::array([4], f4()))
        .unwrap();
    let mut write = object
        .write_transfer("[:]", &Memory::packed(), vec![1u8; 16])
        .unwrap();
    let batch = [Batch::data(Place::at(0), Place::at(0), 4)];
    let mut read = object
        .read_batch_transfer(&batch, Unit::Bytes, vec![0u8; 4])
        .unwrap();
    session.close().unwrap();
    for error in [write.start(), read.start()] {
        assert_eq!(kind(error.map_err(Error::from)), ErrorKind::Closed);
    }
    assert_eq!(kind(write.wait().map_err(Error::from)), ErrorKind::Closed);
    assert_eq!(kind(object.read("[:]")), ErrorKind::Closed);
    assert_eq!(kind(object.sync()), ErrorKind::Closed);
}

/// A right that another mount withholds is a transient error, not a loss.
#[test]
fn a_timeout_while_waiting_for_another_mount_is_transient() {
    let withheld = Error::from(FsError::Withheld(std::time::Duration::from_secs(1)));
    assert!(withheld.is_transient());
    assert_eq!(withheld.kind(), ErrorKind::Busy);
    let silent = Error::from(FsError::Lapsed(std::time::Duration::from_secs(1)));
    assert_eq!(silent.kind(), ErrorKind::Unavailable);
}

/// A session of another user over the services of `session`; closing it leaves the services running.
fn of_user(session: &Session, uid: u32) -> Session {
    Session {
        inner: Arc::new(Inner {
            client: session.client().unwrap().clone(),
            caller: Caller {
                uid,
                gid: uid,
                groups: vec![],
            },
            closed: AtomicBool::new(false),
            alone: Mutex::new(None),
        }),
    }
}

#[test]
fn other_users_may_do_what_the_modes_allow() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let client = session.client().unwrap().clone();
    let chmod = |path: &str, mode: u32| {
        let set = slabfs_mdserver::api::SetAttr {
            mode: Some(mode),
            ..Default::default()
        };
        let ino = slabfs_model::ObjectId(session.root().stat(path).unwrap().ino);
        client.setattr(ino, set, None).unwrap();
    };
    chmod("", 0o1777);
    let (ann, bob) = (of_user(&session, 5001), of_user(&session, 5002));
    let spec = ObjectSpec::array([4], f4()).mode(0o640);
    ann.create("anns", &spec).unwrap();
    ann.create_container("open").unwrap();
    chmod("open", 0o733);
    chmod("anns", 0o640);
    assert_eq!(kind(bob.open("anns", Access::Read)), ErrorKind::Denied);
    chmod("anns", 0o644);
    let object = bob.open("anns", Access::Read).unwrap();
    assert_eq!(kind(bob.open("anns", Access::ReadWrite)), ErrorKind::Denied);
    assert_eq!(kind(object.set_dims([4])), ErrorKind::Denied);
    assert_eq!(
        kind(object.tag(vec![("k".into(), Tag::int(1))], vec![])),
        ErrorKind::Denied
    );
    // The root is sticky.
    assert_eq!(kind(bob.root().remove("anns")), ErrorKind::Denied);
    let away = bob.root().rename("anns", "bobs", RenameFlags::Replace);
    assert_eq!(kind(away), ErrorKind::Denied);
    // Bob may create entries in Ann's container, but neither list nor move it.
    bob.create("open/bobs", &spec).unwrap();
    let open = bob.container("open").unwrap();
    assert!(
        open.list()
            .is_err_and(|error| error.kind() == ErrorKind::Denied)
    );
    assert_eq!(bob.count(&Query::new("name = bobs")).unwrap(), 0);
    assert_eq!(session.count(&Query::new("name = bobs")).unwrap(), 1);
    ann.root().remove("anns").unwrap();
}

#[test]
fn a_session_is_unusable_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let object = session.create("a", &ObjectSpec::array([4], f4())).unwrap();
    object.write("[0]", &[1; 4]).unwrap();
    assert!(Session::alone(dir.path()).is_err(), "two on one directory");
    session.close().unwrap();
    session.close().unwrap();
    assert_eq!(kind(object.read("[0]")), ErrorKind::Closed);
    assert_eq!(kind(object.sync()), ErrorKind::Closed);
    drop(object);
    drop(session);
    let again = Session::alone(dir.path()).unwrap();
    assert_eq!(
        again
            .open(Path::new("a"), Access::Read)
            .unwrap()
            .read("[0]")
            .unwrap(),
        [1; 4]
    );
    assert_eq!(again.servers().unwrap().len(), 1);
}

#[test]
fn limits_that_cannot_work_are_refused() {
    let to = || ConnectOptions::to("unix:/nowhere/at/all");
    for (options, least) in [
        (to().io_timeout(Duration::from_millis(1)), "100 ms"),
        (to().io_timeout(Duration::MAX), "a year"),
        (to().dirty_limit(5), "1 MiB"),
    ] {
        let error = Session::connect(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(least), "{error}");
    }
}

#[test]
fn a_transfer_of_a_closed_object_fails_with_closed() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::alone(dir.path()).unwrap();
    let object = session.create("a", &ObjectSpec::array([4], f4())).unwrap();
    let mut write = object
        .write_transfer("[:]", &Memory::packed(), vec![1u8; 16])
        .unwrap();
    object.close().unwrap();
    let error = Error::from(write.start().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.to_string().contains("object was closed"), "{error}");
}
