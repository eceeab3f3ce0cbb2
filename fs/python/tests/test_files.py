"""Files that are bytes: fsspec's protocol slab, and stores of zarr."""

import asyncio
import pickle

import numpy as np
import pandas as pd
import pytest

import slabfs

fsspec = pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")
from slabfs.fsspec import SlabfsFileSystem  # noqa: E402


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, served):
        return SlabfsFileSystem(session=served, auto_mkdir=True)

    @pytest.fixture
    def fs_path(self, served):
        made = served.create_container("files")
        yield made.path
        served.remove(made.path, recursive=True)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


@pytest.fixture
def files(container):
    """A filesystem, and a container in it."""
    return SlabfsFileSystem(session=container.session), container.path


def test_files_come_back(files):
    fs, root = files
    data = bytes(range(256)) * 100
    with fs.open(f"{root}/a.bin", "wb", block_size=1000) as file:
        for start in range(0, len(data), 999):
            file.write(data[start : start + 999])
    assert fs.cat(f"{root}/a.bin") == data
    assert fs.cat_file(f"{root}/a.bin", start=10, end=20) == data[10:20]
    assert fs.cat_file(f"{root}/a.bin", start=-5) == data[-5:]
    assert fs.head(f"{root}/a.bin", 7) == data[:7] and fs.tail(f"{root}/a.bin", 7) == data[-7:]
    with fs.open(f"{root}/a.bin", block_size=100) as file:
        file.seek(12_345)
        assert file.read(300) == data[12_345:12_645]
        assert file.seek(0, 2) == len(data)
    info = fs.info(f"{root}/a.bin")
    assert (info["name"], info["size"], info["type"]) == (f"{root}/a.bin", len(data), "file")


def test_appended_and_replaced(files):
    fs, root = files
    path = f"{root}/log"
    for text, mode, expected in [(b"one\n", "wb", b"one\n"), (b"two\n", "ab", b"one\ntwo\n"), (b"x", "wb", b"x")]:
        with fs.open(path, mode) as file:
            file.write(text)
        assert fs.cat(path) == expected
    fs.touch(path, truncate=True)
    assert fs.cat(path) == b"" and fs.size(path) == 0
    fs.write_text(path, "Ä\n")
    assert fs.read_text(path) == "Ä\n"


def test_names(files):
    fs, root = files
    fs.makedirs(f"{root}/a/b")
    fs.makedirs(f"{root}/a/b", exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.makedirs(f"{root}/a/b")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{root}/a")
    fs.pipe({f"{root}/a/1.txt": b"1", f"{root}/a/b/2.txt": b"22", f"{root}/3.dat": b"333"})
    assert fs.ls(root, detail=False) == [f"{root}/3.dat", f"{root}/a"]
    assert {one["name"]: one["type"] for one in fs.ls(root)} == {f"{root}/3.dat": "file", f"{root}/a": "directory"}
    assert fs.find(root) == [f"{root}/3.dat", f"{root}/a/1.txt", f"{root}/a/b/2.txt"]
    assert fs.glob(f"{root}/**/*.txt") == [f"{root}/a/1.txt", f"{root}/a/b/2.txt"]
    assert fs.du(root) == 6
    fs.mv(f"{root}/3.dat", f"{root}/a/3.dat")
    fs.cp(f"{root}/a", f"{root}/copy", recursive=True)
    assert fs.cat(fs.find(f"{root}/copy")) == {
        f"{root}/copy/1.txt": b"1",
        f"{root}/copy/3.dat": b"333",
        f"{root}/copy/b/2.txt": b"22",
    }
    with pytest.raises(OSError):
        fs.rmdir(f"{root}/a")
    fs.rm(f"{root}/a", recursive=True)
    assert not fs.exists(f"{root}/a") and fs.isdir(f"{root}/copy") and not fs.isfile(f"{root}/copy")
    with pytest.raises(FileNotFoundError):
        fs.cat(f"{root}/a/1.txt")
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{root}/a")


def test_arrays_are_no_files(files):
    fs, root = files
    fs.session.create_array(f"{root}/array", data=np.arange(4))
    assert fs.ls(root, detail=False) == [f"{root}/array"]
    with pytest.raises(slabfs.InvalidError, match=r"slabfs\.open"):
        fs.cat(f"{root}/array")
    with pytest.raises(slabfs.InvalidError, match=r"slabfs\.open"), fs.open(f"{root}/array", "wb") as file:
        file.write(b"x")
    np.testing.assert_array_equal(fs.session[f"{root}/array"], np.arange(4))


def test_tables(up, served):
    """pandas writes and reads by the protocol's name."""
    served.create_container("tables")
    options = {"place": up[0]}
    try:
        table = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "Ä"]})
        table.to_csv("slab:///tables/t.csv", index=False, storage_options=options)
        found = pd.read_csv("slab:///tables/t.csv", storage_options=options)
        pd.testing.assert_frame_equal(found, table)
        table.to_json("slab:///tables/t.json.gz", orient="records", lines=True, storage_options=options)
        found = pd.read_json("slab:///tables/t.json.gz", orient="records", lines=True, storage_options=options)
        pd.testing.assert_frame_equal(found, table)
        with fsspec.open("slab:///tables/t.csv", "rt", place=up[0]) as file:
            assert file.readline() == "a,b\n"
    finally:
        served.remove("tables", recursive=True)


