"""Writes one variable of a NetCDF file to a raw little-endian file; prints its dims and dtype as JSON.

usage: extract.py FILE VARIABLE RAW
"""
import json
import sys

import netCDF4

source, name, raw = sys.argv[1:]
with netCDF4.Dataset(source) as dataset:
    dataset.set_auto_maskandscale(False)
    values = dataset.variables[name][:]
values = values.astype(values.dtype.newbyteorder("<"))
with open(raw, "wb") as target:
    target.write(values.tobytes())
print(json.dumps({"dims": list(values.shape), "dtype": values.dtype.str.lstrip("<|")}))
