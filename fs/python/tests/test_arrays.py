"""Containers, attributes, dtypes, transfers, and what other libraries ask arrays for."""

import asyncio
import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import slabfs


def test_containers_are_mappings(container):
    assert list(container) == []
    below = container.create_container("run1")
    container["run1/temp"] = np.arange(6.0).reshape(2, 3)
    assert list(container) == ["run1"]
    assert list(below) == ["temp"]
    assert "run1/temp" in container and "run1/none" not in container and "run1/temp/x" not in container
    assert dict(below.items())["temp"].shape == (2, 3)
    assert container.get("none") is None
    with pytest.raises(KeyError, match="none"):
        container["none"]
    with pytest.raises(slabfs.ExistsError):
        container["run1/temp"] = 1
    with pytest.raises(slabfs.IsAContainerError):
        container.array("run1")
    with pytest.raises(slabfs.NotAContainerError):
        container.container("run1/temp")
    with pytest.raises(slabfs.NotEmptyError):
        del container["run1"]
    container.rename("run1/temp", "run1/temperature")
    del container["run1/temperature"]
    del container["run1"]
    assert len(container) == 0
    assert container.require_container("a/b/c").path == f"{container.path}/a/b/c"
    assert container.require_container("a/b").path == f"{container.path}/a/b"


def test_attributes_keep_their_types(container):
    values = {
        "int": 3,
        "float": 2.5,
        "text": "Kelvin",
        "umlaut": "Grün",
        "bytes": b"\x00\xff",
        "list": [1, 2.5, "a", b"\x01"],
        "f4": np.float32(0.1),
        "u1": np.uint8(7),
        "array": np.array([1, 2, 3], dtype="i2"),
        "floats": np.array([0.5, -1e300, np.inf]),
        "empty": np.array([], dtype="f4"),
    }
    array = container.create_array("a", data=1.0, attrs=values)
    for owner in (array, container):
        owner.attrs.update(values)
        found = owner.attrs.asdict()
        assert set(found) == set(values)
        for key, value in values.items():
            np.testing.assert_array_equal(found[key], value)
            assert type(found[key]) is type(value), key
            if isinstance(value, np.ndarray):
                assert found[key].dtype == value.dtype
    del array.attrs["int"]
    assert "int" not in array.attrs and len(array.attrs) == len(values) - 1
    with pytest.raises(KeyError):
        del array.attrs["int"]
    with pytest.raises(slabfs.InvalidError, match="dict"):
        array.attrs["x"] = {"a": 1}
    assert [one.path for one in container.find("text = Kelvin and u1 = 7")] == [array.path]


@pytest.mark.parametrize(
    "dtype",
    [
        "i1",
        "u8",
        ">i2",
        "f2",
        "f4",
        ">f8",
        "c8",
        "c16",
        ">c16",
        "?",
        "S7",
        "U3",
        ">U3",
        "V9",
        "M8[ns]",
        "m8[s]",
        ">M8[D]",
    ],
)
def test_dtypes(container, dtype):
    dtype = np.dtype(dtype)
    data = np.frombuffer(bytes(range(1, 1 + 6 * dtype.itemsize)), dtype=np.uint8)
    if dtype.kind in "U":
        data = np.array([["a", "bc", "def"], ["", "Ä", "x"]], dtype=dtype)
    elif dtype.kind == "b":
        data = np.array([[True, False, True], [False, False, True]])
    else:
        data = data.view(dtype).reshape(2, 3)
    array = container.create_array("a", data=data)
    assert array.dtype == dtype and array.dtype.byteorder == dtype.byteorder
    again = container["a"]
    assert again.dtype == dtype
    assert again[...].tobytes() == data.tobytes()
    assert again[1, 2].tobytes() == data[1, 2].tobytes()
    again[0] = data[1]
    assert again[0].tobytes() == data[1].tobytes()
    assert (again.size, again.nbytes, again.ndim, len(again)) == (6, data.nbytes, 2, 2)


