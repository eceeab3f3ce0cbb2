"""Appends numbered lines of different lengths to a file that others append to as well.

usage: append.py FILE WHO COUNT
"""
import os
import sys

path, who, count = sys.argv[1:]
fd = os.open(path, os.O_WRONLY | os.O_APPEND)
for i in range(int(count)):
    length = 1 + (i * 37 + int(who) * 11) % 3000
    line = f"{who} {i} {length} {'x' * length}\n".encode()
    assert os.write(fd, line) == len(line)
os.close(fd)
