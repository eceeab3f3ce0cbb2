"""Joins made tiles by `slabfs collate`, and compares what comes out: collate_cases.py PROGRAM DIR [CASE...]

Each case is a function below; its text says what it stands for. A case that fails is printed, and the status is 1. PROGRAM is
`slabfs` or `slabfs-formats`; DIR is a directory for files.
"""
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time

import h5py
import netCDF4
import numpy as np

PROGRAM, DIR = sys.argv[1:3]
TILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiles.py")


def run(*args, limit=180, **more):
    done = subprocess.run([PROGRAM, "collate", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=limit, **more)
    assert "panicked" not in done.stderr, done.stderr
    return done


def ok(*args):
    done = run(*args)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done


def refused(where, words, *args, status=1, **more):
    """A refusal that has these words, and leaves everything as it was."""
    before = listing(where)
    done = run(*args, **more)
    assert done.returncode == status, (done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr, (word, done.stderr)
    assert listing(where) == before, (before, listing(where))
    return done


def listing(where):
    return sorted((name, os.path.getsize(os.path.join(where, name))) for name in os.listdir(where))


def place(d, name, box, n=12, first=1):
    d[name].domain_decomposition = np.array([first, first + n - 1, first + box[0], first + box[1] - 1], "i4")


def halves(where, make, n=12, cuts=((0, 6), (6, 12)), **options):
    """Two or more tiles along x; `make` adds the variables. The file of everything is made the same way."""
    paths = []
    for number, box in enumerate([*cuts, (0, n)]):
        path = os.path.join(where, "want.nc" if number == len(cuts) else "t.nc.%04d" % number)
        with netCDF4.Dataset(path, "w", **options) as d:
            d.createDimension("x", box[1] - box[0])
            d.createVariable("x", "f8", ("x",))[:] = np.arange(*box)
            make(d, slice(*box))
            if path.endswith("want.nc"):
                continue
            place(d, "x", box, n)
        paths.append(path)
    return paths, os.path.join(where, "want.nc")


def plain(x):
    if isinstance(x, (str, list)):
        return x
    x = np.ma.getdata(np.asarray(x))
    if x.dtype.hasobject:
        return (x.shape, [plain(i) if isinstance(i, np.ndarray) else i for i in x.ravel().tolist()])
    return (x.dtype.newbyteorder("=").str if not x.dtype.names else x.dtype.descr, x.shape, x.astype(x.dtype.newbyteorder("=")).tobytes())


def content(path):
    found = {}

    def walk(g, p):
        for n, d in g.dimensions.items():
            found["dim " + p + n] = (len(d), d.isunlimited())
        for n in g.ncattrs():
            found["att %s:%s" % (p, n)] = plain(g.getncattr(n))
        for n, v in g.variables.items():
            v.set_auto_maskandscale(False)
            v.set_auto_chartostring(False)
            found["data " + p + n] = (v.dimensions, str(v.datatype), plain(v[...]))
            for k in v.ncattrs():
                found["att %s%s:%s" % (p, n, k)] = plain(v.getncattr(k))
        for n, h in g.groups.items():
            found["group " + p + n] = True
            walk(h, p + n + "/")

    with netCDF4.Dataset(path) as d:
        walk(d, "/")
    return found


def same(want, got, free=()):
    a, b = content(want), content(got)
    for k in sorted(set(a) | set(b)):
        if k not in free:
            assert k in b, "lost: " + k
            assert k in a, "added: %s = %.90r" % (k, b[k])
            assert a[k] == b[k], "%s: %.200r is %.200r" % (k, a[k], b[k])


def joins(where, make, *options, **more):
    paths, want = halves(where, make, **more)
    out = os.path.join(where, "out.nc")
    done = ok("-o", out, *options, *reversed(paths))
    same(want, out)
    return out, done


# --- what is joined


def random_decompositions(where):
    """Random shapes, types, chunks, filters, byte orders, halos, gaps, groups and NetCDF-3."""
    for seed in range(60):
        d = os.path.join(where, str(seed))
        os.mkdir(d)
        subprocess.run([sys.executable, TILES, "make", "small-%d" % seed, d], check=True, stdout=subprocess.DEVNULL)
        tiles = sorted(os.path.join(d, n) for n in os.listdir(d))
        ok("-o", d + "/out.nc", *random.Random(seed).sample(tiles, len(tiles)))
        subprocess.run([sys.executable, TILES, "check", d + "/out.nc", *tiles], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(d)


def texts_and_types(where):
    """Strings along x and not, characters, scalars, types that the file defines, and attributes of them."""

    def make(d, x):
        names = np.array(["%d \u00e4" % i if i % 3 else "" for i in range(12)], object)
        d.createVariable("names", str, ("x",))[:] = names[x]
        d.createDimension("n", 3)
        d.createVariable("few", str, ("n",), fill_value="none")[:] = names[:3]
        d.createVariable("one", str, ())[...] = names[1]
        v = d.createVariable("code", "S1", ("x", "n"))
        v.set_auto_chartostring(False)
        v[:] = np.array([[b"abcdefghijkl"[i : i + 1], b"\0", b" "] for i in range(12)], "S1")[x]
        d.createVariable("g", "f8", ())[...] = 9.81
        point = d.createCompoundType(np.dtype([("a", "i4"), ("b", "f8")]), "point")
        d.createVariable("points", point, ("x",))[:] = np.array([(i, i / 3) for i in range(12)], [("a", "i4"), ("b", "f8")])[x]
        sky = d.createEnumType("u1", "sky", {"clear": 0, "cloudy": 1})
        d.createVariable("cover", sky, ("n",))[:] = np.array([0, 1, 1], "u1")
        d.createVariable("covers", sky, ("x",), fill_value=1)[:] = np.arange(12, dtype="u1")[x] % 2
        lists = d.createVLType("i2", "list")
        v = d.createVariable("lists", lists, ("n",))
        for i in range(3):
            v[i] = np.arange(i + 1, dtype="i2")
        d.setncattr_string("strings", ["a", "", "\u00fc"])
        d.setncattr("empty", "")
        d.setncattr("chars", "caf\u00e9")

    joins(where, make)


def attributes(where):
    """10,000 attributes, and some of 96 KB."""

    def make(d, x):
        v = d.createVariable("v", "f4", ("x",))
        v[:] = np.arange(12)[x]
        v.long_text = "x" * 96_000
        d.numbers = np.arange(24_000, dtype="i4")
        for i in range(10_000):
            d.setncattr("a%05d" % i, np.int16(i))

    joins(where, make)


def groups(where):
    """Dimensions of the root in groups, one that is decomposed in a group, and two variables of one name."""

    def make(d, x):
        g = d.createGroup("a").createGroup("b")
        g.note = "in it"
        for h in d, g:
            h.createVariable("v", "i4", ("x",), zlib=True)[:] = np.arange(12)[x] * (2 if h is g else 1)
        g.createDimension("y", 2)
        g.createVariable("w", "i2", ("y", "x"))[:] = np.arange(24).reshape(2, 12)[:, x]

    joins(where, make)


def unlimited(where):
    """The decomposed dimension is unlimited, another too, and a variable was never written."""
    for number, (box, name) in enumerate((((0, 5), "t0"), ((5, 11), "t1"), ((0, 11), "want"))):
        with netCDF4.Dataset("%s/%s.nc" % (where, name), "w") as d:
            d.createDimension("x", None)
            d.createDimension("t", None)
            d.createDimension("bare", 4)
            d.createVariable("x", "f8", ("x",))[:] = np.arange(*box)
            d.createVariable("v", "f4", ("t", "x"), zlib=True)[:] = np.arange(33).reshape(3, 11)[:, slice(*box)]
            d.createVariable("none", "f4", ("t", "x"))
            d.createVariable("b", "f4", ("bare",))[:] = 1
            if name != "want":
                place(d, "x", box, 11)
    ok("-o", where + "/out.nc", where + "/t1.nc", where + "/t0.nc")
    same(where + "/want.nc", where + "/out.nc")
    with netCDF4.Dataset(where + "/out.nc", "a") as d:
        d["v"][3] = 7
        assert len(d.dimensions["t"]) == 4


def h5(path, box, n=12, latest=False, filters=None, mask=None, skip=(), chunk=3, **more):
    """A tile by h5py, with dimension scales, and chunks that are stored as they are."""
    with h5py.File(path, "w", libver="latest" if latest else "earliest", **more) as f:
        size = box[1] - box[0]
        x = f.create_dataset("x", data=np.arange(*box, dtype="f8"))
        x.make_scale("x")
        x.attrs["domain_decomposition"] = np.array([1, n, box[0] + 1, box[1]], "i4")
        v = f.create_dataset("v", (size,), "<i4", chunks=(min(chunk, size),), fillvalue=-5, **(filters or {}))
        v.dims[0].attach_scale(x)
        for at in range(0, size, chunk):
            if at not in skip and mask is None:
                v[at : at + chunk] = np.arange(box[0] + at, box[0] + min(at + chunk, size))
            elif at not in skip:
                v.id.write_direct_chunk((at,), np.arange(box[0] + at, box[0] + at + chunk, dtype="<i4").tobytes(), mask)


def masks_and_unwritten_chunks(where):
    """Chunks that skipped filters, chunks that were never written, and files of HDF5 1.10."""
    for latest in False, True:
        for cuts in ((0, 6), (6, 12)), ((0, 5), (5, 12)):
            d = "%s/%d%d" % (where, latest, cuts[0][1])
            os.mkdir(d)
            paths = ["%s/t%d" % (d, i) for i in (0, 1)]
            h5(paths[0], cuts[0], latest=latest, filters=dict(compression="gzip", shuffle=True), mask=3)
            h5(paths[1], cuts[1], latest=latest, filters=dict(compression="gzip", shuffle=True), skip=(3,))
            ok("-o", d + "/out.nc", *paths)
            with h5py.File(d + "/out.nc") as f:
                want = np.arange(12)
                want[cuts[1][0] + 3 : cuts[1][0] + 6] = -5
                assert (f["v"][:] == want).all(), f["v"][:]
                assert f["v"].dims[0][0].name == "/x"


def user_blocks(where):
    """Files with bytes of others at their beginning, which addresses do not count; links of HDF5 that are refused."""
    for latest in False, True:
        d = "%s/%d" % (where, latest)
        os.mkdir(d)
        paths = ["%s/t%d" % (d, i) for i in (0, 1)]
        for path, box in zip(paths, ((0, 6), (6, 12))):
            h5(path, box, latest=latest, filters=dict(compression="gzip"), userblock_size=1024)
        ok("-o", d + "/out.nc", *paths)
        with h5py.File(d + "/out.nc") as f:
            assert (f["v"][:] == np.arange(12)).all() and (f["x"][:] == np.arange(12)).all()
        for name, link in ("soft", h5py.SoftLink("/v")), ("external", h5py.ExternalLink("other", "/v")), ("hard", None):
            with h5py.File(paths[1], "a") as f:
                f[name] = link or f["v"]
            refused(d, ["t1", name if link else "another name"], "-o", d + "/o.nc", *paths)
            with h5py.File(paths[1], "a") as f:
                del f[name]


def unknown_filters(where):
    """A filter without a plug-in: copied where chunks fit, refused by name where they do not."""
    for name, cuts in ("fit", ((0, 6), (6, 12))), ("not", ((0, 5), (5, 12))):
        d = where + "/" + name
        os.mkdir(d)
        paths = ["%s/t%d" % (d, i) for i in (0, 1)]
        for path, box in zip(paths, cuts):
            h5(path, box, filters=dict(compression="lzf"))
        if name == "fit":
            ok("-o", d + "/out.nc", *paths)
            with h5py.File(d + "/out.nc") as f:
                assert f["v"].compression == "lzf" and (f["v"][:] == np.arange(12)).all()
        else:
            refused(d, ["filter 32000", "v", "t"], "-o", d + "/out.nc", *paths)


def filters_of_the_library(where):
    """A filter that the library has and this program has not: scale-offset."""
    for cuts in ((0, 6), (6, 12)), ((0, 5), (5, 12)):
        d = "%s/%d" % (where, cuts[0][1])
        os.mkdir(d)
        paths = ["%s/t%d" % (d, i) for i in (0, 1)]
        for path, box in zip(paths, cuts):
            h5(path, box, filters=dict(scaleoffset=0))
        ok("-o", d + "/out.nc", *paths)
        with h5py.File(d + "/out.nc") as f:
            assert f["v"].scaleoffset is not None and (f["v"][:] == np.arange(12)).all(), f["v"][:]


def options(where):
    """Compression, chunks, replacing, removing, lists, patterns, dry runs."""

    def make(d, x):
        d.createDimension("t", 2)
        d.createVariable("v", "f4", ("t", "x"), zlib=True, complevel=1, shuffle=False, chunksizes=(1, 3))[:] = np.arange(24).reshape(2, 12)[:, x]
        d.history = "made"

    paths, want = halves(where, make)
    out = where + "/out.nc"

    def stored():
        with netCDF4.Dataset(out) as d:
            return d["v"].filters(), d["v"].chunking()

    before = listing(where)
    said = ok("--dry-run", "-o", out, *paths).stdout
    assert "8 copied, 0 encoded" in said, said
    assert listing(where) == before
    ok("-o", out, where + "/t.nc.*")
    same(want, out)
    assert stored()[0]["complevel"] == 1 and not stored()[0]["shuffle"] and stored()[1] == [1, 3]
    refused(where, ["out.nc exists"], "-o", out, *paths)
    for flags, level, shuffle, chunks in (
        (["-d", "5"], 5, False, [1, 3]),
        (["-d", "5", "--shuffle"], 5, True, [1, 3]),
        (["--shuffle"], 1, True, [1, 3]),
        (["-d", "0"], 0, False, [1, 3]),
        (["--chunks", "2,5"], 1, False, [2, 5]),
        (["--chunks", "x=12", "--jobs", "1"], 1, False, [1, 12]),
        (["--chunks", "100,100"], 1, False, [2, 12]),
    ):
        ok("-f", *flags, "-o", out, *paths)
        same(want, out)
        assert (stored()[0]["complevel"] if level else 0, stored()[0]["shuffle"], stored()[1]) == (level, shuffle, chunks), (flags, stored())
    with open(where + "/list", "w") as f:
        f.write("\n".join(paths))
    ok("-f", "-o", out, "@" + where + "/list")
    same(want, out)
    ok("-f", "-o", out, "--files-from", where + "/list")
    same(want, out)
    for wrong in ["--chunks", "0"], ["-d", "10"], ["--jobs", "0"], ["--chunks", "x"], ["--chunks", "x=12,no=3"], ["--chunks", "1,2,3"]:
        assert run("-f", "-o", out, *wrong, *paths).returncode != 0
    refused(where, ["is an input"], "-f", "-o", paths[0], *paths)
    refused(where, ["no file fits"], "-f", "-o", out, where + "/none*")
    refused(where, ["not a directory"], "-o", where + "/none/out.nc", *paths)
    ok("-r", "-f", "-o", out, *paths)
    same(want, out)
    assert sorted(os.listdir(where)) == ["list", "out.nc", "want.nc"]


def order_of_bytes(where):
    """Tiles of different byte orders are joined in that of the first."""
    for number, order in enumerate("<>"):
        box = [(0, 6), (6, 12)][number]
        with netCDF4.Dataset("%s/t%d" % (where, number), "w") as d:
            d.createDimension("x", 6)
            endian = {"<": "little", ">": "big"}[order]
            d.createVariable("x", order + "f8", ("x",), endian=endian)[:] = np.arange(*box)
            d.createVariable("v", order + "i2", ("x",), endian=endian, zlib=True, fill_value=-7)[:] = np.arange(*box) * 300
            place(d, "x", box)
    ok("-o", where + "/out.nc", where + "/t1", where + "/t0")
    with netCDF4.Dataset(where + "/out.nc") as d:
        assert (d["v"][:] == np.arange(12) * 300).all() and d["v"].endian() == "little"


def no_records(where):
    """An unlimited dimension without records, and a tile that has everything."""

    def make(d, x):
        d.createDimension("t", None)
        d.createVariable("t", "f8", ("t",))
        d.createVariable("v", "f4", ("t", "x"), zlib=True)
        d.createVariable("w", "f4", ("x",))[:] = np.arange(12)[x]

    for number, cuts in enumerate((((0, 6), (6, 12)), ((0, 12),))):
        os.mkdir("%s/%d" % (where, number))
        joins("%s/%d" % (where, number), make, cuts=cuts)
    for form in "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA":
        os.mkdir("%s/%s" % (where, form))
        paths, _ = halves("%s/%s" % (where, form), make_classic, format=form)
        ok("-o", where + "/%s.nc" % form, *paths)
        same(where + "/%s/want.nc" % form, where + "/%s.nc" % form)


def make_classic(d, x):
    d.createDimension("t", None)
    d.createVariable("v", "f4", ("t", "x"))
    d.createVariable("b", "i1", ("t",))
    d.createVariable("w", "i2", ("x",))[:] = np.arange(12)[x]
    d.createVariable("s", "i2", ())[...] = 3


def missing_tiles(where):
    """What is in no tile is filled, also where fill values are switched off, and a line says so."""

    def make(d, x):
        d.createDimension("t", None)
        v = d.createVariable("v", "f4", ("t", "x"), fill_value=-1)
        w = d.createVariable("w", "f4", ("x",), fill_value=False)
        w.missing_value = np.float32(-3)
        v[:], w[:] = np.arange(24).reshape(2, 12)[:, x], np.arange(12)[x]
        # With the fill value of the library, which is not masked where there is a missing_value.
        u = d.createVariable("u", "f4", ("x",), zlib=True, chunksizes=(2,))
        u.missing_value = np.float32(-5)
        u[:] = np.arange(12)[x]

    paths, _ = halves(where, make, cuts=((0, 4), (4, 8), (8, 12)))
    done = ok("-o", where + "/out.nc", paths[0], paths[2])
    assert done.stderr == "slabfs: note: in no tile, so filled: x 5-8\n", done.stderr
    assert run("-q", "-f", "-o", where + "/out.nc", paths[0], paths[2]).stderr == ""
    with netCDF4.Dataset(where + "/out.nc") as d:
        d.set_auto_mask(False)
        assert (d["v"][:, 4:8] == -1).all() and (d["w"][4:8] == -3).all(), (d["v"][:], d["w"][:])
        assert (d["u"][4:8] == -5).all() and (d["u"][8:] == np.arange(8, 12)).all(), d["u"][:]
        assert (d["v"][1, 8:] == np.arange(20, 24)).all() and len(d["x"]) == 12
    refused(where, ["leave out -r"], "-r", "-f", "-o", where + "/out.nc", paths[0], paths[2])
    assert os.path.exists(paths[0])


def chunks_of_classic_tiles(where):
    """Tiles without chunks become a file with some."""

    def make(d, x):
        d.createDimension("y", 4)
        d.createVariable("v", "f4", ("y", "x"))[:] = np.arange(48).reshape(4, 12)[:, x]

    paths, want = halves(where, make, format="NETCDF3_64BIT_OFFSET")
    out = where + "/out.nc"
    ok("--chunks", "x=5", "-o", out, *paths)
    same(want, out)
    with netCDF4.Dataset(out) as d:
        assert d["v"].chunking()[1] == 5 and d["x"].chunking() == [5], (d["v"].chunking(), d["x"].chunking())


def other_programs(where):
    """`ncdump` prints the same of the joined file, and `cdo diffn` finds no difference."""

    def make(d, x):
        d.createDimension("time", None)
        d.createDimension("y", 5)
        d.createVariable("y", "f8", ("y",))[:] = np.arange(5)
        d.createVariable("time", "f8", ("time",))[:] = [0, 1]
        d["time"].units = "days since 2000-01-01"
        d["x"].units, d["y"].units = "degrees_east", "degrees_north"
        for name in "a", "b":
            v = d.createVariable(name, "f4", ("time", "y", "x"), zlib=True, fill_value=-1e20)
            v[:] = np.random.default_rng(4).normal(size=(2, 5, 12))[:, :, x]
        d.history = "made"

    out, _ = joins(where, make)
    want = where + "/want.nc"
    dumps = [subprocess.run(["ncdump", "-n", "one", path], check=True, stdout=subprocess.PIPE).stdout for path in (want, out)]
    assert dumps[0] == dumps[1]
    done = subprocess.run(["cdo", "-s", "diffn", want, out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout


# --- what is refused, and what goes wrong


def misfits(where):
    """Overlap that differs, other coordinates that are not decomposed, and files that are none."""

    def make(shift=0, at=0.0, extra=False):
        def add(d, x):
            d.createDimension("z", 2)
            d.createVariable("z", "f4", ("z",))[:] = [at, 1 + at]
            d.createVariable("s", "f4", ())[...] = at
            d.createVariable("v", "i4", ("z", "x"), zlib=True)[:] = np.arange(24).reshape(2, 12)[:, x] + shift

        return add

    def tile(name, box, **how):
        with netCDF4.Dataset(where + "/" + name, "w") as d:
            d.createDimension("x", box[1] - box[0])
            d.createVariable("x", "f8", ("x",))[:] = np.arange(*box)
            make(**how)(d, slice(*box))
            place(d, "x", box)
        return where + "/" + name

    a, b = tile("a", (0, 7)), tile("b", (5, 12))
    ok("-o", where + "/out.nc", a, b)
    refused(where, ["v", "/c", "index [0, 5]"], "-o", where + "/o.nc", a, tile("c", (5, 12), shift=1))
    refused(where, ["z", "another value"], "-o", where + "/o.nc", a, tile("d", (5, 12), at=2.0))
    refused(where, ["given twice"], "-o", where + "/o.nc", a, b, a)
    refused(where, ["given twice"], "-f", "-o", where + "/out.nc", a, b, a)
    with open(where + "/text", "w") as f:
        f.write("no HDF5")
    refused(where, ["/text"], "-o", where + "/o.nc", a, where + "/text")
    refused(where, ["/none", "No such file"], "-o", where + "/o.nc", a, where + "/none")
    refused(where, ["domain_decomposition"], "-o", where + "/o.nc", where + "/out.nc")


def impossible_sizes(where):
    """Ranges and shapes that no file can have are refused, and not gone through."""
    for name, change in (
        ("range", lambda d: d["x"].setncattr("domain_decomposition", np.array([1, 2**31 - 1, 7, 12], "i4"))),
        ("more", lambda d: d["x"].setncattr("domain_decomposition", np.array([-(2**31), 2**31 - 1, 7, 12], "i4"))),
    ):
        folder = where + "/" + name
        os.mkdir(folder)
        paths, _ = halves(folder, lambda d, x: [d.createDimension("y", 4), d.createVariable("v", "i4", ("y", "x"), zlib=True)])
        for path in paths:
            with netCDF4.Dataset(path, "a") as d:
                change(d)
                if path == paths[0]:
                    d["x"].domain_decomposition = d["x"].domain_decomposition - np.array([0, 0, 6, 6], "i4")
        refused(folder, ["t.nc.000", "damaged"], "-o", folder + "/out.nc", *paths)
    folder = where + "/sparse"
    os.mkdir(folder)
    paths = ["%s/t%d" % (folder, i) for i in (0, 1)]
    for path, box in zip(paths, ((0, 6), (6, 12))):
        h5(path, box)
        with h5py.File(path, "a") as f:
            w = f.create_dataset("w", (2**33, 6), "i4", chunks=(1, 1))
            w.dims[1].attach_scale(f["x"])
    refused(folder, ["t0", "w"], "-o", folder + "/out.nc", *paths)


def large(where):
    """Tiles of 8 MB each that do not fit the chunks of the output."""
    rng = np.random.default_rng(1)
    data = rng.integers(0, 1 << 30, (64, 128, 400), dtype="i4")

    def make(d, x):
        d.createDimension("t", 64)
        d.createDimension("y", 128)
        d.createVariable("v", "i4", ("t", "y", "x"), zlib=True, complevel=1, chunksizes=(1, 128, min(90, x.stop - x.start)))[:] = data[:, :, x]

    return halves(where, make, n=400, cuts=((0, 130), (130, 250), (250, 400)))


def full_disk(where):
    """No room for the output: the message names it, the old one stays, and the same command succeeds afterwards."""
    paths, want = large(where)
    out = where + "/out.nc"
    with open(out, "w") as f:
        f.write("old")
    args = ("-f", "-o", out, *paths)
    for limit in 1 << 12, 1 << 18, 3 << 20:
        refused(where, ["out.nc"], *args, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert open(out).read() == "old"
    if os.geteuid() == 0:
        small = where + "/small"
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", small], check=True)
        try:
            refused(small, ["No space left"], "-o", small + "/out.nc", *paths)
        finally:
            subprocess.run(["umount", small], check=True)
    ok(*args)
    same(want, out)


def signals(where):
    """SIGINT, SIGTERM and SIGHUP stop it at any time; a kill of the worker is reported."""
    paths, want = large(where)
    out = where + "/out.nc"
    before = listing(where)
    random.seed(3)
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL:
        line = [PROGRAM, "collate", "--jobs", "1", "-d", "9", "--chunks", "7,50,77", "-o", out, *paths]
        child = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True)
        # When it has begun to write.
        while child.poll() is None and not any(os.path.exists(os.path.join(where, n, "unfinished.nc")) for n in os.listdir(where) if n.startswith(".slabfs-collate")):
            time.sleep(0.001)
        if number == signal.SIGKILL:
            workers = open("/proc/%d/task/%d/children" % (child.pid, child.pid)).read().split()
            os.kill(int(workers[0]), number)
        elif number == signal.SIGINT:
            # As from a terminal: both processes get it.
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
        said = child.communicate(timeout=20)[1]
        assert child.returncode == (1 if number == signal.SIGKILL else 128 + number), (child.returncode, said)
        assert "slabfs: " in said, said
        assert listing(where) == before, listing(where)
    ok("-o", out, *paths)
    same(want, out)


def damaged_files(where):
    """Files that are cut off or have wrong bytes: refused by name, or joined; nothing is left, and nothing hangs."""

    def make(d, x):
        d.createDimension("t", None)
        d.createVariable("t", "f8", ("t",))[:] = [0, 1]
        d.createVariable("v", "i4", ("t", "x"), zlib=True, fletcher32=True, chunksizes=(1, 3))[:] = np.arange(24).reshape(2, 12)[:, x]
        d.createVariable("s", str, ("x",))[:] = np.array(["text %d" % i for i in range(12)], object)[x]
        d.createGroup("g").createVariable("w", "f4", ("x",))[:] = np.arange(12)[x]
        d.history = "made"
        for i in range(20):
            d["v"].setncattr("a%d" % i, "long " * 9)

    rounds = int(os.environ.get("ROUNDS", "200"))
    for form in "NETCDF4", "NETCDF3_CLASSIC":
        folder = os.path.join(where, form)
        os.mkdir(folder)
        if form == "NETCDF4":
            paths, want = halves(folder, make)
        else:
            paths, want = halves(folder, lambda d, x: d.createVariable("v", "i4", ("x",)).__setitem__(slice(None), np.arange(12)[x]), format=form)
        out, bad = folder + "/out.nc", folder + "/bad"
        rng = random.Random(int(os.environ.get("SEED", "5")))
        refusals = 0
        for number in range(rounds):
            data = bytearray(open(paths[number % 2], "rb").read())
            if number % 3 == 0:
                data = data[: rng.randrange(len(data))]
            else:
                for _ in range(1 + number % 4):
                    at = rng.randrange(len(data))
                    data[at : at + 1] = rng.choice([b"\xff", b"\0", bytes([rng.randrange(256)])])
            with open(bad, "wb") as f:
                f.write(data)
            before = listing(folder)
            done = run("-o", out, paths[1 - number % 2], bad)
            if done.returncode == 0:
                os.unlink(out)
            else:
                refusals += 1
                named = any(name in done.stderr for name in ("/bad", "t.nc.000", "out.nc"))
                assert done.returncode == 1 and named, (number, done.returncode, done.stderr)
            assert listing(folder) == before, number
        assert refusals > rounds / 10, refusals
        os.unlink(bad)
        ok("-o", out, *paths)
        same(want, out)


CASES = [
    random_decompositions, texts_and_types, attributes, groups, unlimited, masks_and_unwritten_chunks, user_blocks, unknown_filters, filters_of_the_library,
    options, order_of_bytes, no_records, missing_tiles, chunks_of_classic_tiles, other_programs, misfits, impossible_sizes, full_disk, signals, damaged_files,
]


def main():
    failed = 0
    for case in CASES:
        if sys.argv[3:] and case.__name__ not in sys.argv[3:]:
            continue
        where = os.path.join(DIR, case.__name__)
        os.mkdir(where)
        start = time.monotonic()
        try:
            case(where)
            print("ok %s (%.1f s)" % (case.__name__, time.monotonic() - start), flush=True)
            shutil.rmtree(where)
        except Exception as error:
            failed = 1
            print("FAILED %s: %s: %s" % (case.__name__, type(error).__name__, error), flush=True)
    sys.exit(failed)


main()
