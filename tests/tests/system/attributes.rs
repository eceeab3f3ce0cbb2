//! `user.slabfs.*` attributes: declaring arrays by `setfattr`, which changes are allowed when, copies that stay
//! arrays, tags.

use std::fs::File;
use std::path::Path;

use nix::errno::Errno;
use slabfs_tests::file::{self, errno};
use slabfs_tests::tool::{create, info, shell, slabfs};
use slabfs_tests::{Up, needs_mount};

fn set(path: &Path, name: &str, value: &str) -> std::io::Result<()> {
    file::set_xattr(path, &format!("user.slabfs.{name}"), value, 0)
}

fn get(path: &Path, name: &str) -> String {
    file::xattr(path, &format!("user.slabfs.{name}"))
}

#[test]
fn touch_and_setfattr_declare() {
    needs_mount!();
    let mut up = Up::start();
    for (name, order) in [("a", ["dtype", "dims"]), ("b", ["dims", "dtype"])] {
        let path = up.at(name);
        file::write(&path, "");
        for attribute in order {
            set(
                &path,
                attribute,
                if attribute == "dims" { "16,16" } else { "f4" },
            )
            .expect(attribute);
        }
        assert_eq!(
            (get(&path, "dims").as_str(), get(&path, "dtype").as_str()),
            ("16,16", "f4"),
            "{order:?}"
        );
        assert_eq!(path.metadata().expect("metadata").len(), 1024);
        assert_eq!(file::read(&path), [0; 1024]);
    }
    let path = up.at("all");
    file::write(&path, "");
    set(&path, "dtype", "<i2").expect("dtype");
    set(&path, "fill", "-2").expect("fill");
    set(&path, "codec", "shuffle+zstd:3").expect("codec");
    set(&path, "dims", "3,4").expect("dims");
    set(&path, "max_dims", "unlimited,4").expect("max dims");
    up.restart();
    assert_eq!(file::read(&path), [0xfe, 0xff].repeat(12));
    assert_eq!(get(&path, "max_dims"), "unlimited,4");
    assert_eq!(
        (get(&path, "fill").as_str(), get(&path, "codec").as_str()),
        ("-2", "shuffle+zstd:3")
    );
    assert_eq!(get(&path, "layout"), "aligned");
    assert_eq!(get(&path, "chunks"), "0");
    assert!(get(&path, "version").parse::<u64>().is_ok());
    let grid = up.at("grid");
    file::write(&grid, "");
    set(
        &grid,
        "spec",
        r#"{"dtype":"f8","dims":[20,30],"layout":"grid:8,8"}"#,
    )
    .expect("a spec");
    assert_eq!(
        (get(&grid, "layout").as_str(), get(&grid, "dims").as_str()),
        ("grid:8,8", "20,30")
    );
}

/// Tools that write the data first and set attributes afterwards preserve arrays.
#[test]
fn bytes_first_and_dims_afterwards() {
    needs_mount!();
    let mut up = Up::start();
    let bytes: Vec<u8> = (0..240_u8).collect();
    let path = up.at("late");
    file::write(&path, &bytes);
    assert_eq!(
        errno(set(&path, "dims", "7,9")),
        Errno::EINVAL,
        "not the bytes there are"
    );
    assert_eq!(
        errno(set(&path, "dtype", "V7")),
        Errno::EINVAL,
        "not a multiple of the element size"
    );
    set(&path, "dtype", "f4").expect("dtype");
    set(&path, "dims", "6,10").expect("dims that fit");
    assert_eq!(file::read(&path), bytes);
    assert_eq!(file::read(&file::named(&path, "@[5,9]")), &bytes[236..]);
    up.restart();
    assert_eq!(
        (file::read(&path), get(&path, "dims")),
        (bytes, "6,10".to_owned())
    );
    assert_eq!(
        errno(set(&path, "dims", "60")),
        Errno::EINVAL,
        "an array with data keeps its dims"
    );
    assert_eq!(errno(set(&path, "dtype", "f8")), Errno::EINVAL);
}

