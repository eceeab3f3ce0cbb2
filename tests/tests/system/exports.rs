//! What export and import make of things that the other side has not: notes, and messages that say what to do.

use std::os::unix::fs::{FileExt, MetadataExt};

use nix::sys::signal::Signal;
use slabfs_tests::tool::{create, info, run, shell, slabfs};
use slabfs_tests::{Area, Cluster, Up, binary, inputs, needs_mount, poll};

use crate::formats::{export, import, scripted, text};

#[test]
fn compression_of_zarr_and_npz_stays() {
    needs_mount!();
    let up = Up::start();
    let zarr = "
import zarr
from zarr.codecs import BloscCodec, ZstdCodec
g = zarr.open_group(path, mode='w')
for name, codec in ('zstd', ZstdCodec()), ('blosc', BloscCodec(shuffle='shuffle')), ('none', None):
    a = g.create_array(name, shape=(100, 10), chunks=(50, 10), dtype='f4', compressors=codec)
    a[:] = np.arange(1000).reshape(100, 10)";
    let file = scripted(&up, "all.zarr", zarr);
    import(&file, &up.at("all")).ok();
    for (name, codec) in [
        ("zstd", "deflate:1"),
        ("blosc", "shuffle+deflate:1"),
        ("none", "none"),
    ] {
        assert_eq!(info(&up.at("all").join(name))["codec"], codec, "{name}");
    }
    let file = scripted(
        &up,
        "small.npz",
        "np.savez_compressed(path, a=np.zeros((100, 100)))",
    );
    import(&file, &up.at("small")).ok();
    assert_eq!(info(&up.at("small/a"))["codec"], "shuffle+deflate:1");
    let filtered = "
import h5py
with h5py.File(path, 'w') as f:
    f.create_dataset('a', data=np.arange(100), chunks=(10,), fletcher32=True)";
    let file = scripted(&up, "sum.h5", filtered);
    let said = import(&file, &up.at("sum")).ok();
    assert!(said.stderr.contains("fletcher32"), "{}", said.stderr);
}

/// HDF5 can leave chunks at the edge without filters, which their masks do not say.
#[test]
fn chunks_at_the_edge_without_filters() {
    needs_mount!();
    let up = Up::start();
    for summed in ["0", "1"] {
        let file = up.area().path().join(format!("part{summed}.h5"));
        let mut command = std::process::Command::new(inputs::PYTHON);
        command.arg(inputs::script("partial.py"));
        run(command.args([text(&file), summed])).ok();
        let there = up.at(format!("part{summed}"));
        slabfs(["import", "--verify", text(&file), text(&there)]).ok();
        let bytes = std::fs::read(there.join("v")).expect("read");
        let numbers = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|one| u32::from_le_bytes(*one));
        assert!(numbers.eq(0..25 * 33));
    }
}

/// Headers that say more than there is, and chunks that have less than they should.
#[test]
fn damaged_files_are_refused() {
    needs_mount!();
    let up = Up::start();
    let dims = up.area().path().join("dims.nc");
    let header = [
        b"CDF\x01\0\0\0\0".as_slice(),
        &10_u32.to_be_bytes(),
        &[0x7f, 255, 255, 255],
    ];
    std::fs::write(&dims, header.concat()).expect("written");
    import(&dims, &up.at("dims")).fails(1, &["dims.nc", "header"]);
    let short = "
import h5py, struct
with h5py.File(path, 'w') as f:
    f.create_dataset('v', data=np.arange(4 * 512, dtype='f8').reshape(4, 512), chunks=(1, 512), shuffle=True)
bytes = bytearray(open(path, 'rb').read())
at, found = bytes.find(b'TREE\\x01'), 0
while (at := bytes.find(struct.pack('<I', 4096) + b'\\0' * 4, at)) >= 0:
    bytes[at:at + 4] = struct.pack('<I', 64)
    found += 1
    at += 4
assert found >= 4, found
open(path, 'wb').write(bytes)";
    let file = scripted(&up, "short.h5", short);
    import(&file, &up.at("short")).fails(1, &["short.h5", "damaged"]);
    std::fs::create_dir(up.at("fifo")).expect("made");
    shell(up.area().path(), "mkfifo it.nc").ok();
    import(&up.area().path().join("it.nc"), &up.at("fifo/it")).fails(1, &["it.nc", "neither"]);
}

/// Who cannot read the original cannot read the copy.
#[test]
fn rights_are_not_widened() {
    needs_mount!();
    let up = Up::start();
    let mode = |path: &std::path::Path| path.metadata().expect("metadata").mode() & 0o777;
    let file = scripted(&up, "a.npz", "np.savez(path, v=np.zeros(3))");
    shell(up.area().path(), "chmod 600 a.npz").ok();
    import(&file, &up.at("a")).ok();
    assert_eq!((mode(&up.at("a")), mode(&up.at("a/v"))), (0o700, 0o600));
    let out = up.area().path().join("out.npz");
    export(&up.at("a"), &out).ok();
    assert_eq!(mode(&out), 0o600);
    shell(up.mnt(), "chmod -R go=rX a").ok();
    export(&up.at("a"), &out).ok();
    assert_eq!(mode(&out), 0o600, "an old file keeps its rights");
    std::fs::remove_file(&out).expect("removed");
    export(&up.at("a"), &out).ok();
    assert_eq!(mode(&out), 0o644);
}

