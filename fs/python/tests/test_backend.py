"""xarray's own tests of backends, with containers in place of files."""

import asyncio
import contextlib
import itertools
import os

import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("dask")
theirs = pytest.importorskip("xarray.tests.test_backends")
import slabfs.xarray  # noqa: E402 - it registers ds.slabfs


@pytest.fixture(params=["s", "ms", "us", "ns"])
def time_unit(request):
    return request.param


@pytest.fixture(params=[True, False])
def use_dask(request):
    return request.param


class TestContainers(theirs.CFEncodedBase):
    """What a test calls a file is a container of the same name."""

    engine = "slabfs"
    # That is, with unsigned bytes.
    file_format = "NETCDF4"

    @pytest.fixture(autouse=True)
    def _containers(self, served):
        self.numbers = itertools.count()
        self.root = served.create_container("theirs")
        yield
        served.remove("theirs", recursive=True)

    @contextlib.contextmanager
    def roundtrip(self, data, save_kwargs=None, open_kwargs=None, allow_cleanup_failure=False):
        path = f"file{next(self.numbers)}"
        self.save(data, path, **(save_kwargs or {}))
        with self.open(path, **(open_kwargs or {})) as found:
            yield found

    def save(self, dataset, path, mode="w", **options):
        target = self.root.require_container(os.path.basename(path))
        return dataset.slabfs.to_slabfs(target, mode=mode, **options)

    @contextlib.contextmanager
    def open(self, path, **options):
        with xr.open_dataset(self.root[os.path.basename(path)], engine="slabfs", **options) as found:
            yield found

    def test_load_async(self):
        asyncio.run(super().test_load_async())

    def test_append_with_invalid_dim_raises(self):
        data = theirs.create_test_data()
        self.save(data, "file")
        with pytest.raises(slabfs.InvalidError, match="dim1 has 8 elements there, and 4 here"):
            self.save(data.isel(dim1=slice(2, 6)), "file", mode="a")

    @pytest.mark.skip(reason="a container's store only reads: ds.slabfs.to_slabfs writes")
    def test_write_store(self):
        pass

    @pytest.mark.skip(reason="the first axis of each variable may grow, so there is no list of unlimited dimensions")
    def test_encoding_unlimited_dims(self):
        pass

    @pytest.mark.skip(reason="texts of a fixed width need no axis of characters, so their dtype stays S3")
    def test_encoding_kwarg_fixed_width_string(self):
        pass


class TestBlocks(TestContainers):
    """The same with blocks of dask that are written and read."""

    def save(self, dataset, path, mode="w", **options):
        return super().save(dataset.chunk(), path, mode, **options)

    @contextlib.contextmanager
    def open(self, path, **options):
        with super().open(path, **{"chunks": {}, **options}) as found:
            yield found

    @pytest.mark.skip(reason="blocks of dask are not cached")
    def test_dataset_caching(self):
        pass
