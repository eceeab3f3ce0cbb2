"""Grids of oceanographers (Debian's package ferret-datasets): what was imported is what netCDF4 reads in the file."""

import pathlib
import subprocess

import conftest
import numpy as np
import pytest

xr = pytest.importorskip("xarray")
pytest.importorskip("netCDF4")
import slabfs.xarray  # noqa: E402, F401 - it registers ds.slabfs

GRIDS = pathlib.Path("/usr/share/ferret-vis/data")
NAMES = [
    "coads_climatology.cdf",
    "esku_heat_budget.cdf",
    "etopo60.cdf",
    "levitus_climatology.cdf",
    "monthly_navy_winds.cdf",
    "ocean_atlas_subset.nc",
]


@pytest.fixture(params=NAMES)
def grid(request, up, served):
    """A file, its container, and the mount point."""
    file = GRIDS / request.param
    assert file.exists(), "the package ferret-datasets is missing: tools/setup --tests installs it"
    place = up[1] / "grid"
    subprocess.run([conftest.binary(), "import", str(file), str(place)], check=True, capture_output=True)
    yield file, served["grid"], up[1]
    served.remove("grid", recursive=True)


#: Their times are since the year 0, which xarray refuses.
YEAR_ZERO = {"coads_climatology.cdf", "esku_heat_budget.cdf", "ocean_atlas_subset.nc"}


def test_all_ways(grid):
    file, container, mnt = grid
    options = {"decode_times": file.name not in YEAR_ZERO}
    with (
        xr.open_dataset(file, engine="netcdf4", **options) as original,
        xr.open_dataset(container, engine="slabfs", **options) as found,
        xr.open_dataset(mnt / "grid", **options) as mounted,
        xr.open_dataset(mnt / ".slabfs/h5/grid.h5", engine="netcdf4", **options) as hdf5,
        xr.open_zarr(mnt / ".slabfs/zarr/grid.zarr", consolidated=False, **options) as zarr,
    ):
        original.load()
        for other in (found, mounted, hdf5, zarr):
            xr.testing.assert_identical(other.load(), original)
            for name, variable in original.variables.items():
                assert other[name].dtype == variable.dtype
        # Only the import says which dimensions are unlimited, and xarray writes them so again.
        assert found.encoding["unlimited_dims"] == original.encoding["unlimited_dims"]


def test_parts_and_blocks(grid):
    file, container, _ = grid
    generator = np.random.default_rng(4)
    with (
        xr.open_dataset(file, engine="netcdf4", decode_times=False) as original,
        xr.open_dataset(container, engine="slabfs", decode_times=False) as found,
        xr.open_dataset(container, engine="slabfs", decode_times=False, chunks={}) as blocks,
    ):
        for _ in range(5):
            part = {dim: np.sort(generator.integers(0, size, 3)) for dim, size in original.sizes.items()}
            xr.testing.assert_identical(found.isel(part).load(), original.isel(part).load())
            step = {dim: slice(*sorted(generator.integers(0, size + 1, 2)), 2) for dim, size in original.sizes.items()}
            xr.testing.assert_identical(blocks.isel(step).compute(), original.isel(step).load())
        xr.testing.assert_allclose(blocks.mean().compute(), original.load().mean())


def test_written_again(grid, served):
    """What netCDF4 read is written by to_slabfs, with the encoding of the file."""
    file, _, _ = grid
    options = {"decode_times": file.name not in YEAR_ZERO}
    made = served.create_container("again")
    try:
        with xr.open_dataset(file, engine="netcdf4", **options) as original:
            original.slabfs.to_slabfs(made)
            with xr.open_dataset(made, engine="slabfs", **options) as found:
                xr.testing.assert_identical(found.load(), original.load())
        with xr.open_dataset(file, engine="netcdf4", decode_cf=False) as original:
            for name, variable in original.data_vars.items():
                assert made[name].dtype == variable.dtype
    finally:
        served.remove("again", recursive=True)
