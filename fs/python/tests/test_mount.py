"""Indexes of an array that a program writes at the same time, through a mount."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_indexing import indexes

SHAPE = (8, 6, 5)
#: Writes box after box of a path, each full of the number of the write, and says the number when the write has returned.
WRITER = """
import itertools, os, struct, sys
number = os.open(sys.argv[1], os.O_WRONLY)
size = os.fstat(number).st_size // 8
for version in itertools.count(1):
    os.pwrite(number, struct.pack("<d", version) * size, 0)
    print(version, flush=True)
"""


class Writer:
    """The program; ``done`` is the last write that has returned."""

    def __init__(self, path):
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
        self.done = 0
        self.first = threading.Event()
        self.thread = threading.Thread(target=self._follow)
        self.thread.start()

    def _follow(self):
        for line in self.process.stdout:
            self.done = int(line)
            self.first.set()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.thread.join()
        self.process.stdout.close()


@pytest.mark.parametrize("layout", ["aligned", "canonical", "grid:3,4,5"])
def test_a_mount_writes_at_the_same_time(up, served, layout):
    """Half of the array is the mount's, half that of the session, which writes as well."""
    array = served.create_array("moving", shape=SHAPE, dtype="f8", layout=layout)
    model = np.zeros(SHAPE)
    theirs = np.zeros(SHAPE, dtype=bool)
    theirs[4:] = True
    writer = Writer(str(up[1] / "moving@[4:]"))
    count = 0

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(data=st.data())
    def check(data):
        nonlocal count
        index = data.draw(indexes(SHAPE))
        try:
            moving = theirs[index]
        except IndexError:
            return
        count += 1
        if count % 5 == 0:
            row = count % 4
            model[row] = -count
            array[row] = -count
        before = writer.done
        found = np.asarray(array[index])
        np.testing.assert_array_equal(found[~moving], model[index][~moving])
        seen = found[moving]
        assert (seen >= before).all() and (seen == np.floor(seen)).all()

    try:
        assert writer.first.wait(30)
        check()
        assert writer.process.poll() is None and writer.done > 20
    finally:
        writer.stop()
        served.remove("moving")
