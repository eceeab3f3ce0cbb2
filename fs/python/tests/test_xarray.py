"""xarray opens containers and writes data sets."""

import asyncio
import copy
import pickle
import subprocess
import threading

import numpy as np
import pandas as pd
import pytest
from conftest import binary

import slabfs

xr = pytest.importorskip("xarray")
import slabfs.xarray  # noqa: E402 - it registers ds.slabfs


@pytest.fixture
def weather():
    time = pd.date_range("2026-01-01", periods=6, freq="6h")
    generator = np.random.default_rng(1)
    return xr.Dataset(
        {
            "temp": (("time", "lat", "lon"), generator.normal(size=(6, 4, 5)).astype("f4"), {"units": "K"}),
            "flag": (("lat",), np.array([1, 2, 3, 4], dtype="i1")),
            "name": (("lat",), np.array(["a", "bc", "def", "Ä"])),
            "step": ((), np.int64(3)),
        },
        coords={"time": time, "lat": [10.0, 20, 30, 40], "lon": np.arange(5.0), "height": 2.0},
        attrs={"title": "weather", "number": 7, "list": [1, 2]},
    )


def test_data_sets_come_back(container, weather):
    target = container.create_container("run")
    weather.slabfs.to_slabfs(target)
    with xr.open_dataset(target, engine="slabfs") as found:
        xr.testing.assert_identical(found.load(), weather)
    with xr.open_dataset(container, engine="slabfs", group="run") as found:
        xr.testing.assert_equal(found, weather)


def test_paths_and_addresses(up, served, weather):
    weather.slabfs.to_slabfs(up[1] / "weather")
    try:
        with xr.open_dataset(up[1] / "weather") as found:
            xr.testing.assert_identical(found.load(), weather)
        with pytest.raises(slabfs.ExistsError):
            weather.slabfs.to_slabfs(up[1] / "weather")
        weather.slabfs.to_slabfs(up[1] / "weather", mode="w")
        with xr.open_dataset(up[1] / "weather", engine="slabfs") as found:
            xr.testing.assert_identical(found.load(), weather)
    finally:
        served.remove("weather", recursive=True)


@pytest.mark.parametrize(
    "index",
    [
        {"time": 0},
        {"time": slice(1, 4), "lat": [3, 0]},
        {"time": [0, 5], "lon": slice(None, None, -2)},
        {"lat": xr.DataArray([0, 1], dims="points"), "lon": xr.DataArray([4, 2], dims="points")},
        {"lat": np.array([True, False, True, False])},
        {"time": [], "lat": 1},
    ],
)
def test_lazy_indexing(container, weather, index):
    weather.slabfs.to_slabfs(container)
    with xr.open_dataset(container, engine="slabfs") as found:
        xr.testing.assert_identical(found.isel(index).load(), weather.isel(index))


def test_records_are_appended(container, weather):
    weather.isel(time=slice(0, 2)).slabfs.to_slabfs(container)
    weather.isel(time=slice(2, 3)).slabfs.to_slabfs(container, append_dim="time")
    weather.isel(time=slice(3, 6)).slabfs.to_slabfs(container, append_dim="time")
    with xr.open_dataset(container, engine="slabfs") as found:
        xr.testing.assert_identical(found.load(), weather)
    with pytest.raises(slabfs.InvalidError, match="lat"):
        weather.isel(lat=slice(2)).slabfs.to_slabfs(container, append_dim="time")
    with pytest.raises(slabfs.InvalidError, match="nothing"):
        weather.slabfs.to_slabfs(container, append_dim="nothing")