def test_structured_arrays(container):
    data = np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i4"), ("b", "<f8")])
    array = container.create_array("a", data=data)
    assert container["a"].dtype == data.dtype
    np.testing.assert_array_equal(container["a"][...], data)
    array[1] = (5, 6.5)
    assert container["a"][1]["b"] == 6.5


def test_fill_values(container):
    for number, (dtype, fill) in enumerate([("f4", -999.0), ("i2", 7), ("?", True), ("c8", 1 + 2j), ("f8", np.nan)]):
        array = container.create_array(f"a{number}", shape=3, dtype=dtype, fill_value=fill)
        np.testing.assert_array_equal(array[...], np.full(3, fill, dtype=dtype))
        np.testing.assert_array_equal(array.fill_value, np.dtype(dtype).type(fill))
    for dtype in ("M8[s]", "S3", "U2", "V4"):
        fill = container.create_array(f"b{dtype}", shape=2, dtype=dtype).fill_value
        assert np.array(fill, dtype=dtype).tobytes() == bytes(np.dtype(dtype).itemsize)


def test_arrays_grow_and_shrink(container):
    array = container.create_array("a", shape=(0, 3), dtype="i4", max_shape=(None, 3))
    assert array.max_shape == (None, 3)
    assert array.append([[1, 2, 3]]) == (1, 3)
    assert array.append(np.ones((2, 3))) == (3, 3)
    np.testing.assert_array_equal(array[...], [[1, 2, 3], [1, 1, 1], [1, 1, 1]])
    array.resize((1, 3))
    assert array.shape == (1, 3)
    with pytest.raises(slabfs.InvalidError):
        array.append([[1], [2]])
    with pytest.raises(slabfs.InvalidError):
        array.resize((1, 4))
    with pytest.raises(slabfs.InvalidError):
        array.append([[1, 2, 3]], axis=2)


def test_arrays_that_others_shrink(served):
    array = served.create_array("shrunk", data=np.arange(6).reshape(3, 2))
    other = served["shrunk"]
    try:
        assert array[...].shape == (3, 2)
        other.resize((1, 2))
        np.testing.assert_array_equal(array[...], [[0, 1]])
        with pytest.raises(IndexError):
            array[2]
        other.resize((3, 2))
        np.testing.assert_array_equal(array[...], [[0, 1], [0, 0], [0, 0]])
    finally:
        del served["shrunk"]


def test_layouts_and_chunks(container):
    array = container.create_array("a", shape=(4, 6), dtype="f4")
    array[0:2, 0:2] = 1
    array[0:2, 2:6] = 2
    array[2:4, 0:2] = 3
    array[2:4, 2:6] = 4
    array.flush()
    assert sorted(array.tiling) == [((0, 0), (2, 2)), ((0, 2), (2, 4)), ((2, 0), (2, 2)), ((2, 2), (2, 4))]
    assert array.chunks == ((2, 2), (2, 4))
    array[1:3, 1:3] = 5
    assert array.chunks is None
    grid = container.create_array("g", shape=(5, 4), dtype="f4", layout="grid:2,4", codec=None)
    assert grid.chunks == ((2, 2, 1), (4,)) and grid.layout == "grid:2,4"
    packed = container.create_array("z", data=np.zeros(1000), codec="shuffle+zstd:3")
    assert packed.codec == "shuffle+zstd:3"
    for one in (array, grid, container):
        assert "<" in one._repr_html_()
    assert "shape=(4, 6)" in repr(array)


def test_chunks_with_steps(container):
    array = container.create_array("a", shape=(16, 16), dtype="f4")
    array[::4, -1] = 7
    assert array.tiling == [((0, 15), (13, 1), (4, 1))]
    assert array.chunks is None
    many = container.create_array("many", shape=(2000, 2000), dtype="f4", layout="grid:1,1")
    many[0:2, 0:2] = 1
    with pytest.raises(slabfs.NotSupportedError, match="more chunks"):
        many.tiling  # noqa: B018


