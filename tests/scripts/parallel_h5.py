"""Writes and reads one HDF5 file with h5py from several ranks and compares every element.

usage: parallel_h5.py FILE     (under mpirun; ranks may have different paths of the same file)
"""
import sys

import h5py
import numpy
from mpi4py import MPI

path, comm = sys.argv[1], MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
assert h5py.get_config().mpi
ROWS, COLUMNS = 64, 90
wanted = numpy.arange(ROWS * COLUMNS, dtype="f8").reshape(ROWS, COLUMNS)
own = slice(ROWS * rank // ranks, ROWS * (rank + 1) // ranks)

with h5py.File(path, "w", driver="mpio", comm=comm) as file:
    plain = file.create_dataset("plain", (ROWS, COLUMNS), "f8")
    packed = file.create_dataset("packed", (ROWS, COLUMNS), "f8", chunks=(11, 90), compression="gzip", shuffle=True)
    plain[own] = wanted[own]
    with packed.collective:
        packed[own] = wanted[own]
    packed.attrs["unit"] = "K"
comm.barrier()
for options in ({"driver": "mpio", "comm": comm}, {}):
    with h5py.File(path, "r", **options) as file:
        assert file["packed"].attrs["unit"] == "K"
        for name in ("plain", "packed"):
            assert (file[name][:] == wanted).all(), (rank, name, options)
    comm.barrier()
