"""Makes HDF5 files of which chunks at the edge are stored without filters (H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS).

    partial.py FILE WITH_FLETCHER32
"""
import ctypes
import sys

import h5py
import numpy as np

with h5py.File(sys.argv[1], "w", libver="latest") as f:
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((10, 10))
    plist.set_shuffle()
    plist.set_deflate(4)
    if sys.argv[2] == "1":
        plist.set_fletcher32()
    library = next(line.split()[-1] for line in open("/proc/self/maps") if "libhdf5" in line and "_hl" not in line)
    assert ctypes.CDLL(library).H5Pset_chunk_opts(ctypes.c_int64(plist.id), ctypes.c_uint(2)) >= 0
    space = h5py.h5s.create_simple((25, 33))
    d = h5py.h5d.create(f.id, b"v", h5py.h5t.NATIVE_INT32, space, plist)
    d.write(h5py.h5s.ALL, h5py.h5s.ALL, np.arange(25 * 33, dtype="i4").reshape(25, 33))
