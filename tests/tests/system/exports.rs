//! What export and import make of things that the other side has not: notes, and messages that say what to do.

use slabfs_tests::tool::{create, info, shell, slabfs};
use slabfs_tests::{Up, needs_mount};

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