#[test]
fn wrong_values_are_refused_and_change_nothing() {
    needs_mount!();
    let up = Up::with(&["-v"]);
    let path = up.at("f");
    file::write(&path, "");
    for (name, values) in [
        (
            "dims",
            vec![
                "x",
                "-1",
                "1.5",
                "3,,4",
                "4294967296,4294967296",
                "99999999999999999999",
                &["2"; 33].join(","),
            ],
        ),
        (
            "dtype",
            vec!["", "flt", "f3", "i16", "S0", "V99999999", "ü"],
        ),
        ("max_dims", vec!["many", "-3"]),
        ("fill", vec!["red", "0xzz"]),
        (
            "layout",
            vec!["tiles", "grid", "grid:", "grid:0,8", "grid:a"],
        ),
        ("codec", vec!["gzip", "zstd:99", "deflate:10", "shuffle"]),
        (
            "spec",
            vec![
                "dims",
                "[]",
                r#"{"dims":"2,2","dtype":"nope"}"#,
                r#"{"sizes":"2"}"#,
            ],
        ),
        ("nonsense", vec!["1"]),
        ("chunks", vec!["5"]),
        ("version", vec!["5"]),
        ("info", vec!["{}"]),
    ] {
        for value in values {
            let error = errno(set(&path, name, value));
            let named = matches!(
                error,
                Errno::EINVAL | Errno::EFBIG | Errno::EPERM | Errno::EOPNOTSUPP
            );
            assert!(named, "{name}={value:?}: {error}");
        }
    }
    assert!(
        up.log().contains("user.slabfs.dims"),
        "the log says why:\n{}",
        up.log()
    );
    assert_eq!(info(&path)["kind"], "byte object");
    file::write(&path, "still a plain file");
    assert_eq!(file::list_xattrs(&path), Vec::<String>::new());
    std::fs::create_dir(up.at("d")).expect("made");
    assert!(
        set(&up.at("d"), "dims", "3").is_err(),
        "a directory is no array"
    );
}

#[test]
fn copies_stay_arrays() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("a");
    create(
        &object,
        "8,9",
        "i2",
        &["--fill", "3", "--max-dims", "unlimited,9", "--codec", "lz4"],
    );
    file::write(&file::named(&object, "@[2:4]"), [7; 36]);
    file::set_xattr(&object, "user.project", "climate", 0).expect("a tag");
    let same = |copy: &Path| {
        assert_eq!(file::read(copy), file::read(&object));
        for name in ["dims", "dtype", "fill", "max_dims", "codec"] {
            assert_eq!(get(copy, name), get(&object, name), "{name}");
        }
        assert_eq!(file::xattr(copy, "user.project"), "climate");
    };
    shell(
        up.mnt(),
        "cp -a a cp; rsync -aX a rs 2>/dev/null || rsync -a a rs; mkdir d; mv a d/; mv d/a a",
    )
    .ok();
    same(&up.at("cp"));
    assert_eq!(file::read(&up.at("rs")), file::read(&object));
    shell(up.area().path(), "tar -C m --xattrs --xattrs-include='*' -cf t.tar a; mkdir m/x; tar -C m/x --xattrs --xattrs-include='*' -xf t.tar").ok();
    same(&up.at("x/a"));
    shell(up.mnt(), "cat a > plain; cmp a plain").ok();
    assert_eq!(info(&up.at("plain"))["kind"], "byte object");
}

#[test]
fn renaming_replaces_dims_and_all() {
    needs_mount!();
    let up = Up::start();
    let (array, plain) = (up.at("array"), up.at("plain"));
    create(&array, "4,4", "f8", &[]);
    file::write(&plain, "text");
    std::fs::rename(&plain, &array).expect("renamed");
    assert_eq!(
        (file::read(&array).as_slice(), &info(&array)["kind"]),
        (&b"text"[..], &serde_json::json!("byte object"))
    );
}

#[test]
fn tags() {
    needs_mount!();
    let mut up = Up::start();
    create(&up.at("a"), "4", "u1", &[]);
    for (path, value) in [(up.at("a"), "12"), (up.mnt().to_owned(), "on the root")] {
        file::set_xattr(&path, "user.step", value, 0).expect("a tag");
    }
    up.restart();
    assert_eq!(
        (
            file::xattr(&up.at("a"), "user.step").as_str(),
            file::xattr(up.mnt(), "user.step").as_str()
        ),
        ("12", "on the root")
    );
    assert!(file::list_xattrs(&up.at("a")).contains(&"user.step".to_owned()));
    assert_eq!(
        errno(file::set_xattr(&up.at("a"), "system.nonsense", "x", 0)),
        Errno::EOPNOTSUPP
    );
}

/// `setfattr` gives tags the types that `slabfs tag` gives them, and reads back what was set.
#[test]
fn tags_have_the_types_of_their_values() {
    needs_mount!();
    let up = Up::start();
    let a = up.at("a");
    create(&a, "4", "u1", &[]);
    for (name, value) in [
        ("int", "3"),
        ("float", "-2.5"),
        ("text", "climate"),
        ("list", "[1,2.5,\"a\"]"),
        ("zeros", "007"),
        ("spaced", "[1, 2]"),
        ("open", "[1"),
        ("step:string", "3"),
        ("run:int", "12"),
        ("any:auto", "4"),
        ("dc:title", "5"),
    ] {
        let name = format!("user.{name}");
        file::set_xattr(&a, &name, value, 0).expect("a tag");
        assert_eq!(file::xattr(&a, &name), value, "{name}");
    }
    let tags = slabfs(["tags", "--json", "--typed", a.to_str().expect("text")]).ok();
    assert_eq!(
        tags.json(),
        serde_json::json!({
            "int": 3, "float": -2.5, "text": "climate", "list": [1, 2.5, "a"],
            "zeros": {"auto": "007"}, "spaced": {"auto": "[1, 2]"}, "open": {"auto": "[1"},
            "step": "3", "run": 12, "any": {"auto": "4"}, "dc:title": 5,
        })
    );
    // The type is no part of the name that is listed, and of another type there is none.
    let names = file::list_xattrs(&a);
    assert!(names.contains(&"user.run".to_owned()) && !names.contains(&"user.run:int".to_owned()));
    assert_eq!(errno(file::get_xattr(&a, "user.run:text")), Errno::ENODATA);
    assert_eq!(
        errno(file::set_xattr(&a, "user.run:int", "3.5", 0)),
        Errno::EINVAL
    );
    assert_eq!(
        errno(file::set_xattr(&a, "user.run:int", "1", libc::XATTR_CREATE)),
        Errno::EEXIST
    );
    file::remove_xattr(&a, "user.run:int").expect("removed");
    assert_eq!(errno(file::get_xattr(&a, "user.run")), Errno::ENODATA);
}

/// Every listed attribute can be read; only attributes that describe an array are listed.
#[test]
fn listings() {
    needs_mount!();
    let up = Up::start();
    create(&up.at("a"), "4,4", "f4", &["--max-dims", "9,9"]);
    let names = file::list_xattrs(&up.at("a"));
    for name in &names {
        assert!(file::get_xattr(&up.at("a"), name).is_ok(), "{name}");
    }
    for hidden in [
        "user.slabfs.chunks",
        "user.slabfs.version",
        "user.slabfs.info",
    ] {
        assert!(!names.contains(&hidden.to_owned()), "{names:?}");
    }
    file::write(&up.at("plain"), "x");
    assert!(file::list_xattrs(&up.at("plain")).is_empty());
    file::close(File::open(up.at("a")).expect("opened")).expect("closed");
}
