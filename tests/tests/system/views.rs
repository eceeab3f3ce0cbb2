//! Views on file handles: through the header `slabfs_ioctl.h`, and by `slabfs view`.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, copy_file_range, fcntl, splice};
use nix::sys::sendfile::sendfile;
use slabfs_tests::file::{self, errno, open};
use slabfs_tests::tool::{create, program, shell, slabfs};
use slabfs_tests::{Area, Cluster, Random, Up, needs_mount};

const BYTES: usize = 24_000;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles `tests/views/views.c`.
#[track_caller]
fn compiled(area: &Area) -> PathBuf {
    let out = area.path().join("views");
    let include = here("../fs/capi/include");
    let flags = "-std=gnu11 -O1 -Wall -Wextra -Werror -pedantic";
    shell(
        &here("views"),
        &format!(
            "cc {flags} -I{} -o {} views.c",
            include.display(),
            out.display()
        ),
    )
    .ok();
    out
}

#[track_caller]
fn views(program_at: &Path, object: &Path, seed: u64, rounds: u64) {
    let object = object.as_os_str().to_owned();
    let args = [object, seed.to_string().into(), rounds.to_string().into()];
    let name = program_at.to_str().expect("text");
    assert_eq!(program(name, args).ok().text(), "right\n");
}

/// Sets a view of `bytes` bytes at `offset` on an open file, as a process that shares its description can.
#[track_caller]
pub(crate) fn set_view(area: &Area, file: &File, offset: u64, bytes: u64) {
    let set = Command::new(compiled(area))
        .args(["--set", &offset.to_string(), &bytes.to_string()])
        .stdin(file.try_clone().expect("another descriptor"))
        .status();
    assert!(set.expect("started").success());
}

/// A directory has no handle of ours, and the kernel's number for it must not be taken for that of a file.
#[test]
fn a_view_of_a_directory_is_refused() {
    needs_mount!();
    let up = Up::start();
    file::write(&up.at("f"), b"0123456789");
    let files: Vec<File> = (0..64).map(|_| open(&up.at("f"))).collect();
    let area = Area::new();
    for place in [up.mnt().to_owned(), up.mnt().join(".slabfs")] {
        let directory = File::open(place).expect("a directory");
        let set = Command::new(compiled(&area))
            .args(["--set", "3", "2"])
            .stdin(directory)
            .output()
            .expect("started");
        let said = String::from_utf8_lossy(&set.stderr);
        assert!(
            !set.status.success() && said.contains("Inappropriate ioctl"),
            "{said}"
        );
    }
    let mut bytes = [0; 10];
    for file in files {
        file.read_exact_at(&mut bytes, 0).expect("no view");
        assert_eq!(&bytes, b"0123456789");
    }
}

/// An object of each form, with random bytes.
fn objects(dir: &Path, random: &mut Random) -> Vec<PathBuf> {
    let forms: [(&str, &[&str]); 5] = [
        ("aligned", &["--layout", "aligned"]),
        (
            "coded",
            &["--layout", "aligned", "--codec", "shuffle+zstd:1"],
        ),
        ("grid", &["--layout", "grid:7,90"]),
        ("canonical", &["--layout", "canonical"]),
        ("plain", &[]),
    ];
    let mut all = Vec::new();
    for (name, flags) in forms {
        let path = dir.join(name);
        if name != "plain" {
            create(&path, "30,100", "f8", flags);
        }
        file::write(&path, random.bytes(BYTES));
        all.push(path);
    }
    all
}

#[test]
fn views_are_what_their_batches_say() {
    needs_mount!();
    let cluster = Cluster::start(3, 2);
    let program_at = compiled(cluster.area());
    let mut random = Random::new(191);
    for object in objects(&cluster.mnt(0), &mut random) {
        views(&program_at, &object, random.number(), 40);
        // The other mount sees the writes through views, and continues.
        let there = cluster.at(1, object.file_name().expect("a name"));
        views(&program_at, &there, random.number(), 5);
    }
}

#[test]
fn views_in_one_process() {
    needs_mount!();
    let up = Up::start();
    let program_at = compiled(up.area());
    let mut random = Random::new(192);
    for object in objects(up.mnt(), &mut random) {
        views(&program_at, &object, random.number(), 60);
    }
}

