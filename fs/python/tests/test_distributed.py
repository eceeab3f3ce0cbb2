"""Several processes write and read at once."""

import concurrent.futures
import multiprocessing
import os

import numpy as np
import pytest

import slabfs

xr = pytest.importorskip("xarray")
distributed = pytest.importorskip("distributed")
import slabfs.xarray  # noqa: E402 - it registers ds.slabfs


@pytest.fixture(scope="module")
def client():
    """Two workers, processes of their own."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address=None,
        ) as cluster,
        distributed.Client(cluster, timeout=30) as client,
    ):
        yield client


@pytest.fixture
def place(served):
    yield served.create_container("several")
    served.remove("several", recursive=True)


def field(steps=8):
    data = np.random.default_rng(2).normal(size=(steps, 40, 50))
    return xr.Dataset({"temp": (("time", "y", "x"), data)}, coords={"time": np.arange(steps) * 6, "y": np.arange(40)})


def test_workers_write_and_read(client, place):
    data = field()
    data.chunk({"time": 1, "y": 20}).slabfs.to_slabfs(place)
    # The blocks came from the workers, and not from this process.
    assert set(client.run(lambda: len(slabfs._session._connected)).values()) == {1}
    assert len(place["temp"].tiling) == 16
    with xr.open_dataset(place, engine="slabfs", chunks={}) as found:
        assert found.temp.chunks == ((1,) * 8, (20, 20), (50,))
        xr.testing.assert_identical(found.compute(), data)
        np.testing.assert_allclose(found.temp.mean("time").compute(), data.temp.mean("time"))


def test_workers_append(client, place):
    data = field()
    data.isel(time=slice(5)).chunk({"time": 2}).slabfs.to_slabfs(place)
    data.isel(time=slice(5, None)).chunk({"time": 1}).slabfs.to_slabfs(place, append_dim="time")
    with xr.open_dataset(place, engine="slabfs", chunks={}) as found:
        assert found.temp.chunks[0] == (2, 2, 1, 1, 1, 1)
        xr.testing.assert_identical(found.compute(), data)


def test_a_later_write_by_workers(client, place):
    data = field()
    later = data.chunk({"time": 4}).slabfs.to_slabfs(place, compute=False)
    assert not place["temp"][...].any()
    client.compute(later).result(timeout=30)
    with xr.open_dataset(place, engine="slabfs") as found:
        xr.testing.assert_identical(found.load(), data)


def test_cached_blocks_are_not_those_written_later(client, place):
    data = field()
    data.chunk({"time": 4}).slabfs.to_slabfs(place)
    with xr.open_dataset(place, engine="slabfs", chunks={}) as found:
        cached = found.persist()
        distributed.wait(cached)
        place["temp"][...] = 3.0
        with xr.open_dataset(place, engine="slabfs", chunks={}) as again:
            assert (again.persist().temp.compute() == 3).all()
        xr.testing.assert_identical(cached.compute(), data)


def write_part(target, part, start):
    """Runs in a process of its own."""
    part.slabfs.to_slabfs(target, region={"time": slice(start, start + part.sizes["time"])})
    target.session.close()
    return os.getpid()


def test_processes_write_regions(place):
    data = field()
    xr.zeros_like(data).assign_coords(data.coords).slabfs.to_slabfs(place)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as pool:
        parts = [data[["temp"]].drop_vars(["time", "y"]).isel(time=slice(start, start + 4)) for start in (0, 4)]
        ended = [pool.submit(write_part, place, part, start) for part, start in zip(parts, (0, 4))]
        assert os.getpid() not in [one.result(timeout=50) for one in ended]
    with xr.open_dataset(place, engine="slabfs") as found:
        xr.testing.assert_identical(found.load(), data)
