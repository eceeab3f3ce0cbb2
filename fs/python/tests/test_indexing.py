"""Any index of any array reads and writes what NumPy does."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import slabfs
from slabfs import _index

DTYPES = ["i1", "<u2", ">i4", "<f8", ">f4", "c8", "c16", "b1", "S3", "U2", "V5", "M8[s]", "m8[ms]", ">M8[D]"]


def filled(shape, dtype):
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if dtype.kind == "V":
        return np.frombuffer(np.random.default_rng(1).bytes(count * 5), dtype="V5").reshape(shape)
    if dtype.kind in "SU":
        return np.array([f"{i % 97}" for i in range(count)], dtype=dtype).reshape(shape)
    if dtype.kind == "b":
        return (np.arange(count) % 3 == 0).reshape(shape)
    if dtype.kind in "mM":
        return np.arange(count).astype("<i8").astype(dtype).reshape(shape)
    return (np.arange(count) % 120).astype(dtype).reshape(shape)


shapes = hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=5)


@st.composite
def indexes(draw, shape):
    if draw(st.booleans()) or 0 in shape:
        return draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    return draw(mixed(shape))


@st.composite
def mixed(draw, shape):
    """Arrays of integers and truth values among slices, integers and new axes."""
    if not shape:
        return ()
    common = draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=3))
    items = []
    axis = 0
    while axis < len(shape):
        size = shape[axis]
        kind = draw(st.sampled_from(["slice", "int", "array", "array", "bool", "new", "end"]))
        if kind == "slice":
            items.append(draw(st.slices(size)))
        elif kind == "int":
            items.append(draw(st.integers(-size, size - 1)))
        elif kind == "array":
            items.append(draw(hnp.arrays(np.int64, common, elements=st.integers(-size, size - 1))))
        elif kind == "bool":
            array = draw(hnp.arrays(bool, (size,)))
            if array.sum() not in (1, common[-1]):
                continue
            items.append(array)
        elif kind == "new":
            items.append(None)
            continue
        else:
            break
        axis += 1
    # An ellipsis that stands for no axes, or for those at the end.
    at = draw(st.integers(0, len(items)) if axis == len(shape) else st.just(len(items)))
    if draw(st.booleans()):
        items.insert(at, Ellipsis)
    return tuple(items)


@pytest.fixture(scope="module")
def arrays():
    """Arrays by session, shape, dtype and layout, made once each."""
    return {}


def array_of(session, arrays, shape, dtype, layout):
    key = (id(session), shape, dtype, layout)
    if key not in arrays:
        data = filled(shape, dtype)
        made = session.create_array(f"index{len(arrays)}", shape=shape, dtype=dtype, layout=layout)
        made[...] = data
        arrays[key] = made, data
    return arrays[key]


PROFILE = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@PROFILE
@given(data=st.data())
def test_reads_are_those_of_numpy(session, arrays, data):
    shape = data.draw(shapes)
    dtype = data.draw(st.sampled_from(DTYPES))
    layout = data.draw(st.sampled_from(["aligned", "canonical", "grid"]))
    layout = "aligned" if layout == "grid" and not shape else layout
    layout = "grid:" + ",".join("2" for _ in shape) if layout == "grid" else layout
    array, model = array_of(session, arrays, shape, dtype, layout)
    index = data.draw(indexes(shape))
    try:
        expected = model[index]
    except IndexError:
        with pytest.raises(IndexError):
            array[index]
        return
    found = array[index]
    np.testing.assert_array_equal(found, expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    assert np.shape(found) == np.shape(expected)
    assert type(found) is type(expected)


@PROFILE
@given(data=st.data())
def test_writes_are_those_of_numpy(session, data):
    shape = data.draw(shapes)
    dtype = data.draw(st.sampled_from(["<i4", ">f8", "S3", "M8[s]"]))
    layout = data.draw(st.sampled_from(["aligned", "canonical"]))
    name = f"written{len(session)}"
    array = session.create_array(name, shape=shape, dtype=dtype, layout=layout)
    model = np.zeros(shape, dtype=dtype)
    try:
        for _ in range(data.draw(st.integers(1, 3))):
            index = data.draw(indexes(shape))
            try:
                selected = model[index]
            except IndexError:
                with pytest.raises(IndexError):
                    array[index] = np.zeros((), dtype=dtype)
                continue
            value = filled(np.shape(selected), dtype)
            if data.draw(st.booleans()):
                value = value[..., ::-1] if np.ndim(value) else value
            elif np.ndim(value):
                value = value[:1]
            model[index] = value
            array[index] = value
        np.testing.assert_array_equal(array[...], model)
    finally:
        session.remove(name)


@PROFILE
@given(data=st.data())
def test_orthogonal_indexes_select_each_axis(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5))
    model = np.arange(int(np.prod(shape))).reshape(shape)
    index = []
    for size in shape:
        kind = data.draw(st.sampled_from(["slice", "int", "array", "bool"]))
        if kind == "slice":
            index.append(data.draw(st.slices(size)))
        elif kind == "int":
            index.append(data.draw(st.integers(-size, size - 1)))
        elif kind == "array":
            index.append(
                data.draw(hnp.arrays(np.int64, (data.draw(st.integers(0, 4)),), elements=st.integers(-size, size - 1)))
            )
        else:
            index.append(data.draw(hnp.arrays(bool, (size,))))
    pieces = _index.orthogonal(tuple(index), shape)
    found = (pieces.offsets[:, None] + np.arange(pieces.length)).reshape(pieces.shape)
    expected = model
    # One axis at a time, from the last; integers last.
    for axis in reversed(range(len(shape))):
        expected = expected[(slice(None),) * axis + (index[axis],)]
    np.testing.assert_array_equal(found, expected)


def test_points_and_grids(container):
    array = container.create_array("a", data=np.arange(60).reshape(5, 12))
    model = array[...]
    assert array.oindex[[0, 3], [1, 5, 7]].shape == (2, 3)
    np.testing.assert_array_equal(array.oindex[[0, 3], [1, 5, 7]], model[np.ix_([0, 3], [1, 5, 7])])
    np.testing.assert_array_equal(array.vindex[[0, 3], [1, 5]], model[[0, 3], [1, 5]])
    array.oindex[[1, 2], ::4] = [[1, 2, 3], [4, 5, 6]]
    model[np.ix_([1, 2], [0, 4, 8])] = [[1, 2, 3], [4, 5, 6]]
    array.vindex[[4, 4, 4], [0, 0, 1]] = [7, 8, 9]
    model[[4, 4, 4], [0, 0, 1]] = [7, 8, 9]
    np.testing.assert_array_equal(array[...], model)


def test_many_points(container):
    array = container.create_array("a", data=np.arange(1 << 20).reshape(1024, 1024))
    rows = np.random.default_rng(3).integers(0, 1024, 100_000)
    columns = np.random.default_rng(4).integers(0, 1024, 100_000)
    np.testing.assert_array_equal(array[rows, columns], rows * 1024 + columns)


@pytest.mark.parametrize(
    "index", [5, -6, (0, 12), (slice(None), slice(None), 0), [[0, 5]], "x", 1.5, (..., ...), np.ones(4, bool), {}]
)
def test_indexes_that_do_not_fit(container, index):
    array = container.create_array("a", data=np.arange(60).reshape(5, 12))
    with pytest.raises(slabfs.SelectionError) as mine:
        array[index]
    with pytest.raises(IndexError) as numpys:
        np.arange(60).reshape(5, 12)[index]
    if "bounds" in str(numpys.value):
        assert str(mine.value) == str(numpys.value)