/// Random trees through views of two mounts over three data servers; `PROPTEST_CASES` sets their number.
#[test]
fn random_trees_through_views() {
    needs_mount!();
    let cluster = Cluster::start(3, 2);
    let program_at = compiled(cluster.area());
    let mut random = Random::new(193);
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases: u64 = cases.map_or(150, |cases| cases.parse().expect("a number"));
    let objects = objects(&cluster.mnt(0), &mut random);
    let each = cases.div_ceil(2 * objects.len() as u64);
    for object in objects {
        let name = object.file_name().expect("a name");
        let there = cluster.at(1, name);
        for object in [&object, &there] {
            views(&program_at, object, random.number(), each);
        }
    }
}

/// The header compiles as C++, without warnings.
#[test]
fn the_header_is_cpp() {
    let area = Area::new();
    let include = here("../fs/capi/include");
    shell(
        area.path(),
        &format!(
            "printf '#include \"slabfs_ioctl.h\"\\nint main() {{ return slabfs_clear_view(0) == 0; }}\\n' > a.cc && \
             c++ -std=c++11 -Wall -Wextra -Werror -I{} -o a a.cc && ./a < /dev/null",
            include.display()
        ),
    )
    .ok();
}

#[test]
fn a_program_runs_on_a_view() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("obj");
    create(&object, "40,30", "i4", &[]);
    let bytes: Vec<u8> = (0..4800u32).map(|at| (at * 7 + at / 256) as u8).collect();
    file::write(&object, &bytes);
    let at = |selection: &str| format!("{}@{selection}", object.display());
    let cat = |path: &str| slabfs(["view", path, "--", "od", "-An", "-tx1", "-v"]).ok();
    let direct = |path: &str| program("od", ["-An", "-tx1", "-v", path]).ok();
    for selection in [
        "[::4, 10:20]",
        "[3]",
        "[:, ::7]",
        "[5:6, 1:2]",
        "[...]",
        "[-1, :]",
    ] {
        let path = at(selection);
        assert_eq!(cat(&path).text(), direct(&path).text(), "{selection}");
    }
    let object_path = object.to_str().expect("text");
    assert_eq!(cat(object_path).text(), direct(object_path).text());
    // Its end is that of the selection, also through a link, where it is a view of the object.
    let link = up.at("link");
    std::os::unix::fs::symlink("obj", &link).expect("linked");
    let count = |path: &str, program: &[&str]| {
        let said = slabfs([&["view", path, "--"], program].concat()).ok();
        said.text().trim().to_string()
    };
    assert_eq!(count(&at("[::4, 10:20]"), &["wc", "-c"]), "400");
    let linked = format!("{}@[::4, 10:20]", link.display());
    assert_eq!(count(&linked, &["sh", "-c", "cat | wc -c"]), "400");
    // A program that opens its output again has the selection, too, and does not change the rest.
    let zeros = up.area().path().join("zeros");
    file::write(&zeros, [0; 40]);
    let zeros = zeros.to_str().expect("text");
    slabfs([
        "view",
        "--write",
        &at("[9, 10:20]"),
        "--",
        "cp",
        zeros,
        "/dev/stdout",
    ])
    .ok();
    let mut wanted = bytes.clone();
    wanted[9 * 120 + 40..9 * 120 + 80].fill(0);
    assert!(file::read(&object) == wanted);
    file::write(&object, &bytes);
    // Written through a view: only those elements.
    let row = [0xab; 10 * 4];
    file::write(&up.area().path().join("row"), row);
    let row_at = up.area().path().join("row");
    slabfs([
        "view",
        "--write",
        &at("[7, 10:20]"),
        "--",
        "cat",
        row_at.to_str().expect("text"),
    ])
    .ok();
    let mut expected = bytes.clone();
    expected[7 * 120 + 40..7 * 120 + 80].copy_from_slice(&row);
    assert_eq!(file::read(&object), expected);
    // A batch from a file.
    let batch = up.area().path().join("batch.json");
    file::write(
        &batch,
        r#"[{"offset": 8, "stride": 100, "count": 3, "of": [{"size": 2}, {"offset": 10, "size": 1}]}]"#,
    );
    let batch = batch.to_str().expect("text");
    let shown = slabfs([
        "view",
        "--batch",
        batch,
        object_path,
        "--",
        "od",
        "-An",
        "-tu1",
        "-v",
        "-w9",
    ])
    .ok();
    let named = [8, 9, 18, 108, 109, 118, 208, 209, 218];
    let values: Vec<u8> = shown
        .text()
        .split_whitespace()
        .map(|byte| byte.parse().expect("a byte"))
        .collect();
    assert_eq!(values, named.map(|at: usize| expected[at]));
    // The program's status is the command's.
    slabfs(["view", object_path, "--", "sh", "-c", "exit 7"]).fails(7, &[]);
}

