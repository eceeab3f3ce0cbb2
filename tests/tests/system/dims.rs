//! Dims: growing, shrinking, unlimited axes, zero-length axes, scalars, rank 32.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, info, shell, slabfs};
use slabfs_tests::{Cluster, Outcome, Up, needs_mount};

fn set_dims(path: &Path, dims: &str) -> Outcome {
    slabfs(["set", &path.display().to_string(), "--dims", dims])
}

#[test]
fn shrinking_and_growing_shows_fill() {
    needs_mount!();
    for layout in ["aligned", "grid:3,4"] {
        let mut up = Up::with(&["--servers", "2"]);
        let object = up.at("a");
        create(
            &object,
            "10,12",
            "i2",
            &[
                "--fill",
                "5",
                "--max-dims",
                "20,unlimited",
                "--layout",
                layout,
            ],
        );
        let mut array = Array::new(&[10, 12], 2, &[5, 0]);
        array.bytes = (0..240).collect();
        file::write_at(&object, 0, &array.bytes);
        for dims in [
            [6, 12],
            [10, 12],
            [10, 7],
            [20, 30],
            [1, 1],
            [3, 3],
            [0, 3],
            [4, 4],
        ] {
            set_dims(&object, &format!("{},{}", dims[0], dims[1])).ok();
            array.resize(&dims);
            same(
                &format!("{layout} {dims:?}"),
                &file::read(&object),
                &array.bytes,
            );
            if dims == [10, 7] {
                up.restart();
                same(
                    &format!("{layout} {dims:?} after a restart"),
                    &file::read(&object),
                    &array.bytes,
                );
            }
        }
        set_dims(&object, "21,4").fails(1, &["max dim"]);
        set_dims(&object, "4").fails(1, &["2 axes"]);
        set_dims(&object, "4,4,4").fails(1, &["2 axes"]);
        assert_eq!(file::xattr(&object, "user.slabfs.dims"), "4,4");
    }
}

/// One file in canonical order: rows are added and removed at its end, and do not change their length.
#[test]
fn canonical_rows() {
    needs_mount!();
    let mut up = Up::with(&["-v"]);
    let object = up.at("a");
    let more = [
        "--fill",
        "5",
        "--max-dims",
        "20,unlimited",
        "--layout",
        "canonical",
    ];
    create(&object, "10,12", "i2", &more);
    let mut array = Array::new(&[10, 12], 2, &[5, 0]);
    array.bytes = (0..240).collect();
    file::write_at(&object, 0, &array.bytes);
    for rows in [6, 10, 20, 1, 4] {
        set_dims(&object, &format!("{rows},12")).ok();
        array.resize(&[rows, 12]);
        same(&format!("{rows} rows"), &file::read(&object), &array.bytes);
    }
    set_dims(&object, "4,13").fails(1, &["slowest axis"]);
    assert_eq!(
        errno(file::set_xattr(&object, "user.slabfs.resize", "4,13", 0)),
        Errno::EINVAL
    );
    assert!(
        up.log().contains("slowest axis"),
        "the log says why:\n{}",
        up.log()
    );
    up.restart();
    same("after a restart", &file::read(&object), &array.bytes);
}

#[test]
fn an_unlimited_slowest_axis_grows_by_rows() {
    needs_mount!();
    for layout in ["aligned", "grid:2,5", "canonical"] {
        let mut up = Up::start();
        let object = up.at("log");
        create(
            &object,
            "0,10",
            "u2",
            &[
                "--max-dims",
                "unlimited,10",
                "--fill",
                "9",
                "--layout",
                layout,
            ],
        );
        assert_eq!(file::read(&object), b"");
        let handle = file::open(&object);
        handle.write_all_at(&[1; 20], 0).expect("row 0");
        handle.write_all_at(&[2; 6], 44).expect("a part of row 2");
        let mut array = Array::new(&[3, 10], 2, &[9, 0]);
        array.put_plain(0, &[1; 20]);
        array.put_plain(44, &[2; 6]);
        assert_eq!(
            handle.metadata().expect("metadata").len(),
            60,
            "{layout}: by complete rows"
        );
        same(layout, &file::read(&object), &array.bytes);
        file::close(handle).expect("closed");
        assert_eq!(file::xattr(&object, "user.slabfs.dims"), "3,10");
        assert_eq!(
            errno(file::open(&object).set_len(50)),
            Errno::EINVAL,
            "{layout}: not a complete row"
        );
        file::open(&object).set_len(100).expect("five rows");
        array.resize(&[5, 10]);
        up.restart();
        same(layout, &file::read(&object), &array.bytes);
        std::fs::OpenOptions::new()
            .append(true)
            .open(&object)
            .and_then(|mut f| std::io::Write::write_all(&mut f, &[3; 40]))
            .expect("two rows more");
        array.resize(&[7, 10]);
        array.put_plain(100, &[3; 40]);
        same(
            &format!("{layout}: appended"),
            &file::read(&object),
            &array.bytes,
        );
        same("a row", &file::read(&named(&object, "@[-1]")), &[3; 20]);
    }
}

