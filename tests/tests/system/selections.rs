//! Selection paths: reading, writing, and refused ones.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use nix::errno::Errno;
use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::file::{self, errno, named};
use slabfs_tests::tool::{create, shell};
use slabfs_tests::{Up, needs_mount};

/// A 10 × 12 array of bytes that encode their position.
fn matrix(up: &Up, layout: &str) -> (PathBuf, Array) {
    let object = up.at("a");
    create(&object, "10,12", "u1", &["--layout", layout]);
    let mut array = Array::new(&[10, 12], 1, &[]);
    array.bytes = (0..120).collect();
    file::write_at(&object, 0, &array.bytes);
    (object, array)
}

#[test]
fn reading_as_python_slices() {
    needs_mount!();
    for layout in ["aligned", "grid:4,5", "canonical"] {
        let up = Up::start();
        let (object, array) = matrix(&up, layout);
        type Axes = Vec<(u64, u64, u64)>;
        let cases: [(&str, Axes); 23] = [
            ("[0:10,0:9]", vec![(0, 10, 1), (0, 9, 1)]),
            ("[3]", vec![(3, 4, 1), (0, 12, 1)]),
            ("[-1]", vec![(9, 10, 1), (0, 12, 1)]),
            ("[-3:,2]", vec![(7, 10, 1), (2, 3, 1)]),
            ("[:-8]", vec![(0, 2, 1), (0, 12, 1)]),
            ("[::2,::5]", vec![(0, 10, 2), (0, 12, 5)]),
            ("[1:9:3,-2:]", vec![(1, 9, 3), (10, 12, 1)]),
            ("[...]", vec![(0, 10, 1), (0, 12, 1)]),
            ("[...,4]", vec![(0, 10, 1), (4, 5, 1)]),
            ("[2,...]", vec![(2, 3, 1), (0, 12, 1)]),
            ("[2,...,4]", vec![(2, 3, 1), (4, 5, 1)]),
            ("[:]", vec![(0, 10, 1), (0, 12, 1)]),
            ("[:,:]", vec![(0, 10, 1), (0, 12, 1)]),
            ("[10:10]", vec![(10, 10, 1), (0, 12, 1)]),
            ("[5:3]", vec![(5, 5, 1), (0, 12, 1)]),
            ("[0:10:99]", vec![(0, 10, 99), (0, 12, 1)]),
            ("[ 1 : 2 , 3 ]", vec![(1, 2, 1), (3, 4, 1)]),
            ("[-10:10,-12]", vec![(0, 10, 1), (0, 1, 1)]),
            // Slices end where the axis ends.
            ("[0:11]", vec![(0, 10, 1), (0, 12, 1)]),
            ("[8:99:3,-99:2]", vec![(8, 10, 3), (0, 2, 1)]),
            ("[:,10:13]", vec![(0, 10, 1), (10, 12, 1)]),
            ("[10:11]", vec![(10, 10, 1), (0, 12, 1)]),
            ("[11:,0]", vec![(10, 10, 1), (0, 1, 1)]),
        ];
        for (text, axes) in cases {
            let path = named(&object, &format!("@{text}"));
            let wanted = array.get(&Select(axes));
            same(&format!("{layout} {text}"), &file::read(&path), &wanted);
            assert_eq!(
                path.metadata().expect("metadata").len(),
                wanted.len() as u64,
                "{text}"
            );
        }
    }
}