def test_transfers(container):
    array = container.create_array("a", shape=(100, 1000), dtype="f8")
    rows = np.arange(100_000, dtype="f8").reshape(100, 1000)
    slabfs.wait_all([array.write_transfer(rows[i], i) for i in range(100)])
    out = np.zeros((100, 1000))
    transfers = [
        array.read_transfer(out[i : i + 10, ::2], (slice(i, i + 10), slice(None, None, 2))) for i in range(0, 100, 10)
    ]
    slabfs.start_all(transfers)
    for transfer in transfers:
        transfer.wait()
        assert transfer.test()
    np.testing.assert_array_equal(out[:, ::2], rows[:, ::2])
    assert not out[:, 1::2].any()
    singles = np.zeros((2, 3), dtype="f4")
    array.read_into(singles, np.s_[1:3, 5:8])
    np.testing.assert_array_equal(singles, rows[1:3, 5:8])
    backwards = np.zeros(1000)
    array.read_into(backwards[::-1], 3)
    np.testing.assert_array_equal(backwards[::-1], rows[3])
    array.read_into(backwards, (4, slice(None, None, -1)))
    np.testing.assert_array_equal(backwards, rows[4, ::-1])
    assert array.read_transfer(index=(2, 3)).wait() == rows[2, 3]
    np.testing.assert_array_equal(array.read_transfer(index=([1, 2], [3, 4])).wait(), rows[[1, 2], [3, 4]])
    with pytest.raises(slabfs.InvalidError, match=r"\(3,\)"):
        array.read_into(np.zeros(3), 0)
    fixed = np.zeros(1000)
    fixed.flags.writeable = False
    with pytest.raises(slabfs.InvalidError, match="read-only"):
        array.read_into(fixed, 0)
    with pytest.raises(slabfs.InvalidError):
        array.read_into(np.zeros(1000, dtype="i1"), 99)


def test_transfers_are_awaitable(container):
    array = container.create_array("a", data=np.arange(1000).reshape(10, 100))

    async def all_rows():
        return await asyncio.gather(*[array.read_transfer(index=i) for i in range(10)])

    np.testing.assert_array_equal(asyncio.run(all_rows()), array[...])


def test_numpy_and_python_take_arrays(container):
    array = container.create_array("a", data=np.arange(6.0).reshape(2, 3))
    assert np.sum(array) == 15
    assert np.asarray(array, dtype="i4").dtype == np.int32
    np.testing.assert_array_equal(np.add(array, 1), array[...] + 1)
    np.testing.assert_array_equal(list(array), array[...])
    np.testing.assert_array_equal(np.from_dlpack(array[...]), array[...])
    scalar = container.create_array("s", data=2.5)
    assert (float(scalar), scalar[()], scalar.shape) == (2.5, 2.5, ())
    scalar[()] = 3
    scalar[...] = 4
    assert int(scalar) == 4
    with pytest.raises(TypeError):
        len(scalar)
    with pytest.raises(ValueError):
        np.array(array, copy=False)


def test_values_are_broadcast(container):
    array = container.create_array("a", shape=(4, 3), dtype="i4")
    array[...] = [1, 2, 3]
    array[1:3] = np.array([[7], [8]])
    array[0, ::-1] = [4, 5, 6]
    array[:, None, 2] = -1
    np.testing.assert_array_equal(array[...], [[6, 5, -1], [7, 7, -1], [8, 8, -1], [1, 2, -1]])
    with pytest.raises(ValueError):
        array[0] = [1, 2]
    fortran = np.asfortranarray(np.arange(12).reshape(4, 3).astype("i4"))
    array[...] = fortran
    np.testing.assert_array_equal(array[...], fortran)
    array[...] = np.broadcast_to(np.int32(9), (4, 3))
    assert (array[...] == 9).all()