/// Copies that the kernel makes, without `read` and `write`, are of the view as well.
#[test]
fn copies_in_the_kernel_are_of_the_view() {
    needs_mount!();
    let up = Up::start();
    let bytes = Random::new(194).bytes(100_000);
    file::write(&up.at("from"), &bytes);
    let from = open(&up.at("from"));
    set_view(up.area(), &from, 3000, 5000);
    let view = &bytes[3000..8000];
    let to = file::open_new(&up.at("to"));
    let copied = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 100_000);
    assert_eq!(copied, Ok(5000));
    assert!(file::read(&up.at("to")) == view);
    let copied = copy_file_range(&from, Some(&mut 5000), &to, Some(&mut 5000), 100);
    assert_eq!(copied, Ok(0), "the end of the view");
    // Into a view: only as much as it has.
    file::write(&up.at("into"), [7u8; 1000]);
    let into = open(&up.at("into"));
    set_view(up.area(), &into, 100, 200);
    let copied = copy_file_range(&from, Some(&mut 40), &into, Some(&mut 20), 500);
    assert_eq!(copied, Ok(180));
    let mut expected = [7u8; 1000];
    expected[120..300].copy_from_slice(&view[40..220]);
    assert!(file::read(&up.at("into")) == expected);
    let beyond = copy_file_range(&from, Some(&mut 0), &into, Some(&mut 200), 10);
    assert_eq!(beyond, Err(Errno::EFBIG));
    let (mut out, pipe) = std::io::pipe().expect("a pipe");
    let mut got = [0; 1000];
    assert_eq!(sendfile(&pipe, &from, Some(&mut 10), 1000), Ok(1000));
    out.read_exact(&mut got).expect("read");
    assert!(got == view[10..1010], "sendfile");
    let flags = SpliceFFlags::empty();
    assert_eq!(
        splice(&from, Some(&mut 20), &pipe, None, 1000, flags),
        Ok(1000)
    );
    out.read_exact(&mut got).expect("read");
    assert!(got == view[20..1020], "splice");
    // A process that sets a view by hand and omits O_DIRECT gets no bytes of the object.
    fcntl(&from, FcntlArg::F_SETFL(OFlag::empty())).expect("taken off");
    let wrong = sendfile(&pipe, &from, Some(&mut 10), 1000);
    assert_eq!(wrong, Err(Errno::EIO));
    fcntl(&from, FcntlArg::F_SETFL(OFlag::O_DIRECT)).expect("set");
    let mapped = file::map_to_read(&from).expect("mapped");
    assert!(mapped[..] == bytes, "a mapping shows the object");
    assert_eq!(errno(from.write_all_at(b"x", 5000)), Errno::EFBIG);
}

