"""HDF5 files with chunks of all kinds, and whether an export has the same chunks. Used by system/chunks.rs.

    asis.py make FILE
    asis.py same FILE EXPORTED     all chunks are the same bytes, or, where they cannot be, the same elements
    asis.py changed FILE EXPORTED  the elements that `change` changed are changed, everything else is the same
    asis.py change DIRECTORY       overwrites elements of the arrays of an import
"""
import os, sys, zlib
import h5py
import numpy as np

# Shape, chunks, dtype, options; the chunks of most reach beyond the shape.
SETS = {
    "plain": ((100, 70), (16, 32), "<f4", dict(compression="gzip", compression_opts=4, shuffle=True)),
    "big": ((50, 33), (7, 33), ">i2", dict(compression="gzip", compression_opts=9, shuffle=True)),
    "unshuffled": ((5, 40, 21), (1, 40, 10), "<f8", dict(compression="gzip", compression_opts=1)),
    "bytes": ((3000,), (700,), "u1", dict(compression="gzip", shuffle=True)),
    "summed": ((40, 40), (16, 16), "<i4", dict(compression="gzip", shuffle=True, fletcher32=True)),
    "raw": ((40, 30), (9, 9), "<i8", {}),
    "growing": ((13, 6), (4, 6), "<u2", dict(compression="gzip", shuffle=True, maxshape=(None, 6))),
    "holes": ((64, 64), (16, 16), "<f4", dict(compression="gzip", shuffle=True, fillvalue=-5)),
    "noise": ((64, 64), (64, 64), "<u8", dict(compression="gzip", compression_opts=1)),
    "shuffled only": ((30, 30), (10, 10), "<i4", dict(shuffle=True)),
}
# Those whose chunks cannot be the same bytes in an export: what they are stored with is no codec, or has a sum.
OTHERS = {"summed", "raw", "shuffled only", "masked"}


def make(path):
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as f:
        for name, (shape, chunks, dtype, options) in SETS.items():
            d = f.create_dataset(name, shape, dtype, chunks=chunks, **options)
            bits = 63 if name == "noise" else 6
            a = rng.integers(0, 2**bits, shape).astype(dtype)
            if name == "holes":
                d[:16, :32], d[40:60, 50:] = a[:16, :32], a[40:60, 50:]
            else:
                d[...] = a
        d = f.create_dataset("masked", (20, 20), "<i4", chunks=(10, 10), compression="gzip", shuffle=True, fillvalue=3)
        for mask, place in enumerate([(0, 0), (0, 10), (10, 0)]):
            raw = rng.integers(0, 99, (10, 10)).astype("<i4")
            data = raw.tobytes()
            if not mask & 1:
                data = np.frombuffer(data, "u1").reshape(-1, 4).T.tobytes()
            if not mask & 2:
                data = zlib.compress(data)
            d.id.write_direct_chunk(place, data, mask)


def same(path, exported, changed=False):
    with h5py.File(path) as f, h5py.File(exported) as g:
        assert set(f) == set(g), (set(f), set(g))
        for name in f:
            a, b = f[name], g[name]
            values = a[...]
            if changed:
                values.reshape(-1)[5:9] = 1
            assert a.dtype == b.dtype and a.shape == b.shape and a.maxshape == b.maxshape, name
            assert (values == b[...]).all() and a.fillvalue == b.fillvalue, name
            if name in OTHERS or changed:
                continue
            assert a.chunks == b.chunks, (name, a.chunks, b.chunks)
            assert a.id.get_num_chunks() == b.id.get_num_chunks(), name
            for i in range(a.id.get_num_chunks()):
                place = a.id.get_chunk_info(i).chunk_offset
                assert a.id.read_direct_chunk(place) == b.id.read_direct_chunk(place), (name, place)


def change(directory):
    for name in os.listdir(directory):
        dtype = SETS[name][2] if name in SETS else "<i4"
        with open(os.path.join(directory, name), "r+b") as f:
            f.seek(5 * np.dtype(dtype).itemsize)
            f.write(np.ones(4, dtype).tobytes())


if sys.argv[1] == "changed":
    same(sys.argv[2], sys.argv[3], True)
else:
    globals()[sys.argv[1]](*sys.argv[2:])
