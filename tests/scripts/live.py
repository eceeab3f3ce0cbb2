"""Opens views of a mount with NumPy, zarr and xarray, and compares them with what was written. Used by system/live.rs.

    live.py numpy MOUNT           arrays of all dtypes and ranks, growth, mappings
    live.py zarr MOUNT
    live.py hdf5 MOUNT
    live.py datasets MOUNT FILE   FILE was imported as MOUNT/it
    live.py random MOUNT SEED     containers of random arrays, names and attributes
    live.py steps MOUNT OTHER SECONDS   one writes time steps on OTHER, views of MOUNT are opened again and again
"""
import errno
import json
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
    # Removed while it is open, and mapped by two.
    path = os.path.join(views, "au4.npy")
    first, second = np.load(path, mmap_mode="r"), np.load(path, mmap_mode="r")
    assert first[0, 0] == made["au4"][0, 0]
    del first
    with open(os.path.join(mount, "all/au4"), "r+b") as f:
        f.write(np.uint32(77).tobytes())
    assert second[0, 0] == 77
    gone = open(os.path.join(views, "au2.npy"), "rb")
    os.unlink(os.path.join(mount, "all/au2"))
    assert gone.read()[-2:] == made["au2"].tobytes()[-2:]
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
    assert list(library.open_group(os.path.join(mount, ".slabfs/root.zarr"), mode="r").groups())[0][0] == "all"
    # Chunks do not depend on how long an axis that grows is.
    wide = values("f4", (64, 8192))
    make(mount, "wide", wide, "--max-dims", "unlimited,unlimited")
    open_before = library.open_array(os.path.join(mount, ".slabfs/zarr/wide.zarr"), mode="r")
    slabfs("set", os.path.join(mount, "wide"), "--dims", "64,16384")
    assert (open_before[...] == wide).all()
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
    # Bytes that are written show through pages that were read.
    with h5py.File(path, "r") as f:
        offset = f["ai4"].id.get_offset()
    fd = os.open(path, os.O_RDONLY)
    assert os.pread(fd, 4, offset) == made["ai4"].tobytes()[:4]
    with open(os.path.join(mount, "all/ai4"), "r+b") as g:
        g.write(np.int32(123456).tobytes())
    assert os.pread(fd, 4, offset) == np.int32(123456).tobytes()
    os.close(fd)
    with h5py.File(os.path.join(mount, ".slabfs/root.h5"), "r") as f:
        assert list(f) == ["all"] and (f["all/below/deep"][...] == made["below/deep"]).all(), list(f)
    assert sorted(os.listdir(os.path.join(mount, ".slabfs"))) == sorted("call find h5 layout npy root.h5 root.zarr stats status zarr".split())
    done = subprocess.run(["h5dump", path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 0 and not done.stderr, done
    # cp finds the same inode when it opens what it has looked at.
    copy = os.path.join(os.path.dirname(mount), "copy.h5")
    subprocess.run(["cp", path, copy], check=True)
    assert open(copy, "rb").read() == open(path, "rb").read() == open(path[:-2] + "nc", "rb").read()
    # What one array has must not hide the others.
    hostile = os.path.join(mount, "hostile")
    os.mkdir(hostile)
    make(mount, "hostile/good", values("i4", (5,)), "--dim-names", "x")
    make(mount, "hostile/other", values("i4", (7, 2)), "--dim-names", "x,y")
    slabfs("create", os.path.join(hostile, "half"), "--dims", "3", "--dtype", "f2", "--fill", "1.5")
    slabfs("create", os.path.join(hostile, "large"), "--dims", str(2**61), "--dtype", "u1")
    slabfs("tag", os.path.join(hostile, "good"), "DIMENSION_LIST=7", "CLASS=x", "_Netcdf4Dimid=9", "units=m")
    slabfs("tag", hostile, "_NCProperties=1", 'l=[1,2.5,"a"]')
    deep = hostile
    for _ in range(200):
        deep += "/d"
        os.mkdir(deep)
    with h5py.File(os.path.join(mount, ".slabfs/h5/hostile.h5"), "r") as f:
        assert (f["good"][...] == values("i4", (5,))).all() and dict(f["good"].attrs)["units"] == b"m"
        assert f["good"].dims[0][0].name == "/x" and f["other"].dims[1][0].name == "/y"
        assert (f["half"][...] == 1.5).all() and "large" not in f
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


NAMES = ["a", "temp 2m", "größe", "it's", 'say "x"', "c", "zarr.json", "a.npy", "x.h5", ".hidden", "-n", "a=b", "%s", "n" * 150, "back\\slash", "tab\tx", "0"]


def random(mount, seed):
    """What the libraries read is what the model has."""
    import h5py
    import zarr as library

    rng = np.random.default_rng(int(seed))
    top = os.path.join(mount, "r" + seed)
    os.mkdir(top)
    made, tags, lines = {}, {}, []
    groups = [""] + ["g%d" % i for i in range(rng.integers(0, 3))] + ["deep/er"]
    for group in groups:
        os.makedirs(os.path.join(top, group), exist_ok=True)
        for name in rng.choice(NAMES, rng.integers(0, 6), replace=False):
            dtype = DTYPES[rng.integers(len(DTYPES))]
            shape = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 7, rng.integers(0, 6)))
            a = values(dtype, shape)
            path = (group + "/" if group else "") + str(name)
            made[path] = a
            own = {"k%d" % i: int(rng.integers(-1000, 1000)) for i in range(rng.integers(0, 4))}
            if rng.random() < 0.5:
                own["text"] = "".join(chr(c) for c in rng.integers(32, 0x24F, 12))
            if shape and rng.random() < 0.5:
                # The same name with several lengths is no dimension.
                own["dim_names"] = {"string[]": json.dumps(["d%d_%d" % (i, n) if rng.random() < 0.9 else "d" for i, n in enumerate(shape)])}
            tags[path] = own
            fill = "0x" + "07" * a.dtype.itemsize if a.dtype.kind in "iu" else "0"
            lines.append(json.dumps({"path": path, "dims": list(shape), "dtype": a.dtype.str.lstrip("|<"), "tags": own, "fill": fill}))
    subprocess.run([SLABFS, "create", top, "--from-json", "-"], input="\n".join(lines), text=True, check=True, stdout=subprocess.DEVNULL)
    for path, a in made.items():
        if rng.random() < 0.8:
            with open(os.path.join(top, path), "r+b") as f:
                f.write(a.tobytes())
        elif a.dtype.kind in "iu":
            made[path] = np.frombuffer(b"\x07" * a.nbytes, a.dtype).reshape(a.shape)
        else:
            made[path] = np.frombuffer(bytes(a.nbytes), a.dtype).reshape(a.shape)
    for path, a in made.items():
        same(np.load(os.path.join(mount, ".slabfs/npy/r%s/%s.npy" % (seed, path))), a)
    group = library.open_group(os.path.join(mount, ".slabfs/zarr/r%s.zarr" % seed), mode="r")
    with h5py.File(os.path.join(mount, ".slabfs/h5/r%s.h5" % seed), "r") as f:
        for path, a in made.items():
            own = {key: value for key, value in tags[path].items() if key != "dim_names"}
            b = f[path]
            assert b.shape == a.shape and np.asarray(b[...]).tobytes() == a.tobytes(), path
            for key, value in own.items():
                found = b.attrs[key]
                found = found.decode() if isinstance(found, bytes) else found
                assert found == value, (path, key, found, value)
            if path.rsplit("/", 1)[-1] in ("zarr.json", "c") or "\\" in path:
                # Names that zarr has a use for, or reads as a path.
                continue
            b = group[path]
            # zarr has the bytes of numbers in the other order.
            assert b.shape == a.shape and np.asarray(b[...]).astype(a.dtype).tobytes() == a.tobytes(), path
            assert dict(b.attrs) == own, path
    done = subprocess.run(["h5dump", os.path.join(mount, ".slabfs/h5/r%s.h5" % seed)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert done.returncode == 0 and not done.stderr, done


STEPS = """
import os, sys, time
import numpy as np
path, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
step = 0
with open(path, "ab", buffering=0) as f:
    while time.monotonic() < end:
        assert f.write(np.full(50000, step, "f8").tobytes()) == 400000
        step += 1
        time.sleep(0.02)
print(step)
"""


def steps(mount, other, seconds):
    import h5py
    import zarr as library

    os.mkdir(os.path.join(other, "run"))
    slabfs("create", os.path.join(other, "run/temp"), "--dims", "0,50000", "--max-dims", "unlimited,50000", "--dtype", "f8", "--dim-names", "time,x")
    writer = subprocess.Popen([sys.executable, "-c", STEPS, os.path.join(other, "run/temp"), seconds], stdout=subprocess.PIPE, text=True)
    most, rounds = 0, 0
    while writer.poll() is None:
        with h5py.File(os.path.join(mount, ".slabfs/h5/run.h5"), "r") as f:
            now = [f["temp"][-3:] if f["temp"].shape[0] else np.zeros((0, 50000)), f["temp"].shape[0]]
        a = library.open_array(os.path.join(mount, ".slabfs/zarr/run/temp.zarr"), mode="r")
        again = [a[-3:] if a.shape[0] else np.zeros((0, 50000)), a.shape[0]]
        b = np.load(os.path.join(mount, ".slabfs/npy/run/temp.npy"), mmap_mode="r")
        for last, count in now, again, [np.array(b[-3:]), b.shape[0]]:
            first = max(count - 3, 0)
            expected = np.arange(first, count, dtype="f8")[:, None]
            assert last.shape == (count - first, 50000) and (last == expected).all(), (count, last[:, 0])
            assert count >= most, (count, most)
            most = count
        rounds += 1
    written = int(writer.stdout.read())
    assert writer.returncode == 0 and rounds > 3 and most > 3, (writer.returncode, rounds, most)
    a = library.open_array(os.path.join(mount, ".slabfs/zarr/run/temp.zarr"), mode="r")
    assert a.shape[0] == written and (a[-50:, 7] == np.arange(written)[-50:]).all()


globals()[sys.argv[1]](*sys.argv[2:])