def test_regions(container, weather):
    xr.full_like(weather, 0).assign_coords(weather.coords).drop_vars("name").slabfs.to_slabfs(container)
    part = weather[["temp"]].isel(time=slice(2, 4), lon=slice(1, 3))
    part.slabfs.to_slabfs(container, region="auto")
    with xr.open_dataset(container, engine="slabfs") as found:
        expected = np.zeros((6, 4, 5), dtype="f4")
        expected[2:4, :, 1:3] = weather.temp[2:4, :, 1:3]
        np.testing.assert_array_equal(found.temp, expected)
    part.drop_vars(["time", "lon", "lat", "height"]).slabfs.to_slabfs(
        container, region={"time": slice(0, 2), "lon": slice(3, 5)}
    )
    with xr.open_dataset(container, engine="slabfs") as found:
        expected[0:2, :, 3:5] = weather.temp[2:4, :, 1:3]
        np.testing.assert_array_equal(found.temp, expected)
    with pytest.raises(slabfs.InvalidError):
        part.slabfs.to_slabfs(container, region={"time": slice(0, 3), "lon": slice(1, 3)})


def test_encodings(container):
    data = xr.Dataset({"a": (("x",), np.array([1.0, np.nan, 2.5])), "t": (("x",), pd.date_range("2000", periods=3))})
    encoding = {
        "a": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "codec": "shuffle+zstd:3"},
        "t": {"units": "days since 1999-01-01", "dtype": "i4"},
    }
    data.slabfs.to_slabfs(container, encoding=encoding)
    assert container["a"].dtype == np.int16 and container["a"].codec == "shuffle+zstd:3"
    np.testing.assert_array_equal(container["a"][...], [2, -1, 5])
    np.testing.assert_array_equal(container["t"][...], [365, 366, 367])
    with xr.open_dataset(container, engine="slabfs") as found:
        xr.testing.assert_equal(found.load(), data)


def test_trees(container, weather):
    weather.slabfs.to_slabfs(container.create_container("a"))
    weather[["flag"]].slabfs.to_slabfs(container.create_container("a/b"))
    tree = xr.open_datatree(container, engine="slabfs")
    assert sorted(tree.groups) == ["/", "/a", "/a/b"]
    xr.testing.assert_equal(tree["a/b"].to_dataset().load(), weather.drop_vars(["temp", "name", "step"]))


def test_blocks_of_dask(container, weather):
    dask = pytest.importorskip("dask")
    del dask
    chunked = weather.chunk({"time": 2, "lat": (1, 3)})
    chunked.slabfs.to_slabfs(container)
    assert sorted(container["temp"].tiling) == [
        ((t, lat, 0), (2, size, 5)) for t in (0, 2, 4) for lat, size in ((0, 1), (1, 3))
    ]
    with xr.open_dataset(container, engine="slabfs", chunks={}) as found:
        assert found.temp.chunks == ((2, 2, 2), (1, 3), (5,))
        xr.testing.assert_identical(found.load(), weather)
    delayed = chunked.slabfs.to_slabfs(container.create_container("later"), compute=False)
    delayed.compute()
    with xr.open_dataset(container.container("later"), engine="slabfs") as found:
        xr.testing.assert_identical(found.load(), weather)


def test_a_thousand_variables(container):
    data = xr.Dataset({f"v{i:04}": (("x",), np.arange(4) + i) for i in range(1000)})
    data.slabfs.to_slabfs(container)
    before = container.session.stats()
    with xr.open_dataset(container, engine="slabfs") as found:
        assert len(found.data_vars) == 1000
        after = container.session.stats()
        # Of each variable attributes and tags, and no array is opened. Alone, each part of a path is a request.
        requests = after["metadata_requests"] - before["metadata_requests"]
        assert requests < (8000 if container.session._reconnect is None else 4000)
        assert after["open_objects"] == before["open_objects"]
        xr.testing.assert_identical(found.v0999.load(), data.v0999)
        assert container.session.stats()["open_objects"] == before["open_objects"] + 1
        xr.testing.assert_identical(asyncio.run(found.load_async()), data)