/// Blocks that end within a row, as `cat` and `dd` write them, are contiguous.
#[test]
fn appends_continue_within_a_row() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let up = Up::start();
    for layout in ["aligned", "grid:3,50", "canonical"] {
        for mount in [up.mnt().to_owned(), cluster.mnt(0)] {
            let object = mount.join(format!("log-{}", &layout[..4]));
            let more = ["--max-dims", "unlimited,1000", "--layout", layout];
            create(&object, "0,1000", "f8", &more);
            let name = object.file_name().expect("a name").to_str().expect("text");
            // 50 rows in blocks of 128 KiB, and 3 in blocks of 1000 bytes.
            let line = format!(
                "head -c 400000 /dev/urandom > /tmp/$$; cat /tmp/$$ >> {name}; cmp /tmp/$$ {name}; \
                 dd if=/tmp/$$ of={name} bs=1000 count=24 oflag=append conv=notrunc status=none; \
                 (cat /tmp/$$; head -c 24000 /tmp/$$) | cmp - {name}; rm /tmp/$$"
            );
            shell(&mount, &line).ok();
            assert_eq!(file::xattr(&object, "user.slabfs.dims"), "53,1000");
        }
    }
    // Another open file, and another mount, begin new rows.
    let path = |mount: usize| cluster.at(mount, "rows");
    create(&path(0), "0,4", "u1", &["--max-dims", "unlimited,4"]);
    let append = |mount: usize| {
        let open = std::fs::OpenOptions::new().append(true).open(path(mount));
        open.expect("opened")
    };
    let write = |mut to: &File, bytes: &[u8]| to.write_all(bytes).expect("appended");
    let (one, two) = (append(0), append(0));
    write(&one, &[1; 2]);
    write(&one, &[2; 1]);
    write(&two, &[3; 3]);
    write(&one, &[4; 5]);
    one.sync_all().expect("synced");
    write(&one, &[5; 1]);
    drop((one, two));
    let wanted = [1, 1, 2, 0, 3, 3, 3, 0, 4, 4, 4, 4, 4, 5, 0, 0];
    assert_eq!(file::read(&path(1)), wanted);
    let other = append(1);
    write(&other, &[6; 1]);
    assert_eq!(file::read(&path(0)), [&wanted[..], &[6, 0, 0, 0]].concat());
}

#[test]
fn emptying() {
    needs_mount!();
    let up = Up::start();
    for layout in ["aligned", "grid:2,2", "canonical"] {
        let fixed = up.at(format!("fixed-{}", &layout[..4]));
        create(&fixed, "4,4", "i4", &["--fill", "1", "--layout", layout]);
        file::write_at(&fixed, 0, &[7; 64]);
        file::close(File::create(&fixed).expect("O_TRUNC")).expect("closed");
        same("all fill", &file::read(&fixed), &[1, 0, 0, 0].repeat(16));
        assert_eq!(file::xattr(&fixed, "user.slabfs.dims"), "4,4");
        if layout == "aligned" {
            assert_eq!(file::xattr(&fixed, "user.slabfs.chunks"), "0");
        }
        file::write_at(&fixed, 16, &[8; 4]);
        same(
            "written again",
            &file::read(&named(&fixed, "@[1,0]")),
            &[8; 4],
        );
    }
}

#[test]
fn scalars() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("a");
    create(&object, "scalar", "f8", &["--fill", "1"]);
    assert_eq!(file::read(&object), 1f64.to_le_bytes());
    file::write(&object, 2.5f64.to_le_bytes());
    assert_eq!(info(&object)["dims"], serde_json::json!([]));
    assert_eq!(file::read(&named(&object, "@[...]")), 2.5f64.to_le_bytes());
    assert_eq!(errno(File::open(named(&object, "@[0]"))), Errno::EINVAL);
    assert_eq!(errno(file::open(&object).write_at(&[1], 8)), Errno::EFBIG);
    up.restart();
    assert_eq!(file::read(&up.at("a")), 2.5f64.to_le_bytes());
}