#[test]
fn refused_selections() {
    needs_mount!();
    let up = Up::with(&["-v"]);
    let (object, array) = matrix(&up, "aligned");
    for text in [
        "@[10]",
        "@[-11]",
        "@[:,12]",
        "@[0,0,0]",
        "@[0:1:0]",
        "@[::-1]",
        "@[a]",
        "@[0:1:1:1]",
        "@[...,...]",
        "@[99999999999999999999]",
        "@[0;1]",
        "@[0 1]",
        "@[1.5]",
    ] {
        assert_eq!(
            errno(File::open(named(&object, text))),
            Errno::EINVAL,
            "{text}"
        );
        assert_eq!(
            errno(named(&object, text).metadata()),
            Errno::EINVAL,
            "{text}"
        );
        assert_eq!(
            errno(
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(named(&object, text))
            ),
            Errno::EINVAL,
            "{text}"
        );
    }
    let log = up.log();
    assert!(
        log.contains("axis 0") && log.contains("10 elements"),
        "the log says why:\n{log}"
    );
    assert_eq!(errno(File::open(up.at("none@[0]"))), Errno::ENOENT);
    assert_eq!(errno(File::open(up.at("@[0]"))), Errno::ENOENT);
    for text in ["@[", "@[0", "@[0]x", "@[1,]x"] {
        // These are names, and there is no file of that name.
        assert_eq!(
            errno(File::open(named(&object, text))),
            Errno::ENOENT,
            "{text}"
        );
    }
    std::fs::create_dir(up.at("d")).expect("made");
    assert!(File::open(up.at("d@[0]")).is_err());
    // A selection is no name: it cannot be created, renamed, linked or removed.
    let row = named(&object, "@[0]");
    file::write(&up.at("other"), "x");
    assert_eq!(errno(std::fs::rename(up.at("other"), &row)), Errno::EINVAL);
    assert_eq!(errno(std::fs::rename(&row, up.at("moved"))), Errno::EINVAL);
    assert!(std::fs::hard_link(&row, up.at("linked")).is_err());
    assert!(std::fs::hard_link(up.at("other"), &row).is_err());
    assert!(std::fs::remove_file(&row).is_err());
    assert!(std::fs::create_dir(&row).is_err());
    assert!(std::os::unix::fs::symlink("other", &row).is_err());
    assert_eq!(
        file::read(&object),
        array.bytes,
        "none of these changed anything"
    );
    assert_eq!(file::read(&up.at("other")), b"x");
}

#[test]
fn writing_with_tools() {
    needs_mount!();
    let up = Up::start();
    let (object, mut array) = matrix(&up, "aligned");
    let block = up.area().write("block", [200; 18]);
    let line = |line: &str| shell(up.mnt(), line).ok();
    line("cp ../block 'a@[1:7,2:5]'");
    array.put(&Select::boxed(&[(1, 7), (2, 5)]), 0, &[200; 18]);
    assert_eq!(file::read(&object), array.bytes, "cp");
    line("cat ../block > 'a@[::3,-5:10]'  2>/dev/null && exit 1; true");
    line("head -c 12 ../block > 'a@[::3,-5:10]'");
    array.put(&Select(vec![(0, 10, 3), (7, 10, 1)]), 0, &[200; 12]);
    assert_eq!(
        file::read(&object),
        array.bytes,
        "a shell's redirection, stepped"
    );
    line("printf 'abcdefghijkl' | dd of='a@[9]' bs=5 status=none");
    array.put(&Select::boxed(&[(9, 10), (0, 12)]), 0, b"abcdefghijkl");
    assert_eq!(file::read(&object), array.bytes, "dd");
    line("printf 'XY' | dd of='a@[9]' bs=1 seek=3 conv=notrunc status=none");
    array.put(&Select::boxed(&[(9, 10), (0, 12)]), 3, b"XY");
    assert_eq!(file::read(&object), array.bytes, "dd seek");
    line("cp 'a@[9]' row; test $(stat -c %s row) = 12; cat 'a@[9]' | cmp - row");
    std::fs::write(&block, [1; 120]).expect("a file");
    line("cp ../block a");
    assert_eq!(
        file::read(&object),
        [1; 120],
        "cp onto the array: O_TRUNC keeps the dims"
    );
    assert_eq!(file::xattr(&object, "user.slabfs.dims"), "10,12");
}

#[test]
fn bounds_of_writes() {
    needs_mount!();
    let up = Up::start();
    let (object, mut array) = matrix(&up, "aligned");
    let select = Select(vec![(2, 8, 2), (1, 3, 1)]);
    let handle = file::open(&select.of(&object));
    assert_eq!(
        errno(handle.write_at(&[9], 6)),
        Errno::EFBIG,
        "past the end of a selection"
    );
    assert_eq!(
        errno(handle.write_at(&[9; 10], 2)),
        Errno::EFBIG,
        "across it: nothing is written"
    );
    assert_eq!(handle.write_at(&[9; 4], 2).expect("up to the end"), 4);
    array.put(&select, 2, &[9; 4]);
    assert_eq!(file::read(&object), array.bytes);
    assert_eq!(handle.metadata().expect("metadata").len(), 6);
    assert_eq!(errno(handle.set_len(3)), Errno::EINVAL);
    handle.set_len(6).expect("its own size");
    handle.set_len(0).expect("as cp does");
    assert_eq!(
        file::read(&object),
        array.bytes,
        "emptying a selection leaves its elements"
    );
    let all = file::open(&object);
    assert_eq!(
        errno(all.write_at(&[9], 120)),
        Errno::EFBIG,
        "past the end of an array"
    );
    assert_eq!(
        errno(all.write_at(&[9; 10], 115)),
        Errno::EFBIG,
        "across it: nothing is written"
    );
    assert_eq!(all.write_at(&[9; 5], 115).expect("up to the end"), 5);
    assert_eq!(errno(all.set_len(60)), Errno::EINVAL);
    assert_eq!(errno(all.set_len(121)), Errno::EINVAL);
    all.set_len(120).expect("its own size");
    let mut appending = OpenOptions::new()
        .append(true)
        .open(&object)
        .expect("opened");
    assert_eq!(
        errno(std::io::Write::write(&mut appending, b"x")),
        Errno::EFBIG
    );
    array.put_plain(115, &[9; 5]);
    assert_eq!(file::read(&object), array.bytes);
}