def test_many_are_read_at_once(container, weather, monkeypatch):
    """load_async reads variables in threads: here each one waits until all have begun."""
    weather.slabfs.to_slabfs(container)
    with xr.open_dataset(container, engine="slabfs") as found:
        lazy = [name for name, variable in found.variables.items() if not variable._in_memory]
        assert sorted(lazy) == ["flag", "height", "name", "step", "temp"]
        begun = threading.Barrier(len(lazy), timeout=20)
        getitem = slabfs.Array.__getitem__

        def waits(array, index):
            begun.wait()
            return getitem(array, index)

        monkeypatch.setattr(slabfs.Array, "__getitem__", waits)
        xr.testing.assert_identical(asyncio.run(found.load_async()), weather)


def test_errors_of_names_and_encodings(container, weather):
    with pytest.raises(slabfs.InvalidError, match="slash"):
        xr.Dataset({"a/b": 1}).slabfs.to_slabfs(container)
    with pytest.raises(slabfs.InvalidError, match="zlib"):
        weather.slabfs.to_slabfs(container, encoding={"temp": {"zlib": True}})
    assert list(container) == []


def test_what_is_no_array_is_left_out(container):
    fsspec = pytest.importorskip("slabfs.fsspec")
    fsspec.SlabfsFileSystem(session=container.session).pipe_file(f"{container.path}/readme", b"text")
    container.create_container("below")
    container["a"] = np.arange(3)
    with xr.open_dataset(container, engine="slabfs") as found:
        assert list(found.variables) == ["a"] and found.a.dims == ("dim_0_3",)


def test_texts_of_one_character(container):
    """xarray takes S1 for characters of texts along the last dimension."""
    data = xr.Dataset({"c": (("x",), np.array([b"a", b"", b"c"], dtype="S1"))})
    data.slabfs.to_slabfs(container)
    with xr.open_dataset(container, engine="slabfs") as found:
        np.testing.assert_array_equal(found.c, data.c)


def test_values_of_missing_elements(container):
    """A fill value of an array that its creator has chosen is one of xarray, too; NaN needs none."""
    container.create_array("a", shape=(4,), dtype="i2", fill_value=-9, dims=("x",))[:2] = [1, 2]
    container.create_array("b", shape=(4,), dtype="f4", fill_value=np.nan, dims=("x",))[:2] = [1, 2]
    container.create_array("c", shape=(4,), dtype="i8", dims=("x",))[:2] = [1, 2]
    container.create_array("t", shape=(4,), dtype="M8[s]", dims=("x",))
    with xr.open_dataset(container, engine="slabfs") as found:
        np.testing.assert_array_equal(found.a, [1, 2, np.nan, np.nan])
        np.testing.assert_array_equal(found.b, [1, 2, np.nan, np.nan])
        np.testing.assert_array_equal(found.c, [1, 2, 0, 0])
        assert found.c.dtype == np.int64 and found.t.dtype == np.dtype("M8[s]")
        found.load().slabfs.to_slabfs(container.create_container("again"))
    assert container["again/a"].dtype == np.int16 and container["again/a"].fill_value == -9


def test_copies_and_pickles(served, weather):
    made = served.create_container("copies")
    try:
        weather.slabfs.to_slabfs(made)
        with xr.open_dataset(made, engine="slabfs") as found:
            xr.testing.assert_identical(found.copy(deep=True).load(), weather)
            xr.testing.assert_identical(pickle.loads(pickle.dumps(found)).load(), weather)
            assert not found.temp.variable._in_memory
            assert dict(copy.deepcopy(found.temp.encoding["preferred_chunks"])) == {
                "time": (6,),
                "lat": (4,),
                "lon": (5,),
            }
    finally:
        served.remove("copies", recursive=True)


def test_added_variables_keep_the_encoding_there(container):
    """Times are stored as numbers since another day when they are written alone."""
    for year in ("2000", "2020"):
        times = xr.Dataset(coords={"time": pd.date_range(year, periods=3)})
        times.slabfs.to_slabfs(container, mode="a")
        with xr.open_dataset(container, engine="slabfs") as found:
            xr.testing.assert_equal(found, times)
    with pytest.raises(slabfs.InvalidError, match="time"):
        times.slabfs.to_slabfs(container, mode="a", encoding={"time": {"units": "days since 1999-01-01"}})


