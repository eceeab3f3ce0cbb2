"""Opens views of a mount with NumPy, zarr and xarray, and compares them with what was written. Used by system/live.rs.

    live.py numpy MOUNT           arrays of all dtypes and ranks, growth, mappings
    live.py zarr MOUNT
    live.py datasets MOUNT FILE   FILE was imported as MOUNT/it
"""
import errno
import mmap
import os
import subprocess
import sys

import numpy as np

SLABFS = os.environ["SLABFS"]
DTYPES = "u1 i1 u2 >i2 i4 u4 >u8 i8 f2 f4 >f4 f8 c8 c16 b1 S3 U2 V5".split()


def slabfs(*args):
    subprocess.run([SLABFS, *args], check=True)


def values(dtype, shape):
    rng = np.random.default_rng(len(shape))
    raw = rng.integers(0, 100, (*shape, np.dtype(dtype).itemsize), "u1")
    if np.dtype(dtype).kind == "U":
        return rng.integers(65, 90, (*shape, np.dtype(dtype).itemsize // 4), "u4").view(dtype)[..., 0]
    if np.dtype(dtype).kind == "b":
        raw %= 2
    return raw.view(dtype)[..., 0]


def make(mount, name, a, *more):
    path = os.path.join(mount, name)
    dims = ",".join(map(str, a.shape)) if a.ndim else ""
    slabfs("create", path, "--dims", dims, "--dtype", a.dtype.str.lstrip("|<"), *more)
    with open(path, "r+b") as f:
        f.write(a.tobytes())
    return path


def arrays(mount):
    """Arrays by name, in a container."""
    os.mkdir(os.path.join(mount, "all"))
    made = {}
    for dtype in DTYPES:
        name = "a" + dtype.replace(">", "big")
        made[name] = values(dtype, (5, 7))
        make(mount, "all/" + name, made[name])
    for rank in (1, 3, 8):
        made["rank%d" % rank] = values("i4", (3,) * rank)
        make(mount, "all/rank%d" % rank, made["rank%d" % rank])
    made["large"] = values("f4", (3000, 1500))
    make(mount, "all/large", made["large"], "--codec", "shuffle+zstd:1")
    made["steps"] = values("f8", (10, 100))
    make(mount, "all/steps", made["steps"], "--max-dims", "unlimited,100")
    made["filled"] = np.full((5, 7), -9, "i4")
    slabfs("create", os.path.join(mount, "all/filled"), "--dims", "5,7", "--dtype", "i4", "--fill", "-9")
    return made


def same(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), (a.dtype, b.dtype, a.shape, b.shape)


def fails(code, what):
    try:
        what()
    except OSError as error:
        assert error.errno == code, error
        return
    raise AssertionError("no error")


def numpy(mount):
    made = arrays(mount)
    views = os.path.join(mount, ".slabfs/npy/all")
    assert sorted(os.listdir(views)) == sorted(name + ".npy" for name in made), os.listdir(views)
    for name, a in made.items():
        path = os.path.join(views, name + ".npy")
        same(np.load(path), a)
        mapped = np.load(path, mmap_mode="r")
        same(np.asarray(mapped), a)
        assert os.stat(path).st_size == len(open(path, "rb").read())
    # Growth: what is open stays as it was.
    path = os.path.join(views, "steps.npy")
    old = np.load(path, mmap_mode="r")
    with open(os.path.join(mount, "all/steps"), "ab") as f:
        f.write(np.ones(200).tobytes())
        f.flush()
        assert np.load(path).shape == (12, 100)
    assert old.shape == (10, 100)
    same(np.asarray(old), made["steps"])
    # Bytes that are written show through a mapping.
    mapped = np.load(os.path.join(views, "ai4.npy"), mmap_mode="r")
    assert mapped[0, 0] == made["ai4"][0, 0]
    with open(os.path.join(mount, "all/ai4"), "r+b") as f:
        f.write(np.int32(123456).tobytes())
    assert mapped[0, 0] == 123456
    # Structured types and dates keep their tags.
    files = os.path.join(os.path.dirname(mount), "t.npy")
    for array in np.zeros(3, [("a", "<i4"), ("b", ">f8")]), np.array(["2020-01-01"], "M8[D]"):
        np.save(files, array)
        slabfs("import", files, os.path.join(mount, "t"))
        same(np.load(os.path.join(mount, ".slabfs/npy/t.npy")), array)
        os.unlink(os.path.join(mount, "t"))
    # Bytes of an ordinary file.
    with open(os.path.join(mount, "text"), "w") as f:
        f.write("abc")
    assert np.load(os.path.join(mount, ".slabfs/npy/text.npy")).tobytes() == b"abc"
    # Reads across header and elements.
    path = os.path.join(views, "large.npy")
    with open(path, "rb") as f:
        entire = f.read()
        f.seek(100)
        assert f.read(100) == entire[100:200]
    assert entire[128:] == made["large"].tobytes()
    fails(errno.EACCES, lambda: open(path, "r+b"))
    fails(errno.ENOENT, lambda: open(os.path.join(views, "none.npy")))
    fails(errno.ENOENT, lambda: open(os.path.join(views, "large")))
    fails(errno.EPERM, lambda: os.unlink(path))
    # An object that becomes smaller.
    with open(os.path.join(views, "steps.npy"), "rb", buffering=0) as f:
        f.read(128)
        os.truncate(os.path.join(mount, "all/steps"), 800)
        fails(errno.EIO, lambda: f.read(1 << 20))


def zarr(mount):
    import zarr as library

    made = arrays(mount)
    slabfs("tag", os.path.join(mount, "all"), "title=all of it", "n:i2=5")
    slabfs("tag", os.path.join(mount, "all/large"), "units=K", 'dim_names:string[]=["y","x"]')
    group = library.open_group(os.path.join(mount, ".slabfs/zarr/all.zarr"), mode="r")
    assert dict(group.attrs) == {"title": "all of it", "n": 5}, dict(group.attrs)
    found = dict(group.arrays())
    assert sorted(found) == sorted(made), (sorted(found), sorted(made))
    for name, a in made.items():
        b = found[name]
        assert b.shape == a.shape and b.dtype.itemsize == a.dtype.itemsize, name
        b = b[...]
        assert b.astype(b.dtype.newbyteorder("<")).tobytes() == a.astype(a.dtype.newbyteorder("<")).tobytes(), name
    large = found["large"]
    assert dict(large.attrs) == {"units": "K"} and large.metadata.dimension_names == ("y", "x")
    assert (large[1234:1300, 77] == made["large"][1234:1300, 77]).all()
    # Growth shows at the next open.
    with open(os.path.join(mount, "all/steps"), "ab") as f:
        f.write(np.ones(200).tobytes())
    again = library.open_array(os.path.join(mount, ".slabfs/zarr/all/steps.zarr"), mode="r")
    assert again.shape == (12, 100) and (again[10:] == 1).all() and (again[:10] == made["steps"]).all()
    # Listed, and each listed file is there.
    top = os.path.join(mount, ".slabfs/zarr/all.zarr")
    count = 0
    for where, directories, files in os.walk(top):
        for file in files:
            path = os.path.join(where, file)
            assert os.stat(path).st_size == len(open(path, "rb").read()) > 0, path
            count += 1
    assert count > 2 * len(made), count
    fails(errno.ENOENT, lambda: open(os.path.join(top, "large/c/9999/0")))
    fails(errno.ENOENT, lambda: open(os.path.join(top, "large/c/00/0")))
    fails(errno.EACCES, lambda: open(os.path.join(top, "zarr.json"), "r+"))


def hdf5(mount):
    import h5py

    made = arrays(mount)
    slabfs("tag", os.path.join(mount, "all"), "title=all of it", "n:i2=5")
    slabfs("tag", os.path.join(mount, "all/large"), "units=K", 'dim_names:string[]=["y","x"]')
    os.mkdir(os.path.join(mount, "all/below"))
    made["below/deep"] = values("i2", (4,))
    make(mount, "all/below/deep", made["below/deep"])
    path = os.path.join(mount, ".slabfs/h5/all.h5")
    for again in range(2):
        with h5py.File(path, "r") as f:
            assert f.attrs["title"] == b"all of it" and f.attrs["n"] == 5, dict(f.attrs)
            for name, a in made.items():
                b = f[name]
                assert b.shape == a.shape, name
                if name == "aU2":
                    assert b[...].tobytes() == a.tobytes()
                elif name == "ab1":
                    assert (b[...] == a).all()
                else:
                    same(np.asarray(b[...]), a)
            assert [f["large"].dims[i][0].name for i in range(2)] == ["/y", "/x"]
            assert f["large"].attrs["units"] == b"K"
            assert (f["large"][1234:1300, 77] == made["large"][1234:1300, 77]).all()
            if again == 0:
                old = os.stat(path)
                with open(os.path.join(mount, "all/steps"), "ab") as g:
                    g.write(np.ones(200).tobytes())
                # This file has the form that it had.
                assert f["steps"].shape == (10, 100) and (f["steps"][...] == made["steps"]).all()
                made["steps"] = np.concatenate([made["steps"], np.ones((2, 100))])
    with h5py.File(os.path.join(mount, ".slabfs/h5/all/large.h5"), "r") as f:
        assert (f["data"][...] == made["large"]).all()
    with h5py.File(os.path.join(mount, ".slabfs/h5/all/below.h5"), "r") as f:
        assert list(f) == ["deep", "dim_0_4"], list(f)
    done = subprocess.run(["h5dump", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 0 and not done.stderr, done
    fails(errno.EACCES, lambda: open(path, "r+b"))
    fails(errno.ENOENT, lambda: open(os.path.join(mount, ".slabfs/h5/none.h5")))


def datasets(mount, file):
    import xarray

    expected = xarray.open_dataset(file, decode_times=False)
    found = xarray.open_zarr(os.path.join(mount, ".slabfs/zarr/it.zarr"), decode_times=False, consolidated=False)
    xarray.testing.assert_identical(expected, found)
    path = os.path.join(mount, ".slabfs/h5/it.h5")
    xarray.testing.assert_identical(expected, xarray.open_dataset(path, decode_times=False, engine="netcdf4"))
    header = [subprocess.run(["ncdump", "-h", p], check=True, capture_output=True, text=True).stdout.split("\n")[1:] for p in (file, path)]
    # No dimension is unlimited in a view.
    fixed = [line.split(" = ")[0] + " = " + line.split("(")[1].split()[0] + " ;" if "UNLIMITED" in line else line for line in header[0]]
    assert fixed == header[1], (fixed, header[1])
    done = subprocess.run(["cdo", "-s", "diffn", file, path], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done


globals()[sys.argv[1]](*sys.argv[2:])
