"""A metadata service and three data servers, each a process, which are killed and started again."""

import pathlib
import signal
import subprocess
import tempfile
import threading
import time

import numpy as np
import pytest
from conftest import binary

import slabfs


class Cluster:
    """The processes, by name: md, os0, os1, os2."""

    def __init__(self, place):
        self.place = place
        self.md = f"unix:{place}/md"
        self.processes = {}
        for name in "md", "os0", "os1", "os2":
            self.start(name)

    def start(self, name):
        kind = ["mdserver"] if name == "md" else ["objserver", "--md", self.md]
        listen = ["--listen", f"unix:{self.place}/{name}", "--data", str(self.place / f"{name}.data"), "--quiet"]
        process = subprocess.Popen([binary(), *kind, *listen], stdout=subprocess.PIPE)
        assert process.stdout.readline()
        self.processes[name] = process

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()
        self.processes[name].stdout.close()

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()
            process.stdout.close()


@pytest.fixture
def cluster(area):
    made = Cluster(pathlib.Path(tempfile.mkdtemp(dir=area)))
    try:
        yield made
    finally:
        made.stop()


def test_servers_are_killed_and_come_back(cluster):
    """What they do not answer is an error within the deadline, and the session goes on once they are back."""
    data = np.arange(64 * 512, dtype="f8").reshape(64, 512)
    with slabfs.connect(cluster.md, io_timeout=2, cache=0) as session:
        array = session.create_array("a", shape=data.shape, dtype="f8", placement="region")
        for row in range(0, 64, 4):
            array[row : row + 4] = data[row : row + 4]
        array.sync()
        for name in "os0", "os1", "os2":
            cluster.kill(name)
        for call in (
            lambda: array[...],
            lambda: array[[1, 40], [5, 6]],
            lambda: array.read_transfer(index=np.s_[::7]).wait(),
        ):
            begun = time.monotonic()
            with pytest.raises(slabfs.ServiceError, match=r"os[012]"):
                call()
            assert time.monotonic() - begun < 20
        for name in "os0", "os1", "os2":
            cluster.start(name)
        np.testing.assert_array_equal(array[...], data)
        array[3] = 7
        array.sync()
        cluster.kill("md")
        with pytest.raises(slabfs.ServiceError):
            session.create_array("b", shape=(3,))
        cluster.start("md")
        np.testing.assert_array_equal(session["a"][3], np.full(512, 7.0))


def test_a_call_that_waits_stops_no_other_thread(cluster):
    """A call waits for a server with a lock of the object, and asks for signals meanwhile: others must not have the
    interpreter while they wait for that lock. A handler that makes a call itself is refused."""
    with slabfs.connect(cluster.md, cache=0) as session:
        array = session.create_array("a", shape=(400,), dtype="u1", layout="canonical", max_shape=(1000,))
        array[...] = 1
        array.sync()
        refused = []

        def handler(*_):
            try:
                array[0]
            except slabfs.BusyError as error:
                refused.append(str(error))

        before = signal.signal(signal.SIGUSR1, handler)
        names = [name for name in cluster.processes if name != "md"]
        for name in names:
            cluster.processes[name].send_signal(signal.SIGSTOP)
        main = threading.main_thread().ident
        reader = threading.Thread(target=lambda: array.read_transfer(index=np.s_[0:10]).start())
        timers = [
            threading.Timer(0.5, reader.start),
            threading.Timer(1, signal.pthread_kill, (main, signal.SIGUSR1)),
            threading.Timer(2, lambda: [cluster.processes[name].send_signal(signal.SIGCONT) for name in names]),
        ]
        for timer in timers:
            timer.start()
        array.resize(300)
        for timer in timers:
            timer.join()
        reader.join()
        signal.signal(signal.SIGUSR1, before)
        assert array.shape == (300,) and len(refused) == 1 and "signal" in refused[0]


def test_a_read_waits_for_a_server_that_comes_back(cluster):
    """The deadline is longer than the time that it is away: no error."""
    with slabfs.connect(cluster.md, cache=0) as session:
        array = session.create_array("a", data=np.arange(4096.0))
        array.sync()
        names = "os0", "os1", "os2"
        for name in names:
            cluster.kill(name)
        starter = threading.Timer(1, lambda: [cluster.start(name) for name in names])
        starter.start()
        np.testing.assert_array_equal(array[...], np.arange(4096.0))
        starter.join()