@pytest.mark.parametrize("dtype", ["U", "S"])
def test_texts_are_not_cut(container, dtype):
    short = xr.Dataset({"name": (("x",), np.array(["a", "bc"], dtype=dtype))})
    short.slabfs.to_slabfs(container)
    short.slabfs.to_slabfs(container, append_dim="x")
    long = xr.Dataset({"name": (("x",), np.array(["longer", "x"], dtype=dtype))})
    with pytest.raises(slabfs.InvalidError, match="name"):
        long.slabfs.to_slabfs(container, append_dim="x")
    with pytest.raises(slabfs.InvalidError, match="name"):
        long.slabfs.to_slabfs(container, region={"x": slice(0, 2)})
    with xr.open_dataset(container, engine="slabfs") as found:
        assert found.name.values.tolist() == np.array(["a", "bc"] * 2, dtype=dtype).tolist()


def test_encoded_texts_are_appended(container):
    data = xr.Dataset({"name": (("x",), ["ä", "bc"])})
    data.slabfs.to_slabfs(container, encoding={"name": {"dtype": "S1"}})
    assert container["name"].dtype == np.dtype("S2")
    data.slabfs.to_slabfs(container, append_dim="x")
    with xr.open_dataset(container, engine="slabfs") as found:
        assert found.name.values.tolist() == ["ä", "bc"] * 2


def opened(container):
    """The data set of a container, in memory."""
    with xr.open_dataset(container, engine="slabfs") as found:
        return found.load()


@pytest.fixture
def pair():
    return xr.Dataset({"a": (("x",), np.arange(3)), "same": (("x",), np.ones(3), {"units": "K"})}, attrs={"step": 1})


@pytest.mark.parametrize("value", [None, {"a": 1}, [None], np.ones((2, 2))])
@pytest.mark.parametrize("mode", ["w", "a", "w-"])
def test_attributes_are_checked_first(container, pair, mode, value):
    if mode != "w-":
        pair.slabfs.to_slabfs(container)
    before, wrong = list(container), pair + 1
    wrong["same"].attrs["bad"] = value
    with pytest.raises(slabfs.InvalidError, match="'bad' of same"):
        wrong.slabfs.to_slabfs(container, mode=mode)
    wrong = (pair + 1).assign(b=1).assign_attrs(bad=value)
    with pytest.raises(slabfs.InvalidError, match="'bad' of the data set"):
        wrong.slabfs.to_slabfs(container, mode=mode)
    assert list(container) == before
    if mode != "w-":
        xr.testing.assert_identical(opened(container), pair)


@pytest.mark.parametrize("wrong", [{"codec": "gzipp"}, {"layout": "grid:0"}, {"placement": "moon"}, {"dtype": "i99"}])
@pytest.mark.parametrize("mode", ["w", "a", "w-"])
def test_encodings_are_checked_first(container, pair, mode, wrong):
    target = container.create_container("run")
    if mode != "w-":
        pair[["a"]].slabfs.to_slabfs(target)
    new = (pair + 1).assign({f"v{i}": i for i in range(9)})
    if mode == "a":
        new["a"] = pair["a"]
    with pytest.raises((slabfs.InvalidError, TypeError), match=r"same|i99"):
        new.slabfs.to_slabfs(target, mode=mode, encoding={"same": wrong})
    assert list(target) == ([] if mode == "w-" else ["a"])
    if mode != "w-":
        xr.testing.assert_identical(opened(target), pair[["a"]])
    new.slabfs.to_slabfs(target, mode=mode, encoding={"same": {"codec": "zstd:3"}})
    xr.testing.assert_equal(opened(target), new)


