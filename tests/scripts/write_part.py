"""Writes one box of an array, read from a raw file of the entire array, as one process of a parallel program.

usage: write_part.py OBJECT RAW DIMS ELEM BOUNDS WAY
  DIMS 16,16   ELEM bytes of an element   BOUNDS 0:10,0:9
  WAY  rows       writes each row of the box with one pwrite to OBJECT
       selection  writes the packed box to OBJECT@[BOUNDS], with one write unless it is short
"""
import itertools
import os
import sys

target, raw, dims, elem, bounds, way = sys.argv[1:]
dims = [int(n) for n in dims.split(",")]
elem = int(elem)
box = [tuple(int(n) for n in axis.split(":")) for axis in bounds.split(",")]
with open(raw, "rb") as source:
    data = memoryview(source.read())


def rows():
    """Yields the offset in the array and the bytes of each row of the box."""
    for at in itertools.product(*(range(*axis) for axis in box[:-1])):
        index = 0
        for i, dim in zip(at + (box[-1][0],), dims):
            index = index * dim + i
        length = (box[-1][1] - box[-1][0]) * elem
        yield index * elem, data[index * elem : index * elem + length]


if way == "rows":
    fd = os.open(target, os.O_WRONLY)
    for offset, row in rows():
        assert os.pwrite(fd, row, offset) == len(row)
    os.close(fd)
else:
    packed = b"".join(bytes(row) for _, row in rows())
    fd = os.open(f"{target}@[{bounds}]", os.O_WRONLY)
    written = 0
    while written < len(packed):
        written += os.write(fd, packed[written:])
    os.close(fd)