#[test]
fn one_selection_is_one_file() {
    needs_mount!();
    let up = Up::start();
    let (object, _) = matrix(&up, "aligned");
    let meta = |text: &str| named(&object, text).metadata().expect("metadata");
    assert_eq!(meta("@[0:2,...]").ino(), meta("@[ 0:2 ]").ino());
    assert_ne!(meta("@[0:2]").ino(), meta("@[0:3]").ino());
    assert_ne!(
        meta("@[0:2,:]").ino(),
        object.metadata().expect("metadata").ino()
    );
    assert_eq!(
        file::xattr(&named(&object, "@[0:2]"), "user.slabfs.dims"),
        "2,12"
    );
    assert_eq!(
        file::xattr(&named(&object, "@[0:2]"), "user.slabfs.dtype"),
        "u1"
    );
    let (reader, writer) = (
        file::open(&named(&object, "@[0:2]")),
        file::open(&named(&object, "@[1,:]")),
    );
    writer.write_all_at(&[77], 0).expect("written");
    let mut seen = [0; 24];
    reader.read_exact_at(&mut seen, 0).expect("read");
    assert_eq!(
        (seen[11], seen[12], seen[13]),
        (11, 77, 13),
        "another selection sees it at once"
    );
}

/// A name that really contains `@[` is shown and accessed with one more `@`.
#[test]
fn names_that_look_like_selections() {
    needs_mount!();
    let mut up = Up::start();
    for name in ["a@@[0]", "@@[", "x@@@[y", "plain@", "b[0]", "c@d"] {
        file::write(&up.at(name), name);
    }
    up.restart();
    let mut listed: Vec<String> = std::fs::read_dir(up.mnt())
        .expect("listed")
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    listed.sort();
    assert_eq!(listed, ["@@[", "a@@[0]", "b[0]", "c@d", "plain@", "x@@@[y"]);
    for name in &listed {
        assert_eq!(file::read(&up.at(name)), name.as_bytes());
    }
    assert_eq!(
        file::read(&up.at("a@@[0]@[2:4]")),
        b"@[",
        "and has selections of its own"
    );
    shell(up.area().path(), "tar -C m -cf t.tar .; mkdir out; tar -C out -xf t.tar; diff -r m out; cp -a out/. m/; rm -r m/*; test -z \"$(ls -A m)\"").ok();
}

/// Every fourth element, 1 MiB of them: one chunk, not a quarter of a million.
#[test]
fn stepped_writes_are_few_chunks() {
    needs_mount!();
    let up = Up::with(&["--servers", "2"]);
    let object = up.at("v");
    create(&object, "1048576", "i4", &[]);
    let bytes: Vec<u8> = (0..1_048_576_u32).map(|i| (i % 251) as u8).collect();
    file::write(&named(&object, "@[1::4]"), &bytes);
    let chunks: u64 = file::xattr(&object, "user.slabfs.chunks")
        .parse()
        .expect("a number");
    assert!(chunks <= 4, "{chunks} chunks");
    let mut array = Array::new(&[1_048_576], 4, &[]);
    array.put(&Select(vec![(1, 1_048_576, 4)]), 0, &bytes);
    same("all", &file::read(&object), &array.bytes);
    let other = vec![9; 1_048_576];
    file::write(&named(&object, "@[3::4]"), &other);
    array.put(&Select(vec![(3, 1_048_576, 4)]), 0, &other);
    same("two lattices", &file::read(&object), &array.bytes);
    same("one again", &file::read(&named(&object, "@[1::4]")), &bytes);
    file::write(&named(&object, "@[1::4]"), &other);
    let chunks: u64 = file::xattr(&object, "user.slabfs.chunks")
        .parse()
        .expect("a number");
    assert!(
        chunks <= 8,
        "{chunks} chunks after the same lattice was written again"
    );
}