def test_new_containers_are_removed_after_errors(up, served, pair):
    with pytest.raises(slabfs.InvalidError, match="gzipp"):
        pair.slabfs.to_slabfs(up[1] / "failed", encoding={"same": {"codec": "gzipp"}})
    assert "failed" not in served
    pair.slabfs.to_slabfs(up[1] / "failed", encoding={"same": {"codec": "zstd:3"}})
    served.remove("failed", recursive=True)


def test_data_sets_are_replaced(container, pair):
    pair.slabfs.to_slabfs(container)
    container.create_container("below")["array"] = np.arange(3)
    fsspec = pytest.importorskip("slabfs.fsspec")
    fsspec.SlabfsFileSystem(session=container.session).pipe_file(f"{container.path}/readme", b"text")
    new = xr.Dataset({"same": (("x",), np.zeros(5))}, attrs={"title": "new"})
    new.slabfs.to_slabfs(container, mode="w")
    xr.testing.assert_identical(opened(container), new)
    assert sorted(container) == ["below", "readme", "same"]
    for name in ("below", "readme"):
        with pytest.raises(slabfs.InvalidError, match=name):
            xr.Dataset({name: 1}).slabfs.to_slabfs(container, mode="w")
    xr.testing.assert_identical(opened(container), new)
    assert sorted(container) == ["below", "readme", "same"] and container["below/array"].shape == (3,)


def test_a_data_set_replaces_itself(container, pair):
    pytest.importorskip("dask")
    pair.slabfs.to_slabfs(container)
    with xr.open_dataset(container, engine="slabfs", chunks={}) as found:
        (found[["a"]] + 1).slabfs.to_slabfs(container, mode="w")
    assert list(container) == ["a"] and container["a"][...].tolist() == [1, 2, 3]
    pair.chunk().slabfs.to_slabfs(container, mode="w", compute=False).compute()
    xr.testing.assert_identical(opened(container), pair)


def fails(block):
    raise RuntimeError("no data")


@pytest.mark.parametrize("mode", ["w", "a", "w-"])
def test_data_that_cannot_be_had(container, pair, mode):
    pytest.importorskip("dask")
    if mode != "w-":
        pair.slabfs.to_slabfs(container)
    before = sorted(container)
    data = (pair.same * 0).chunk().data.map_blocks(fails, dtype=float, meta=np.array(()))
    new = pair.assign(b=(("x",), data))
    with pytest.raises(RuntimeError, match="no data"):
        new.slabfs.to_slabfs(container, mode=mode)
    assert sorted(container) == before
    if mode != "w-":
        xr.testing.assert_identical(opened(container), pair)


def test_added_variables_fit_the_lengths_there(container, pair):
    pair.slabfs.to_slabfs(container)
    with pytest.raises(slabfs.InvalidError, match="x has 3 elements there, and 4 here"):
        xr.Dataset({"b": (("x",), np.arange(4)), "c": 1}).slabfs.to_slabfs(container, mode="a")
    xr.testing.assert_identical(opened(container), pair)


def test_all_arrays_of_a_dimension_are_appended_to(container, pair):
    pair.slabfs.to_slabfs(container)
    with pytest.raises(slabfs.InvalidError, match="same"):
        pair[["a"]].slabfs.to_slabfs(container, append_dim="x")
    with pytest.raises(slabfs.InvalidError, match="same"):
        pair.assign(same=1).slabfs.to_slabfs(container, append_dim="x")
    xr.testing.assert_identical(opened(container), pair)


def test_appends_that_fail_are_cut_back(container, pair):
    pytest.importorskip("dask")
    pair.slabfs.to_slabfs(container)
    data = (pair.same * 0).chunk().data.map_blocks(fails, dtype=float, meta=np.array(()))
    with pytest.raises(RuntimeError, match="no data"):
        pair.assign(same=(("x",), data)).slabfs.to_slabfs(container, append_dim="x")
    xr.testing.assert_identical(opened(container), pair)
    container.create_array("z", data=[1.0, 2, 3], dims=("x",))
    with pytest.raises(slabfs.InvalidError, match="z: x may have 3 elements, and not 6"):
        pair.assign(z=pair.same).slabfs.to_slabfs(container, append_dim="x")
    assert container["a"].shape == (3,)