def test_pickles_have_the_address(served):
    array = served.create_array("pickled", data=np.arange(10))
    try:
        again = pickle.loads(pickle.dumps(array))
        np.testing.assert_array_equal(again[...], array[...])
        assert pickle.loads(pickle.dumps(array)).session is again.session
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            assert list(pool.map(_sum, [array, array])) == [45, 45]
    finally:
        del served["pickled"]


def _sum(array):
    return int(array[...].sum())


def test_a_filesystem_of_one_process_is_not_pickled(alone):
    with pytest.raises(slabfs.NotSupportedError, match="--listen"):
        pickle.dumps(alone.root if hasattr(alone, "root") else alone)


def test_a_child_of_fork_gets_an_error(container):
    array = container.create_array("a", data=np.arange(10))
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            array[...]
        except RuntimeError as error:
            status = 0 if "spawn" in str(error) else 2
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    np.testing.assert_array_equal(array[...], np.arange(10))


def test_threads_read_and_write_at_once(container):
    array = container.create_array("a", shape=(8, 64, 64), dtype="i8")
    errors = []

    def work(number):
        try:
            for step in range(50):
                array[number] = number * 1000 + step
                found = array[number]
                assert (found == number * 1000 + step).all()
                array[:, number % 64, ::7]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_closed_sessions_and_arrays_say_so(area):
    session = slabfs.alone(area / "closed")
    array = session.create_array("a", data=np.arange(3))
    array.close()
    array.close()
    with pytest.raises(slabfs.ClosedError):
        array[0]
    array = session["a"]
    session.close()
    session.close()
    assert session.closed
    for call in (lambda: array[0], lambda: session["a"], lambda: session.stats(), lambda: array.attrs.asdict()):
        with pytest.raises(slabfs.ClosedError):
            call()


