"""Appends numbered lines of different lengths to a file to which other processes append at the same time.

usage: append.py FILE WRITER COUNT     (WRITER: the number of this process)
"""
import os
import sys

path, writer, count = sys.argv[1:]
fd = os.open(path, os.O_WRONLY | os.O_APPEND)
for i in range(int(count)):
    length = 1 + (i * 37 + int(writer) * 11) % 3000
    line = f"{writer} {i} {length} {'x' * length}\n".encode()
    assert os.write(fd, line) == len(line)
os.close(fd)