def test_texts_of_imported_files(up, served, tmp_path):
    """Strings of NetCDF and HDF5 are bytes with a tag."""
    h5py = pytest.importorskip("h5py")
    file = tmp_path / "texts.h5"
    with h5py.File(file, "w") as made:
        made.create_dataset("any", data=["a", "Ärg", ""], dtype=h5py.string_dtype())
        made.create_dataset("ascii", data=["a", "bc", ""], dtype=h5py.string_dtype("ascii"))
        made.create_dataset("fixed", data=np.array(["ä".encode(), b"b", b"c"], dtype=h5py.string_dtype("utf-8", 5)))
        made.create_dataset("bytes", data=np.array([b"a", b"bc", b"d"]))
    imported = subprocess.run([binary(), "import", file, up[1] / "texts"], capture_output=True, text=True)
    if imported.returncode and "slabfs-formats" in imported.stderr:
        pytest.skip("no program slabfs-formats")
    assert not imported.returncode, imported.stderr
    served.create_container("copy")
    try:
        for name in ("any", "ascii", "fixed", "bytes"):
            served[f"texts/{name}"].resize((3,))
            served.session._native.tag([(f"texts/{name}", [("dim_names", "string[]", b'["x"]')], [])])
        with xr.open_dataset(up[1] / "texts") as found:
            assert found["any"].values.tolist() == ["a", "Ärg", ""] and found["any"].dtype.kind == "U"
            assert found["any"][1].item() == "Ärg" and found["any"][[2, 1]].values.tolist() == ["", "Ärg"]
            assert found["ascii"].values.tolist() == ["a", "bc", ""]
            assert found["fixed"].values.tolist() == ["ä", "b", "c"]
            assert found["bytes"].values.tolist() == [b"a", b"bc", b"d"]
            xr.testing.assert_identical(pickle.loads(pickle.dumps(found)).load(), found)
            found.load()
        # A copy has the same types.
        found.slabfs.to_slabfs(served["copy"])
        xr.testing.assert_identical(opened(served["copy"]), found)
        for name in served["texts"]:
            assert served[f"copy/{name}"].dtype == served[f"texts/{name}"].dtype
            assert served._native.tags(f"copy/{name}") == served._native.tags(f"texts/{name}")
        # What is written is text there, too.
        new = found.assign(any=("x", ["b", "ä", "c"]), fixed=("x", ["x", "y", "ß"]))
        new.slabfs.to_slabfs(served["texts"], region={"x": slice(0, 3)})
        xr.testing.assert_identical(opened(served["texts"]), new)
        new.slabfs.to_slabfs(served["texts"], mode="a")
        assert served["texts/any"][1] == "ä".encode()
        for name, long in (("any", "longer"), ("fixed", "äää"), ("ascii", "ä")):
            with pytest.raises(slabfs.InvalidError, match=name):
                new.assign({name: ("x", [long, "", ""])}).slabfs.to_slabfs(served["texts"], mode="a")
        # In a new array texts may have any length.
        new = new.assign(any=("x", ["longer", "", ""]), fixed=("x", ["äää", "", ""]), ascii=("x", ["ä", "", ""]))
        for name, encoding in found.variables.items():
            new[name].encoding = encoding.encoding
        new.slabfs.to_slabfs(served["copy"], mode="w")
        xr.testing.assert_identical(opened(served["copy"]), new)
        kinds = [data for key, _, data in served._native.tags("copy/fixed") if key == "_slabfs_type"]
        assert kinds == [b'{"hdf5":{"string":6,"pad":"nullpad","set":"utf-8"}}']
    finally:
        served.remove("texts", recursive=True)
        served.remove("copy", recursive=True)