/// Two imports to one place, on two mounts: one of them makes it.
#[test]
fn imports_on_two_mounts_exclude_each_other() {
    needs_mount!();
    let cluster = Cluster::start(1, 2);
    let dir = Area::new();
    let mut files = Vec::new();
    for k in 0..2 {
        let file = dir.path().join(format!("file{k}.npz"));
        let program = format!(
            "import numpy as np; np.savez(r'{}', **{{f'a{{i}}': np.full((200, 200), {k}) for i in range(30)}})",
            text(&file)
        );
        run(std::process::Command::new(inputs::PYTHON).args(["-c", &program])).ok();
        files.push(file);
    }
    let there = [0, 1].map(|k| cluster.mnt(k).join("it"));
    cluster.server(0).signal(Signal::SIGSTOP);
    let mut child = std::process::Command::new(binary::path())
        .args(["import", text(&files[0]), text(&there[0])])
        .stdin(std::process::Stdio::null())
        .spawn()
        .expect("started");
    // All of it is there but the data.
    poll::until_true("the arrays", || {
        let tags = slabfs(["tags", text(&cluster.mnt(1).join(".slabfs-import-it"))]);
        tags.status == 0 && tags.text().contains("_slabfs_import")
    });
    import(&files[1], &there[1]).fails(1, &["another import"]);
    cluster.server(0).signal(Signal::SIGCONT);
    assert!(child.wait().expect("ended").success());
    for i in 0..30 {
        let bytes = std::fs::read(there[1].join(format!("a{i}"))).expect("read");
        assert_eq!(bytes, vec![0; 200 * 200 * 8]);
    }
    let left = std::fs::read_dir(&there[0]).expect("a directory");
    assert_eq!(left.count(), 30, "no lock is left");
}

/// A file that is written while it is imported is not taken for either version.
#[test]
fn a_file_that_changes_is_noticed() {
    needs_mount!();
    let cluster = Cluster::with(1, 1, &[]);
    let dir = Area::new();
    let file = dir.path().join("large.npy");
    let program = format!(
        "import numpy as np; np.save(r'{}', np.zeros((64, 1 << 17)))",
        text(&file)
    );
    run(std::process::Command::new(inputs::PYTHON).args(["-c", &program])).ok();
    let mount = cluster.mnt(0);
    let there = mount.join("large");
    cluster.server(0).signal(Signal::SIGSTOP);
    let mut child = std::process::Command::new(binary::path())
        .args(["import", text(&file), text(&there)])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("started");
    poll::until_true("the array", || {
        mount.join(".slabfs-import-large/large").exists()
    });
    let other = std::fs::OpenOptions::new().write(true).open(&file);
    other
        .expect("open")
        .write_at(&[1; 100], 60 << 20)
        .expect("written");
    cluster.server(0).signal(Signal::SIGCONT);
    assert!(!child.wait().expect("ended").success());
    assert!(!there.exists());
}

#[test]
fn texts_of_fixed_length_become_strings() {
    needs_mount!();
    let up = Up::start();
    let file = scripted(
        &up,
        "names.npy",
        "np.save(path, np.array(['größe', 'b', '']))",
    );
    import(&file, &up.at("names")).ok();
    let dir = up.area().path();
    export(&up.at("names"), &dir.join("names.nc")).ok();
    let dump = shell(dir, "ncdump names.nc").ok();
    assert!(
        dump.text().contains("\"größe\", \"b\", _"),
        "{}",
        dump.text()
    );
    export(&up.at("names"), &dir.join("names.h5")).ok();
}

#[test]
fn exports_say_what_they_cannot_have() {
    needs_mount!();
    let up = Up::start();
    std::fs::create_dir(up.at("run")).expect("made");
    create(&up.at("run/a"), "4", "f4", &[]);
    std::fs::write(up.at("run/notes.txt"), "text").expect("written");
    slabfs(["tag", text(&up.at("run/a")), "_FillValue=9"]).ok();
    let dir = up.area().path();
    let said = export(&up.at("run"), &dir.join("run.nc")).ok();
    assert!(
        said.stderr.contains("arrays of bytes: notes.txt"),
        "{}",
        said.stderr
    );
    let dump = shell(dir, "ncdump -h run.nc").ok();
    assert!(
        dump.text().contains("a:_FillValue = 9.f ;"),
        "{}",
        dump.text()
    );
    export(&up.at("run/a@[0:2]"), &dir.join("part.npy")).fails(1, &["selection", "slabfs create"]);
    let file = scripted(&up, "b.npy", "np.save(path, np.zeros(3))");
    import(&file, &up.at("b@[0]")).fails(1, &["b@[0]", "selection"]);
    let said = import(&file, &up.at("run")).ok();
    assert!(said.text().contains("run/b"), "{}", said.text());
}
