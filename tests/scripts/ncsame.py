"""Compares two NetCDF files; prints the first difference, and exits with 1.

usage: ncsame.py ONE OTHER
"""
import sys

import netCDF4
import numpy


def fail(*what):
    print(*what, file=sys.stderr)
    sys.exit(1)


def same_value(what, one, other):
    if type(one) is not type(other):
        fail(what, "has another type:", repr(one), repr(other))
    if isinstance(one, (str, list)):
        if one != other:
            fail(what, "differs:", repr(one), repr(other))
        return
    one, other = numpy.asarray(one), numpy.asarray(other)
    if one.dtype.newbyteorder("=") != other.dtype.newbyteorder("=") or one.shape != other.shape:
        fail(what, "has another type or shape:", one.dtype, one.shape, other.dtype, other.shape)
    floats = one.dtype.kind == "f"
    if not numpy.array_equal(one, other, equal_nan=floats):
        fail(what, "has other values")


def same_attributes(what, one, other):
    if sorted(one.ncattrs()) != sorted(other.ncattrs()):
        fail(what, "has other attributes:", sorted(one.ncattrs()), sorted(other.ncattrs()))
    for name in one.ncattrs():
        same_value(f"{what}:{name}", one.getncattr(name), other.getncattr(name))


def same_group(path, one, other):
    for kind in ("dimensions", "variables", "groups"):
        names = [sorted(getattr(group, kind)) for group in (one, other)]
        if names[0] != names[1]:
            fail(path, "has other", kind, names)
    for name, dim in one.dimensions.items():
        twin = other.dimensions[name]
        if (len(dim), dim.isunlimited()) != (len(twin), twin.isunlimited()):
            fail(path, "dimension", name, "differs")
    same_attributes(path, one, other)
    for name, variable in one.variables.items():
        twin = other.variables[name]
        what = f"{path}/{name}"
        if variable.dimensions != twin.dimensions:
            fail(what, "has other dimensions", variable.dimensions, twin.dimensions)
        same_attributes(what, variable, twin)
        for each in (variable, twin):
            each.set_auto_maskandscale(False)
            each.set_auto_chartostring(False)
        same_value(what, variable[...], twin[...])
    for name, group in one.groups.items():
        same_group(f"{path}/{name}", group, other.groups[name])


with netCDF4.Dataset(sys.argv[1]) as one, netCDF4.Dataset(sys.argv[2]) as other:
    same_group("", one, other)