def test_missing_parents(files):
    fs, root = files
    with pytest.raises(FileNotFoundError):
        fs.pipe_file(f"{root}/a/b", b"x")
    made = SlabfsFileSystem(session=fs.session, auto_mkdir=True)
    made.pipe_file(f"{root}/a/b", b"x")
    assert fs.cat(f"{root}/a/b") == b"x"


def test_renames(files):
    fs, root = files
    fs.pipe({f"{root}/a": b"a", f"{root}/b": b"b"})
    fs.mv(f"{root}/a", f"{root}/b")
    assert fs.cat(f"{root}/b") == b"a" and not fs.exists(f"{root}/a")
    fs.mkdir(f"{root}/c")
    fs.mv(f"{root}/b", f"{root}/c")
    assert fs.cat(f"{root}/c/b") == b"a"
    fs.mv(f"{root}/c", f"{root}/d")
    assert fs.find(root) == [f"{root}/d/b"]


def test_addresses(monkeypatch):
    assert SlabfsFileSystem._strip_protocol("slab://node7:7070/a/b/") == "a/b"
    assert SlabfsFileSystem._get_kwargs_from_urls("slab://node7:7070/a") == {"host": "node7:7070"}
    monkeypatch.delenv("SLABFS_MD", raising=False)
    with pytest.raises(slabfs.InvalidError, match="SLABFS_MD"):
        fsspec.filesystem("slab")


def test_sessions_are_shared(up):
    one, two = (fsspec.filesystem("slab", place=up[0]) for _ in range(2))
    assert one.session is two.session
    again = pickle.loads(pickle.dumps(one))
    assert again.session is one.session and again.ls("") == one.ls("")
    one.session.close()
    assert fsspec.filesystem("slab", place=up[0]).exists("")


def test_two_filesystems(tmp_path):
    with slabfs.alone(tmp_path / "one") as one, slabfs.alone(tmp_path / "two") as two:
        SlabfsFileSystem(session=one).pipe_file("a", b"1")
        assert not SlabfsFileSystem(session=two).exists("a")


zarr = pytest.importorskip("zarr")


def test_zarr_groups_and_arrays(container):
    store = slabfs.zarr_store(container)
    root = zarr.open_group(store, mode="w")
    root.attrs["title"] = "a test"
    data = np.random.default_rng(3).normal(size=(20, 30))
    array = root.create_array("deep/er/temp", shape=data.shape, chunks=(7, 10), dtype="f8")
    array[...] = data
    root.create_array("records", shape=(0, 3), chunks=(2, 3), dtype="i4")
    for record in range(3):
        root["records"].append(np.full((1, 3), record, "i4"))
    again = zarr.open_group(slabfs.zarr_store(container), mode="r")
    assert again.attrs["title"] == "a test"
    np.testing.assert_array_equal(again["deep/er/temp"][...], data)
    np.testing.assert_array_equal(again["deep/er/temp"][3:12, ::3], data[3:12, ::3])
    np.testing.assert_array_equal(again["records"][:, 0], [0, 1, 2])
    assert sorted(again.group_keys()) == ["deep"] and sorted(again.array_keys()) == ["records"]
    del root["deep"]
    assert sorted(zarr.open_group(slabfs.zarr_store(container)).keys()) == ["records"]


def test_zarr_consolidated(container):
    xr = pytest.importorskip("xarray")
    data = xr.Dataset({"a": (("x", "y"), np.arange(12.0).reshape(3, 4))}, coords={"x": [1, 2, 3]})
    data.to_zarr(slabfs.zarr_store(container), mode="w", consolidated=True)
    with xr.open_zarr(slabfs.zarr_store(container), consolidated=True) as found:
        xr.testing.assert_identical(found.load(), data)
    data.assign_coords(x=[4, 5, 6]).to_zarr(slabfs.zarr_store(container), append_dim="x")
    with xr.open_zarr(slabfs.zarr_store(container)) as found:
        np.testing.assert_array_equal(found.x, [1, 2, 3, 4, 5, 6])


testing = pytest.importorskip("zarr.testing.store")
from zarr.core.buffer import cpu  # noqa: E402
from zarr.storage import FsspecStore  # noqa: E402


class TestStore(testing.StoreTests):
    """zarr's own tests of stores."""

    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def place(self, served):
        # The session that a pickled store gets, too: then it is the same store.
        made = slabfs._session.reconnected(served._address()).create_container("store")
        yield made
        if "store" in served:
            served.remove("store", recursive=True)

    @pytest.fixture
    def store_kwargs(self, place):
        return {"fs": slabfs.zarr_store(place).fs, "path": place.path}

    @pytest.fixture
    def open_kwargs(self, store_kwargs):
        return dict(store_kwargs)

    @pytest.fixture
    def store(self, open_kwargs):
        return asyncio.run(self.store_cls.open(**open_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        return self.store_cls(**store_kwargs)

    async def set(self, store, key, value):
        SlabfsFileSystem(session=store.fs.sync_fs.session, auto_mkdir=True).pipe_file(
            f"{store.path}/{key}", value.to_bytes()
        )

    async def get(self, store, key):
        return self.buffer_cls.from_bytes(store.fs.sync_fs.cat_file(f"{store.path}/{key}"))

    def test_store_repr(self, store):
        assert "store" in repr(store)

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing
