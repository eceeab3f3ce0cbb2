//! Tests of arrays, selections and attributes through the mount.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use super::stage::{BOTH, Services, Stage};
use super::xattr::{self, errno};

/// An 8 × 6 array of two-byte elements; the element at (i, j) is i·16 + j.
fn array(stage: &Stage) -> PathBuf {
    let path = stage.path("temp");
    fs::File::create(&path).unwrap();
    xattr::set(&path, "user.slabfs.dtype", "u2").unwrap();
    xattr::set(&path, "user.slabfs.dims", "8,6").unwrap();
    fs::write(&path, elements(0..8, 0..6)).unwrap();
    path
}

fn elements(
    rows: impl Iterator<Item = u16>,
    columns: impl Iterator<Item = u16> + Clone,
) -> Vec<u8> {
    rows.flat_map(|i| columns.clone().map(move |j| i * 16 + j))
        .flat_map(u16::to_le_bytes)
        .collect()
}

#[test]
fn selections_read_their_elements() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = array(&stage);
        assert_eq!(fs::metadata(&path).unwrap().len(), 96);
        assert_eq!(fs::read(&path).unwrap(), elements(0..8, 0..6));
        for (text, expected) in [
            ("[2:5,1:4]", elements(2..5, 1..4)),
            ("[-1]", elements(7..8, 0..6)),
            ("[::3,::2]", elements((0..8).step_by(3), (0..6).step_by(2))),
            ("[..., 5]", elements(0..8, 5..6)),
            ("[3:3]", Vec::new()),
        ] {
            let selection = stage.path(&format!("temp@{text}"));
            let size = fs::metadata(&selection).unwrap().len();
            assert_eq!(size, expected.len() as u64, "{text}");
            assert_eq!(
                fs::read(&selection).unwrap(),
                expected,
                "{services:?} {text}"
            );
        }
        assert_eq!(
            fs::read_dir(stage.path("")).unwrap().count(),
            1,
            "selections are not listed"
        );
    }
}

#[test]
fn a_selection_is_written_as_a_file_is() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = array(&stage);
        let selection = stage.path("temp@[2:5,1:4]");
        // A shell redirection opens with O_CREAT and O_TRUNC.
        fs::write(&selection, [0xaa; 18]).unwrap();
        let bytes = fs::read(&path).unwrap();
        for (at, pair) in bytes.chunks(2).enumerate() {
            let (i, j) = ((at / 6) as u16, (at % 6) as u16);
            let inside = (2..5).contains(&i) && (1..4).contains(&j);
            let expected = if inside {
                [0xaa; 2]
            } else {
                (i * 16 + j).to_le_bytes()
            };
            assert_eq!(pair, expected, "{services:?} ({i}, {j})");
        }
        let file = OpenOptions::new().write(true).open(&selection).unwrap();
        assert_eq!(errno(file.write_at(&[0; 2], 17)), libc::EFBIG);
        assert_eq!(errno(file.set_len(17)), libc::EINVAL);
        file.set_len(18).unwrap();
        assert_eq!(
            errno(OpenOptions::new().append(true).open(&selection)),
            libc::EINVAL
        );
    }
}

/// Real projects have such names. They are created, renamed, linked, listed and removed like any other.
#[test]
fn names_with_brackets_are_names() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let path = array(&stage);
    let size = fs::metadata(&path).unwrap().len();
    fs::create_dir(stage.path("@[username]")).unwrap();
    fs::create_dir(stage.path("dir")).unwrap();
    for name in [
        "+page@[id].svelte",
        "@[id].svelte",
        "a@[1].txt",
        "@[username]/+page@[id]",
        "dir@[0]",
        "temp@[0].txt",
        "late@[0]",
        "x@@[0]",
    ] {
        fs::write(stage.path(name), name).unwrap();
        assert_eq!(fs::read(stage.path(name)).unwrap(), name.as_bytes());
    }
    // A file of that name takes precedence over the selection, even if the selected object appears later.
    fs::write(stage.path("late"), "0123").unwrap();
    assert_eq!(fs::read(stage.path("late@[0]")).unwrap(), b"late@[0]");
    assert_eq!(fs::read(stage.path("late@@[0]")).unwrap(), b"late@[0]");
    assert_eq!(fs::read(stage.path("late@[1]")).unwrap(), b"1");
    fs::rename(stage.path("late@[0]"), stage.path("@[moved]")).unwrap();
    assert_eq!(fs::read(stage.path("late@[0]")).unwrap(), b"0");
    fs::hard_link(stage.path("@[moved]"), stage.path("+@[linked]")).unwrap();
    std::os::unix::fs::symlink("temp", stage.path("s@[0]")).unwrap();
    assert_eq!(
        fs::read_link(stage.path("s@[0]")).unwrap(),
        std::path::Path::new("temp")
    );
    // Where the name would denote a selection, a second @ makes it a plain name.
    fs::write(stage.path("temp@@[0]"), "a name").unwrap();
    assert_eq!(fs::read(stage.path("temp@[0]")).unwrap(), b"a name");
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
    let mut listed: Vec<_> = fs::read_dir(stage.path("."))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    listed.sort();
    assert_eq!(
        listed,
        [
            "+@[linked]",
            "+page@[id].svelte",
            "@[id].svelte",
            "@[moved]",
            "@[username]",
            "a@[1].txt",
            "dir",
            "dir@[0]",
            "late",
            "s@[0]",
            "temp",
            "temp@[0]",
            "temp@[0].txt",
            "x@@[0]",
        ]
    );
    for name in &listed {
        let at = stage.path(name);
        match at.symlink_metadata().unwrap().is_dir() {
            true => fs::remove_dir_all(at).unwrap(),
            false => fs::remove_file(at).unwrap(),
        }
    }
    assert_eq!(fs::read_dir(stage.path(".")).unwrap().count(), 0);
}

#[test]
fn invalid_selections_are_refused() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let path = array(&stage);
    fs::create_dir(stage.path("dir")).unwrap();
    for wrong in [
        "temp@[9]",
        "temp@[0,0,0]",
        "temp@[x]",
        "temp@[::0]",
        "temp@[0]@[0]",
    ] {
        assert_eq!(
            errno(fs::metadata(stage.path(wrong))),
            libc::EINVAL,
            "{wrong}"
        );
    }
    for name in ["none@[0]", "temp@[0", "dir@[0]", "@[0]"] {
        let path = stage.path(name);
        assert_eq!(errno(fs::metadata(path)), libc::ENOENT, "{name}");
    }
    let selection = stage.path("temp@[0]");
    fs::write(stage.path("other"), "x").unwrap();
    assert_eq!(
        errno(fs::rename(stage.path("other"), &selection)),
        libc::EINVAL
    );
    assert_eq!(
        errno(fs::rename(&selection, stage.path("new"))),
        libc::EINVAL
    );
    assert_eq!(errno(fs::remove_file(&selection)), libc::EPERM);
    assert_eq!(
        errno(fs::hard_link(&selection, stage.path("new"))),
        libc::EPERM
    );
    assert_eq!(errno(fs::create_dir(stage.path("temp@[1]"))), libc::EEXIST);
    assert_eq!(
        errno(
            OpenOptions::new()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(5)
        ),
        libc::EINVAL
    );
}

#[test]
fn a_selection_follows_its_object() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        array(&stage);
        let file = fs::File::open(stage.path("temp@[1]")).unwrap();
        fs::rename(stage.path("temp"), stage.path("moved")).unwrap();
        fs::write(stage.path("temp"), "something else").unwrap();
        let mut bytes = [0; 12];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes.to_vec(), elements(1..2, 0..6), "{services:?}");
        assert_eq!(fs::read(stage.path("temp@[0:4]")).unwrap(), b"some");
        assert_eq!(
            fs::read(stage.path("moved@[1]")).unwrap(),
            elements(1..2, 0..6)
        );
        fs::remove_file(stage.path("moved")).unwrap();
        assert_eq!(errno(fs::metadata(stage.path("moved@[1]"))), libc::ENOENT);
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes.to_vec(), elements(1..2, 0..6));
    }
}