def test_a_process_that_ends_has_written(area, up):
    program = f"""
import numpy as np, slabfs
fs = slabfs.connect({up[0]!r})
array = fs.create_array("atexit", data=np.arange(5))
array[0] = 7
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    with slabfs.connect(up[0]) as session:
        np.testing.assert_array_equal(session["atexit"][...], [7, 1, 2, 3, 4])
        del session["atexit"]


def test_open_takes_paths_on_a_mount(up):
    _listen, mnt = up
    subprocess.run(["mkdir", str(mnt / "opened")], check=True)
    (mnt / "opened" / "bytes").write_bytes(b"hello")
    array = slabfs.open(mnt / "opened" / "bytes")
    assert array[...].tobytes() == b"hello"
    container = slabfs.open(str(mnt / "opened"))
    assert isinstance(container, slabfs.Container)
    assert slabfs.open(mnt).session is container.session
    container["x"] = np.arange(4, dtype="u1")
    container["x"].sync()
    assert (mnt / "opened" / "x").read_bytes() == b"\0\1\2\3"
    (mnt / "opened" / "x").write_bytes(b"abcd")
    assert container["x"][...].tobytes() == b"abcd"
    with pytest.raises(slabfs.NotFoundError):
        slabfs.open(mnt / "opened" / "none")
    with pytest.raises(slabfs.InvalidError, match="mount"):
        slabfs.open("/tmp")
    container.session["opened"].remove("x")


def test_wrong_addresses_say_what_to_do(tmp_path):
    with pytest.raises(slabfs.ServiceError, match=r"none\.sock"):
        slabfs.connect(f"unix:{tmp_path}/none.sock", io_timeout=0.2)
    with pytest.raises(slabfs.InvalidError, match="key"):
        slabfs.connect("localhost:1")
    with pytest.raises(slabfs.InvalidError, match="SLABFS_MD"):
        slabfs.connect()
    with pytest.raises(slabfs.InvalidError, match="mount"):
        slabfs.connect(tmp_path)
    with pytest.raises(slabfs.InvalidError, match="consistency"):
        slabfs.connect("unix:x", consistency="strong")


def test_ctrl_c_ends_a_wait(area):
    """A process stops its own server, reads, and gets SIGINT."""
    place = area / "interrupted"
    place.mkdir()
    slabfs_binary = os.environ.get("SLABFS_BINARY", "slabfs")
    listen = f"unix:{place}/md.sock"
    command = [slabfs_binary, "up", "--data", str(place / "data"), "--listen", listen, "--quiet", str(place / "mnt")]
    (place / "mnt").mkdir()
    server = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        server.stdout.readline()
        session = slabfs.connect(listen)
        # A small chunk: large ones of servers on this machine are read from their files.
        session.create_array("a", data=np.zeros(1000))
        session.sync()
        other = slabfs.connect(listen, cache=0)
        cold = other["a"]
        server.send_signal(signal.SIGSTOP)
        main = threading.main_thread().ident
        # In the background of a shell it is ignored.
        ignored = signal.signal(signal.SIGINT, signal.default_int_handler)
        waits = {
            "a read": lambda: cold[...],
            "a read of pieces": lambda: cold[[1, 5]],
            "a listing": lambda: list(other),
            "an open": lambda: other["b"],
            "a new container": lambda: other.create_container("c"),
            "a search": lambda: list(other.find("a = 1")),
        }
        for name, wait in waits.items():
            timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            begun = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                wait()
            assert time.monotonic() - begun < 25, name
            timer.join()
        # A handler that raises nothing ends nothing.
        came = []
        before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
        for after, done in (
            (0.3, (signal.pthread_kill, main, signal.SIGUSR1)),
            (1.0, (server.send_signal, signal.SIGCONT)),
        ):
            threading.Timer(after, done[0], done[1:]).start()
        assert not cold[...].any() and came == [1]
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGINT, ignored)
        other.close()
        session.close()
    finally:
        server.send_signal(signal.SIGCONT)
        subprocess.run([slabfs_binary, "umount", str(place / "mnt")], check=True)
        server.wait()


def test_a_session_goes_on_after_its_server_was_away(area):
    place = area / "restarted"
    (place / "mnt").mkdir(parents=True)
    slabfs_binary = os.environ.get("SLABFS_BINARY", "slabfs")
    listen = f"unix:{place}/md.sock"
    command = [slabfs_binary, "up", "--data", str(place / "data"), "--listen", listen, "--quiet", str(place / "mnt")]

    def start():
        server = subprocess.Popen(command, stdout=subprocess.PIPE)
        server.stdout.readline()
        return server

    server = start()
    try:
        session = slabfs.connect(listen, io_timeout=2, cache=0)
        array = session.create_array("a", data=np.arange(1 << 18))
        session.sync()
        server.kill()
        server.wait()
        begun = time.monotonic()
        with pytest.raises(slabfs.ServiceError, match="restarted"):
            for _ in range(100):
                array[...]
        assert time.monotonic() - begun < 30
        subprocess.run(["fusermount3", "-uz", str(place / "mnt")], check=True)
        server = start()
        np.testing.assert_array_equal(session["a"][...], np.arange(1 << 18))
        session.close()
    finally:
        subprocess.run([slabfs_binary, "umount", str(place / "mnt")], check=True)
        server.wait()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_slices_leak_nothing(served):
    array = served.create_array("slices", data=np.arange(4096.0).reshape(64, 64))
    for _ in range(5_000):
        array[3:7, ::2]
    before = resident()
    for i in range(100_000):
        array[3:7, ::2]
        if i % 100 == 0:
            array[[1, 2], [3, 4]]
    assert resident() - before < 16 << 20
    served.remove("slices")


def test_arrays_that_others_replace(served):
    """A handle never writes to another array that has its name."""
    served["replaced"] = np.arange(4)
    old = served["replaced"]
    served.remove("replaced")
    served["replaced"] = np.array([10.0, 11, 12, 13])
    with pytest.raises(slabfs.StaleError, match="replaced"):
        old[0] = 5
    np.testing.assert_array_equal(served["replaced"][...], [10, 11, 12, 13])
    other = served["replaced"]
    served.remove("replaced")
    with pytest.raises(slabfs.StaleError):
        other[0] = 1


def test_what_fails_leaves_nothing(container):
    for wrong in ({"data": [1, 2], "shape": (3,)}, {"data": ["x"], "dtype": "f8"}):
        with pytest.raises(ValueError):
            container.create_array("a", **wrong)
        assert "a" not in container
    grown = container.create_array("a", shape=(1, 3), dtype="i4", max_shape=(None, 3))
    with pytest.raises(ValueError):
        grown.append([["x", 2, 3]])
    assert grown.shape == (1, 3)
    with pytest.raises(slabfs.InvalidError, match="name"):
        container[""] = [1]
    with pytest.raises(slabfs.InvalidError):
        grown.read_into([1])
    with pytest.raises(slabfs.InvalidError):
        slabfs.start_all([1])


def test_padded_structures(container):
    padded = np.dtype({"names": ["x", "y"], "formats": ["i2", "f4"], "offsets": [4, 8], "itemsize": 16})
    data = np.zeros(3, padded)
    data["x"], data["y"] = [1, 2, 3], [0.5, 1.5, 2.5]
    made = container.create_array("a", data=data)
    again = container["a"]
    assert made.dtype == again.dtype == padded
    np.testing.assert_array_equal(again[...], data)


def test_attributes_of_numbers_that_are_not_finite(served):
    made = served.create_array("infinite", shape=(2,), attrs={"a": [float("nan"), 1.5], "b": [1, float("inf")]})
    np.testing.assert_array_equal(made.attrs["a"], [np.nan, 1.5])
    np.testing.assert_array_equal(made.attrs["b"], [1, np.inf])
    again = pickle.loads(pickle.dumps(made.attrs))
    np.testing.assert_array_equal(again["b"], [1, np.inf])
    assert served.create_array("scalar", data=np.float64(3)).tiling == [((), ())]
    served.remove("infinite")
    served.remove("scalar")


def test_others_change_the_shape(up, served):
    """Each index is one of the present shape."""
    data = np.arange(100).reshape(10, 10)
    with slabfs.connect(up[0]) as other:
        array = served.create_array("changing", data=data, max_shape=(20, 20))
        array[0]
        other["changing"].resize((10, 5))
        assert array.shape == (10, 5)
        data = data[:, :5].copy()
        np.testing.assert_array_equal(array[[2], [1]], data[[2], [1]])
        array[[1], [2]] = -1
        data[[1], [2]] = -1
        np.testing.assert_array_equal(array[...], data)
        assert array[-1, -1] == 94
        other["changing"].resize((4, 5))
        with pytest.raises(IndexError):
            array[-7]
        with pytest.raises(IndexError):
            array[[5]] = 1
        assert array[-8:-6].shape == (0, 5)
        other["changing"].resize((12, 7))
        assert array[:].shape == (12, 7) and array[-1].shape == (7,)
        command = [os.environ.get("SLABFS_BINARY", "slabfs"), "set", str(up[1] / "changing"), "--dims", "15,7"]
        subprocess.run(command, check=True, capture_output=True)
        assert array.shape == (15, 7) and len(array[:]) == 15
    served.remove("changing")


def test_names_of_axes_that_are_none(served):
    array = served.create_array("named", shape=(2, 3))
    for value in "garbage", "5", '["x", 3]':
        served._native.tag([("named", [("dim_names", "text", value.encode())], [])])
        assert array.dims in ((None, None), ("x", None))
        assert "named" in array._repr_html_() and "named" in served._repr_html_()
    served.remove("named")
