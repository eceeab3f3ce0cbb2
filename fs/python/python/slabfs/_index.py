"""Indexing as NumPy's, without data: what an index selects of an array of some shape. Pure.

An index is *basic* if it has integers, slices, ellipses and new axes only: it selects a start, step and count along each
axis, which is one request. All others (arrays of integers or truth values) are *advanced*: they select *pieces*, runs of
consecutive elements in the canonical order, which are one request, too. The order of axes in the result is NumPy's, or,
for orthogonal indexing, that of the array.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, Optional

import numpy as np

from ._errors import SelectionError


class Basic(NamedTuple):
    """A basic selection."""

    #: Start, step (positive) and count along each axis of the array.
    axes: list
    #: Count along each axis of the array: the shape of the buffer.
    counts: tuple
    #: Index of the buffer that gives the result.
    view: tuple
    #: Whether the result is the buffer as it is.
    plain: bool


class Pieces(NamedTuple):
    """An advanced selection."""

    #: The first element of each piece in the canonical order, in the order of the result.
    offsets: np.ndarray
    #: Elements of each piece.
    length: int
    #: The shape of the result.
    shape: tuple


def _out_of_bounds(index: int, axis: int, size: int) -> SelectionError:
    return SelectionError(f"index {index} is out of bounds for axis {axis} with size {size}")


def _integer(index: Any, axis: int, size: int) -> int:
    number = operator.index(index)
    if not -size <= number < size:
        raise _out_of_bounds(number, axis, size)
    return number + size if number < 0 else number


def _is_integer(item: Any) -> bool:
    if isinstance(item, (bool, np.bool_)):
        return False
    if isinstance(item, (int, np.integer)):
        return True
    if isinstance(item, np.ndarray):
        return item.ndim == 0 and item.dtype.kind in "iu"
    return hasattr(item, "__index__") and not hasattr(item, "__len__")


def _is_basic(item: Any) -> bool:
    return item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item)


def _too_many(rank: int, given: int) -> SelectionError:
    return SelectionError(f"too many indices for array: array is {rank}-dimensional, but {given} were indexed")


def _expand(items: tuple, used: int, rank: int) -> list:
    """Replaces the ellipsis, or a missing end, by slices of everything."""
    if used > rank:
        raise _too_many(rank, used)
    fill = [slice(None)] * (rank - used)
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    if ellipses:
        at = ellipses[0]
        return [*items[:at], *fill, *items[at + 1 :]]
    return [*items, *fill]


def basic(index: Any, shape: tuple) -> Optional[Basic]:
    """A basic selection, or ``None`` if the index is advanced."""
    items = index if isinstance(index, tuple) else (index,)
    used = 0
    for item in items:
        if item is None or item is Ellipsis:
            continue
        if not (isinstance(item, slice) or _is_integer(item)):
            return None
        used += 1
    axes, counts, view = [], [], []
    # Of an array without axes an element is no array, as in NumPy; with an ellipsis it is one.
    plain = bool(shape)
    axis = 0
    for item in _expand(items, used, len(shape)):
        if item is None:
            view.append(None)
            plain = False
            continue
        size = shape[axis]
        if isinstance(item, slice):
            start, step, count = _span(item, size)
            if step < 0:
                start, step = start + step * (count - 1), -step
                view.append(slice(None, None, -1))
                plain = False
            else:
                view.append(slice(None))
        else:
            start, step, count = _integer(item, axis, size), 1, 1
            view.append(0)
            plain = False
        axes.append((start, step, count))
        counts.append(count)
        axis += 1
    if not plain and any(item is Ellipsis for item in items):
        view.append(Ellipsis)
    return Basic(axes, tuple(counts), tuple(view), plain)


def _span(item: slice, size: int) -> tuple:
    try:
        start, stop, step = item.indices(size)
    except ValueError as error:
        raise SelectionError(str(error)) from None
    except TypeError as error:
        raise SelectionError(f"{error}; give integers or None") from None
    count = len(range(start, stop, step))
    # What selects nothing has to start inside, too.
    return (start, step if count > 1 else 1, count) if count else (0, 1, 0)


def _as_array(item: Any) -> np.ndarray:
    array = np.asarray(item)
    if array.size == 0 and array.dtype.kind not in "iub":
        array = array.astype(np.intp)
    if array.dtype.kind not in "iub":
        raise SelectionError(
            "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are "
            "valid indices"
        )
    return array


def _check(array: np.ndarray, axis: int, size: int) -> np.ndarray:
    array = array.astype(np.int64, copy=False)
    if array.size:
        low, high = array.min(), array.max()
        if low < -size:
            raise _out_of_bounds(int(low), axis, size)
        if high >= size:
            raise _out_of_bounds(int(high), axis, size)
        if low < 0:
            array = np.where(array < 0, array + size, array)
    return array


def _resolve(index: Any, shape: tuple) -> list:
    """An index as a list of new axes (``None``), slices and arrays of integers that are checked, one for each axis. A truth
    value without axes (``True``, ``False``) is an array, and its axis is ``None``."""
    items = index if isinstance(index, tuple) else (index,)
    arrays = [item if _is_basic(item) else _as_array(item) for item in items]
    used = 0
    for item in arrays:
        if isinstance(item, np.ndarray) and item.dtype.kind == "b":
            used += item.ndim
        elif item is not None and item is not Ellipsis:
            used += 1
    resolved: list = []
    axis = 0
    for item in _expand(tuple(arrays), used, len(shape)):
        if item is None:
            resolved.append((None, None))
        elif isinstance(item, slice):
            resolved.append((axis, item))
            axis += 1
        elif isinstance(item, np.ndarray) and item.dtype.kind == "b":
            if item.ndim == 0:
                resolved.append((None, np.zeros(int(item), dtype=np.int64)))
                continue
            for own, size in enumerate(item.shape):
                if size != shape[axis + own]:
                    raise SelectionError(
                        f"boolean index did not match indexed array along axis {axis + own}; size of axis is "
                        f"{shape[axis + own]} but size of corresponding boolean axis is {size}"
                    )
            for found in np.nonzero(item):
                resolved.append((axis, found.astype(np.int64)))
                axis += 1
        else:
            array = np.asarray(operator.index(item)) if not isinstance(item, np.ndarray) else item
            resolved.append((axis, _check(array, axis, shape[axis])))
            axis += 1
    return resolved


def advanced(index: Any, shape: tuple) -> Pieces:
    """An advanced selection by NumPy's rules: arrays are broadcast against each other; their axes are where the first array
    is, or in front if slices are between them."""
    resolved = _resolve(index, shape)
    places = [i for i, (_, item) in enumerate(resolved) if isinstance(item, np.ndarray)]
    try:
        common = np.broadcast_shapes(*[resolved[i][1].shape for i in places])
    except ValueError:
        shapes = " ".join(str(resolved[i][1].shape) for i in places)
        raise SelectionError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes}"
        ) from None
    together = places[-1] - places[0] + 1 == len(places) and not _is_divided(index)
    # The axes of the result: each a list of what varies along it.
    result: list = []
    arrays = [(axis, item) for axis, item in resolved if isinstance(item, np.ndarray)]
    for at, (axis, item) in enumerate(resolved):
        if at == places[0] and together:
            result.append(("arrays", None))
        if not isinstance(item, np.ndarray):
            result.append((axis, item))
    if not together:
        result.insert(0, ("arrays", None))
    return _pieces(result, arrays, common, shape)


def _is_divided(index: Any) -> bool:
    """Whether an ellipsis of no axes is between arrays or integers, which separates them as well."""
    items = index if isinstance(index, tuple) else (index,)
    kinds = [
        "..." if item is Ellipsis else "" if item is None or isinstance(item, slice) else "array" for item in items
    ]
    if "..." not in kinds:
        return False
    at = kinds.index("...")
    return "array" in kinds[:at] and "array" in kinds[at:]


def orthogonal(index: Any, shape: tuple) -> Pieces:
    """An advanced selection in which each axis is selected by itself, and keeps its place; integers remove their axis."""
    items = index if isinstance(index, tuple) else (index,)
    if any(item is None for item in items):
        raise SelectionError("orthogonal indexing takes no new axes; index the result")
    resolved = _resolve(index, shape)
    result: list = []
    for axis, item in resolved:
        if isinstance(item, np.ndarray) and item.ndim > 1:
            raise SelectionError(f"orthogonal indexing takes arrays of one axis; that of axis {axis} has {item.ndim}")
        result.append((axis, item))
    return _pieces(result, [], (), shape)


def _pieces(result: list, arrays: list, common: tuple, shape: tuple) -> Pieces:
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    # The last axes that are selected without gaps are one piece.
    length, offset, inner = 1, 0, len(result)
    axis = len(shape)
    run: list = []
    while inner and axis and result[inner - 1][0] == axis - 1 and isinstance(result[inner - 1][1], slice):
        start, step, count = _span(result[inner - 1][1], shape[axis - 1])
        if step != 1 and count > 1:
            break
        inner, axis = inner - 1, axis - 1
        run.insert(0, count)
        offset += start * strides[axis]
        length *= count
        if count != shape[axis]:
            break
    parts: list = []
    full: list = []
    for own, item in result[:inner]:
        if own == "arrays":
            offsets = np.zeros(common, dtype=np.int64)
            for array_axis, array in arrays:
                if array_axis is not None:
                    offsets = offsets + array * strides[array_axis]
            parts.append((len(full), offsets))
            full.extend(common)
        elif isinstance(item, slice):
            start, step, count = _span(item, shape[own])
            parts.append((len(full), (start + step * np.arange(count, dtype=np.int64)) * strides[own]))
            full.append(count)
        elif isinstance(item, np.ndarray):
            if own is None:
                parts.append((len(full), item))
            else:
                parts.append((len(full), item * strides[own]))
            full.extend(item.shape)
        else:
            full.append(1)
    total = np.zeros((1,) * len(full), dtype=np.int64)
    for at, offsets in parts:
        after = len(full) - at - offsets.ndim
        total = total + offsets.reshape(offsets.shape + (1,) * after)
    total = np.broadcast_to(total, tuple(full)).reshape(-1)
    return Pieces(total + offset, length, (*full, *run))