#[test]
fn zero_length_axes() {
    needs_mount!();
    let mut up = Up::start();
    for layout in ["aligned", "grid:2,2,2"] {
        let object = up.at(&layout[..4]);
        create(
            &object,
            "3,0,4",
            "i4",
            &["--max-dims", "3,8,4", "--layout", layout],
        );
        assert_eq!(file::read(&object), b"");
        assert_eq!(file::read(&named(&object, "@[1:2]")), b"");
        assert_eq!(errno(File::open(named(&object, "@[0,0]"))), Errno::EINVAL);
        assert_eq!(errno(file::open(&object).write_at(b"x", 0)), Errno::EFBIG);
        set_dims(&object, "3,2,4").ok();
        file::write(&named(&object, "@[:,1]"), [9; 48]);
        let mut array = Array::new(&[3, 2, 4], 4, &[]);
        array.put(&Select::boxed(&[(0, 3), (1, 2), (0, 4)]), 0, &[9; 48]);
        same(layout, &file::read(&object), &array.bytes);
        set_dims(&object, "0,0,0").ok();
        assert_eq!(file::read(&object), b"");
    }
    up.restart();
    assert_eq!(file::xattr(&up.at("alig"), "user.slabfs.dims"), "0,0,0");
}

#[test]
fn rank_32() {
    needs_mount!();
    let mut up = Up::start();
    let dims: Vec<u64> = (0..32)
        .map(|axis| if axis % 3 == 0 { 2 } else { 1 })
        .collect();
    let text: Vec<String> = dims.iter().map(u64::to_string).collect();
    for (name, more) in [
        ("aligned", vec![]),
        (
            "grid",
            vec!["--layout".to_owned(), format!("grid:{}", text.join(","))],
        ),
    ] {
        let object = up.at(name);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        create(&object, &text.join(","), "u2", &more);
        let mut array = Array::new(&dims, 2, &[]);
        array.bytes = (0..array.bytes.len()).map(|i| (i % 253) as u8).collect();
        file::write_at(&object, 0, &array.bytes);
        let select = Select(
            dims.iter()
                .enumerate()
                .map(|(axis, &dim)| {
                    if axis % 6 == 0 {
                        (dim - 1, dim, 1)
                    } else {
                        (0, dim, 1)
                    }
                })
                .collect(),
        );
        same(
            "a part",
            &file::read(&select.of(&object)),
            &array.get(&select),
        );
        let bytes = vec![255; select.count() as usize * 2];
        file::write(&select.of(&object), &bytes);
        array.put(&select, 0, &bytes);
        same("all", &file::read(&object), &array.bytes);
        up.restart();
        same("after a restart", &file::read(&up.at(name)), &array.bytes);
    }
    slabfs([
        "create",
        &up.at("more").display().to_string(),
        "--dims",
        &vec!["1"; 33].join(","),
        "--dtype",
        "u1",
    ])
    .fails(2, &["32"]);
    assert!(!up.at("more").exists());
}

/// Extreme sizes: no wrap, no panic, and nothing is stored for unwritten elements.
#[test]
fn enormous_dims() {
    needs_mount!();
    let mut up = Up::start();
    let object = up.at("huge");
    create(&object, "2147483647,1073741824", "f4", &[]);
    assert_eq!(
        object.metadata().expect("metadata").len(),
        2_147_483_647 * 1_073_741_824 * 4
    );
    file::write(&named(&object, "@[2147483646,-3:]"), [7; 12]);
    file::write(&named(&object, "@[::1000000000,5]"), [8; 12]);
    up.restart();
    assert_eq!(
        file::read(&named(&object, "@[-1,-4:]")),
        [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]
    );
    assert_eq!(
        file::read(&named(&object, "@[0:2147483647:1000000000,5]")),
        [8; 12]
    );
    slabfs([
        "create",
        &up.at("over").display().to_string(),
        "--dims",
        "2147483648,1073741824",
        "--dtype",
        "f4",
    ])
    .fails(2, &["--dims"]);
    assert!(!up.at("over").exists());
}
