"""Takes one variable out of a NetCDF file as raw little-endian bytes; prints its shape as JSON.

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
