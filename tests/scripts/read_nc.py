"""Compares all variables written by tests/mpi/pnetcdf.c with their expected values.

usage: read_nc.py ROWS COLUMNS FILE...
"""
import sys

import netCDF4
import numpy

NAMES = ["collective", "independent", "requests", "records", "other records", "late"]
rows, columns = int(sys.argv[1]), int(sys.argv[2])
for path in sys.argv[3:]:
    with netCDF4.Dataset(path) as dataset:
        dataset.set_auto_mask(False)
        assert sorted(dataset.variables) == sorted(NAMES), dataset.variables
        assert dataset.history == "x" * 5000
        for number, name in enumerate(NAMES):
            found = dataset.variables[name][:]
            assert found.shape == ((3,) if "records" in name else ()) + (rows, columns), found.shape
            elements = numpy.arange(found.size, dtype="u4") * numpy.uint32(2654435761) + numpy.uint32(number * 40503 + 1)
            assert (found.astype("i4").view("u4").ravel() == elements).all(), (path, name)