#[test]
fn attributes_declare_and_describe() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = array(&stage);
        assert_eq!(xattr::get(&path, "user.slabfs.dims").unwrap(), "8,6");
        let info: serde_json::Value =
            serde_json::from_str(&xattr::get(&path, "user.slabfs.info").unwrap()).unwrap();
        assert_eq!(info["dims"], serde_json::json!([8, 6]));
        assert_eq!(info["chunks"], 1, "{info}");
        let listed = xattr::list(&path).unwrap();
        assert_eq!(listed, ["user.slabfs.spec"]);
        xattr::set(&path, "user.project", "climate").unwrap();
        assert_eq!(xattr::get(&path, "user.project").unwrap(), "climate");
        assert!(
            xattr::list(&path)
                .unwrap()
                .contains(&"user.project".to_string())
        );
        // Copying the bytes and each attribute makes the same array.
        let copy = stage.path("copy");
        fs::write(&copy, fs::read(&path).unwrap()).unwrap();
        for name in xattr::list(&path).unwrap() {
            xattr::set(&copy, &name, &xattr::get(&path, &name).unwrap()).unwrap();
        }
        assert_eq!(
            fs::read(stage.path("copy@[2:5,1:4]")).unwrap(),
            elements(2..5, 1..4)
        );
        // A copy of a selection, with its attributes, is an array of its dims.
        let block = stage.path("block");
        let selection = stage.path("temp@[2:5,1:4]");
        fs::write(&block, fs::read(&selection).unwrap()).unwrap();
        for name in xattr::list(&selection).unwrap() {
            xattr::set(&block, &name, &xattr::get(&selection, &name).unwrap()).unwrap();
        }
        assert_eq!(
            fs::read(stage.path("block@[1,2]")).unwrap(),
            elements(3..4, 3..4)
        );
    }
}

#[test]
fn wrong_attributes_are_refused() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let path = array(&stage);
    for (name, value, number) in [
        ("user.slabfs.dims", "8x6", libc::EINVAL),
        ("user.slabfs.dims", "4,4", libc::EINVAL),
        ("user.slabfs.dim", "8", libc::EINVAL),
        ("user.slabfs.info", "{}", libc::EPERM),
        ("user.slabfs.resize", "9,6", libc::EINVAL),
        ("security.selinux", "x", libc::EOPNOTSUPP),
        ("system.other", "x", libc::EOPNOTSUPP),
    ] {
        assert_eq!(errno(xattr::set(&path, name, value)), number, "{name}");
    }
    assert_eq!(errno(xattr::get(&path, "user.none")), libc::ENODATA);
    assert_eq!(
        errno(xattr::get(&path, "security.capability")),
        libc::ENODATA
    );
    assert_eq!(
        errno(xattr::set(&stage.path(""), "user.slabfs.dims", "8")),
        libc::EINVAL
    );
    let plain = stage.path("plain");
    fs::write(&plain, "x").unwrap();
    assert!(xattr::list(&plain).unwrap().is_empty());
}

#[test]
fn sizes_are_known_at_once() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let path = stage.path("grows");
        fs::File::create(&path).unwrap();
        xattr::set(
            &path,
            "user.slabfs.spec",
            r#"{"dtype":"u2","dims":[2,6],"max_dims":[null,6]}"#,
        )
        .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 24);
        xattr::set(&path, "user.slabfs.resize", "4,6").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 48, "{services:?}");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&[1; 12]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 60);
        assert_eq!(fs::metadata(&path).unwrap().len(), 60);
        drop(file);
        let before = fs::metadata(&path).unwrap();
        let selection = stage.path("grows@[0]");
        assert_eq!(fs::metadata(&selection).unwrap().mode(), before.mode());
        fs::write(&selection, [3; 12]).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
    }
}