/// One request of more than a few thousand pieces of a view that extends far beyond the object's size, or its
/// limit.
#[test]
fn a_part_of_a_view_is_limited_by_the_object() {
    needs_mount!();
    let up = Up::start();
    let batch = up.area().path().join("batch.json");
    file::write(
        &batch,
        r#"[{"stride": 8, "count": 1000000, "of": [{"size": 1}, {"offset": 3, "size": 2}]}]"#,
    );
    let data = up.area().path().join("data");
    let bytes = Random::new(196).bytes(12_000);
    file::write(&data, &bytes);
    let mut expected = vec![0; 3999 * 8 + 5];
    for (at, bytes) in bytes.chunks(3).enumerate() {
        expected[at * 8] = bytes[0];
        expected[at * 8 + 3..][..2].copy_from_slice(&bytes[1..]);
    }
    let growing = ["--max-dims", "unlimited,1024"];
    for (name, dims, flags) in [
        ("grown", "16,1024", ["--layout", "aligned"]),
        ("grid", "16,1024", ["--layout", "grid:16,1024"]),
        ("fixed", "64,1024", ["--layout", "aligned"]),
        ("blocks", "64,1024", ["--layout", "grid:16,1024"]),
    ] {
        let object = up.at(name);
        let more: &[&str] = if dims == "16,1024" { &growing } else { &[] };
        create(&object, dims, "u1", &[&flags[..], more].concat());
        let view = |write: &[&str], command: &[&str]| {
            let batch = ["--batch", batch.to_str().expect("text")];
            let object = [object.to_str().expect("text"), "--"];
            slabfs([&["view"][..], write, &batch, &object, command].concat()).ok()
        };
        let input = format!("if={}", data.display());
        view(&["--write"], &["dd", &input, "bs=12000"]);
        let got = file::read(&object);
        assert!(got[..expected.len()] == expected, "{name}");
        let size = if more.is_empty() { 65_536 } else { 32_768 };
        assert_eq!(got.len(), size, "{name}");
        let copy = format!("of={}", up.area().path().join(name).display());
        view(&[], &["dd", &copy, "bs=12000", "count=1"]);
        assert!(file::read(&up.area().path().join(name)) == bytes, "{name}");
    }
}

/// `cat` copies in the kernel where it can; it copies all of the view.
#[test]
fn cat_copies_a_view() {
    needs_mount!();
    let up = Up::start();
    let bytes = Random::new(195).bytes(10_000);
    let (object, copy) = (up.at("obj"), up.at("copy"));
    file::write(&object, &bytes);
    let batch = up.area().path().join("batch.json");
    // One that is shorter than the object, and one that is longer.
    for (text, expected) in [
        (
            r#"[{"offset": 160, "stride": 160, "count": 10, "size": 16}]"#,
            (1..=10usize)
                .flat_map(|at| &bytes[at * 160..][..16])
                .copied()
                .collect(),
        ),
        (
            r#"[{"offset": 10, "count": 5, "size": 6000}]"#,
            bytes[10..6010].repeat(5),
        ),
    ] {
        file::write(&batch, text);
        let line = format!(
            "{} view --batch {} {} -- cat > {}",
            slabfs_tests::binary::path().display(),
            batch.display(),
            object.display(),
            copy.display()
        );
        shell(up.area().path(), &line).ok();
        assert!(file::read(&copy) == expected, "{text}");
    }
}

#[test]
fn a_view_that_cannot_be_set_is_reported() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("obj");
    create(&object, "40,30", "i4", &[]);
    let object_path = object.to_str().expect("text");
    let other = up.area().path().join("plain");
    file::write(&other, "plain");
    let other = other.to_str().expect("text");
    slabfs(["view", other, "--", "cat"]).fails(1, &["not on a slabfs mount"]);
    slabfs(["view", &format!("{object_path}@[50]"), "--", "cat"])
        .fails(1, &["index 50", "40 elements"]);
    slabfs(["view", &format!("{object_path}@[1"), "--", "cat"]).fails(1, &["does not exist"]);
    slabfs(["view", "--write", object_path]).fails(2, &["COMMAND"]);
    slabfs(["view", object_path, "--", "no-such-program-anywhere"]).fails(127, &["cannot run"]);
    slabfs(["view", object_path, "--", "/"]).fails(126, &["cannot run"]);
    let batch = up.area().path().join("batch.json");
    file::write(&batch, "[{\"size\": 4}]");
    slabfs([
        "view",
        "--batch",
        batch.to_str().expect("text"),
        &format!("{object_path}@[0]"),
        "--",
        "cat",
    ])
    .fails(2, &["not on a selection", "give"]);
    for (text, message) in [
        ("[{\"size\": 1, \"offset\": -1}]", "offsets below 0"),
        ("[{\"count\": 1}]", "needs either \"size\""),
        ("{", "is no batch"),
    ] {
        file::write(&batch, text);
        let batch = batch.to_str().expect("text");
        let status = if message == "offsets below 0" { 1 } else { 2 };
        slabfs(["view", "--batch", batch, object_path, "--", "cat"]).fails(status, &[message]);
    }
    slabfs(["view", "--batch", "/no/such", object_path, "--", "cat"])
        .fails(2, &["cannot read the batch"]);
    let _open = open(&object);
}
