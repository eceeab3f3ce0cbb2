"""Arrays: objects of a filesystem, indexed as NumPy's."""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

import numpy as np

from . import _html, _index
from ._errors import InvalidError, NotFoundError, NotSupportedError, SelectionError, StaleError
from ._tags import Attributes
from ._transfer import Transfer, batches, wait_all

if TYPE_CHECKING:
    from ._session import Session

#: The tag that has a dtype of NumPy which an object has not, as JSON: a time, a structured type (docs/data-model.md).
DTYPE = "_slabfs_type"
#: The tag that has the names of the axes, as JSON.
DIM_NAMES = "dim_names"


def stored_dtype(dtype: np.dtype) -> tuple:
    """The dtype of the object for an array of NumPy's, and the value of the tag that it needs, if any."""
    if dtype.hasobject:
        raise InvalidError("arrays of Python objects cannot be stored; give them a dtype, e.g. 'U20' for texts")
    if dtype.subdtype is not None:
        raise InvalidError(f"elements of type {dtype}: give the array more axes instead")
    if dtype.names is not None:
        return f"V{dtype.itemsize}", json.dumps({"numpy": repr(dtype.descr)})
    if dtype.kind in "mM":
        return f"{dtype.byteorder if dtype.byteorder == '>' else ''}i8", json.dumps({"numpy": repr(dtype.str)})
    order = ">" if dtype.str[0] == ">" else ""
    length = dtype.itemsize // 4 if dtype.kind == "U" else dtype.itemsize
    if length == 0:
        length = 1
    return f"{order}{dtype.kind}{length}", None


def _place(array: np.ndarray) -> Optional[np.ndarray]:
    """The array, if its memory can be used as it is."""
    strides = [stride for stride, size in zip(array.strides, array.shape) if size > 1]
    usable = all(stride > 0 for stride in strides) and array.size > 0
    if usable and len(strides) > 1:
        # Elements may not overlap: each axis steps over all of the faster ones.
        order = sorted(zip(array.strides, array.shape))
        reach = array.itemsize
        for stride, size in order:
            if size > 1:
                usable = usable and stride >= reach
                reach = stride * (size - 1) + reach
    return array if usable or array.size == 0 else None


class Tile(NamedTuple):
    """A chunk: the box of its elements, and the step along each axis if it has not all of them."""

    offset: tuple
    shape: tuple
    step: Optional[tuple] = None


class _Outer:
    """``array.oindex``: each axis is selected by itself."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Any:
        return self._array._get_selected(_index.orthogonal, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array._set_selected(_index.orthogonal, index, value)


class _Points:
    """``array.vindex``: arrays are broadcast, and their axes come first."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Any:
        return self._array._get_selected(_points, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array._set_selected(_points, index, value)


def _points(index: Any, shape: tuple) -> _index.Pieces:
    items = index if isinstance(index, tuple) else (index,)
    if all(isinstance(item, slice) or item is None or item is Ellipsis for item in items):
        raise SelectionError("vindex takes arrays of integers or truth values; use array[...] for slices")
    # An axis of one between them keeps the arrays' axes in front, as zarr has it.
    return _index.advanced(items, shape)


class Array:
    """An array of a filesystem. Indexing reads and writes it as it does an array of NumPy: each index is one request, one
    message to each data server, straight to or from the memory of NumPy's array. What is read is an array of its own.

    Arrays come from :func:`slabfs.open` and from containers. Threads may use one together. Pickling one gives its
    address, and the other process opens it.
    """

    __array_priority__ = 10.0

    def __init__(self, session: Session, path: str, native: Any = None, writable: bool = True) -> None:
        self._session, self._path = session, path
        self._lock = threading.Lock()
        self._reader: Any = None
        self._writer: Any = None
        self._writable = writable
        if native is not None:
            self._writer = native
        else:
            self._reader = session._native.open(path, False)
        stat = self._native().stat()
        self._ino = stat["ino"]
        self._dtype = np.dtype(stat["dtype"])
        self._stored = self._dtype
        if self._dtype.kind == "V" or (self._dtype.kind == "i" and self._dtype.itemsize == 8):
            self._dtype = _exact_dtype(session._native.tags(path), self._dtype)

    # What it is.

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self._path.rsplit("/", 1)[-1]

    @property
    def path(self) -> str:
        """Its path from the root of the filesystem."""
        return self._path

    @property
    def session(self) -> Session:
        """The session that it belongs to."""
        return self._session

    @property
    def shape(self) -> tuple:
        """The present number of elements along each axis, slowest first."""
        return tuple(self._native().dims())

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The present number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def dims(self) -> tuple:
        """The names of its axes, ``None`` for one without: the tag ``dim_names``."""
        names: list = []
        for key, _, data in self._session._native.tags(self._path):
            if key == DIM_NAMES:
                names = _names(data)
        missing = self.ndim - len(names)
        return (*names, *(None,) * missing) if missing >= 0 else tuple(names[: self.ndim])

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def max_shape(self) -> tuple:
        """The length that each axis may grow to; ``None`` for an unlimited one."""
        return tuple(self._native().stat()["max_dims"])

    @property
    def is_declared(self) -> bool:
        """Whether it was created as an array, and not as a file of bytes."""
        return self._native().stat()["declared"]

    @property
    def layout(self) -> str:
        """How it is cut into chunks: ``aligned``, ``canonical`` or ``grid:…``."""
        return self._native().stat()["layout"]

    @property
    def codec(self) -> str:
        """How its chunks are encoded: ``none``, ``shuffle+zstd:3``, …"""
        return self._native().stat()["codec"]

    @property
    def fill_value(self) -> Any:
        """The value of elements that were never written."""
        text = self._native().stat()["fill"]
        kind = self._stored.kind
        if text.startswith("0x"):
            return np.frombuffer(bytes.fromhex(text[2:]), dtype=self._dtype)[0]
        if kind == "b":
            return self._dtype.type(text not in ("0", "false"))
        if kind in "iu":
            return np.array(int(text), dtype=self._stored).view(self._dtype)[()]
        if kind in "fc":
            return self._dtype.type(complex(text) if kind == "c" else float(text))
        return np.zeros((), dtype=self._dtype)[()]

    @property
    def attrs(self) -> Attributes:
        """Its attributes: tags, which searches find."""
        return Attributes(self._session, self._path)

    @property
    def tiling(self) -> list:
        """The chunks, oldest first: offset and shape of each, in elements, and of one that has not all elements of that box the
        step along each axis, too. Where two overlap the later one counts.

        Raises:
            NotSupportedError: they are those of a grid, and too many to be listed.
        """
        tiles, complete = self._tiles()
        if not complete:
            raise NotSupportedError(f"{self._path} may have more chunks than are listed; its layout is {self.layout}")
        return [tuple(tile) if tile.step else tuple(tile[:2]) for tile in tiles]

    def _tiles(self) -> tuple:
        """The chunks, and whether all are there."""
        layout = json.loads(self._native().layout())
        size = layout["elem"]
        tiles = []
        for chunk in layout["chunks"]:
            offset, shape, step = list(chunk["offset"]), list(chunk["shape"]), chunk.get("step")
            if not layout["dims"]:
                offset, shape, step = [], [], None
            if offset:
                first, last = offset[-1] // size, -(-(offset[-1] + shape[-1]) // size)
                offset[-1], shape[-1] = first, last - first
            if step:
                # From the start of a block to that of the next, of which an axis without gaps has none.
                steps = (*step[:-1], step[-1] // size)
                step = tuple(own if 0 < own < length else 1 for own, length in zip(steps, shape))
            tiles.append(Tile(tuple(offset), tuple(shape), step))
        return tiles, layout["complete"]

    @property
    def chunks(self) -> Optional[tuple]:
        """The lengths of the chunks along each axis, as dask has them: a tuple of tuples. ``None`` if the chunks are no grid,
        not even an irregular one, or there are none."""
        shape = self.shape
        layout = self.layout
        if layout.startswith("grid:"):
            lengths = [int(length) for length in layout[5:].split(",")]
            if len(lengths) == len(shape) and all(shape):
                return tuple(
                    (length,) * (size // length) + ((size % length,) if size % length else ())
                    for length, size in zip(lengths, shape)
                )
            return None
        if layout == "canonical" or not all(shape) or not shape:
            return tuple((size,) for size in shape)
        tiles, complete = self._tiles()
        if not complete or any(tile.step for tile in tiles):
            return None
        return _grid_of([tile[:2] for tile in tiles], shape)

    # Reading and writing.

    def __getitem__(self, index: Any) -> Any:
        native = self._native()
        if self._stored is self._dtype:
            found = native.item(index, self._dtype)
            if found is not None:
                return found
        shape = native.dims()
        selected = _index.basic(index, shape)
        if selected is None:
            return self._get_pieces(_index.advanced(index, tuple(shape)), shape)
        buffer = np.empty(selected.counts, dtype=self._dtype)
        if buffer.size:
            native.read(selected.axes, buffer.view(self._stored) if self._stored is not self._dtype else buffer)
        if selected.plain:
            return buffer
        return buffer[selected.view]

    def __setitem__(self, index: Any, value: Any) -> None:
        native = self._native(write=True)
        shape = native.dims()
        selected = _index.basic(index, shape)
        if selected is None:
            self._set_pieces(_index.advanced(index, tuple(shape)), shape, value)
            return
        buffer = self._prepared(selected, value)
        if buffer.size:
            native.write(selected.axes, buffer.view(self._stored))

    def _prepared(self, selected: _index.Basic, value: Any) -> np.ndarray:
        """The value as a buffer of the selection's shape: itself, if it can be used."""
        buffer = np.empty(selected.counts, dtype=self._dtype)
        view = buffer[_as_array(selected.view)]
        if isinstance(value, np.ndarray) and value.dtype == self._dtype and value.shape == view.shape:
            usable = _place(value[_inverse(selected.view)])
            if usable is not None:
                return usable
        view[...] = value
        return buffer

    def _get_selected(self, select: Callable, index: Any) -> np.ndarray:
        shape = self._native().dims()
        return self._get_pieces(select(index, tuple(shape)), shape)

    def _set_selected(self, select: Callable, index: Any, value: Any) -> None:
        shape = self._native(write=True).dims()
        self._set_pieces(select(index, tuple(shape)), shape, value)

    def _get_pieces(self, pieces: _index.Pieces, shape: list) -> np.ndarray:
        buffer = np.empty(pieces.shape, dtype=self._dtype)
        wait_all(self._piece_transfers(pieces, shape, buffer, write=False))
        return buffer

    def _set_pieces(self, pieces: _index.Pieces, shape: list, value: Any) -> None:
        buffer = np.empty(pieces.shape, dtype=self._dtype)
        buffer[...] = value
        transfers = self._piece_transfers(pieces, shape, buffer, write=True)
        # Where elements are named twice the last value counts: one after the other.
        for transfer in transfers:
            transfer.wait()

    def _piece_transfers(self, pieces: _index.Pieces, shape: list, buffer: np.ndarray, write: bool) -> list:
        native = self._native(write=write)
        flat = buffer.view(self._stored).reshape(-1)
        make = native.write_pieces_transfer if write else native.read_pieces_transfer
        return [
            Transfer([make(rows, flat[first:last], shape)], None)
            for rows, first, last in batches(pieces.offsets, pieces.length, write)
        ]

    @property
    def oindex(self) -> _Outer:
        """Orthogonal indexing: ``a.oindex[[0, 5], [1, 2, 3]]`` has the shape (2, 3)."""
        return _Outer(self)

    @property
    def vindex(self) -> _Points:
        """Indexing of points: ``a.vindex[[0, 5], [1, 2]]`` has two elements."""
        return _Points(self)

    def read_into(self, out: np.ndarray, index: Any = ...) -> None:
        """Reads what ``index`` selects (all of it by default) into ``out``, an array of that shape, of any strides. If its dtype is
        another one, elements are converted; one that does not fit raises InvalidError.

        Raises:
            SelectionError: the index does not fit the array.
            InvalidError: ``out`` does not fit the index.
        """
        self.read_transfer(out, index).wait()

    def read_transfer(self, out: Optional[np.ndarray] = None, index: Any = ...) -> Transfer:
        """A read to be started; of a basic index. Without ``out`` the result of its ``wait`` is a new array."""
        if out is not None and not isinstance(out, np.ndarray):
            raise InvalidError(f"an array of NumPy is read into, and not {type(out).__name__}")
        native = self._native()
        shape = native.dims()
        selected = _index.basic(index, shape)
        if selected is None:
            return self._pieces_read(_index.advanced(index, tuple(shape)), shape, out)
        if out is None:
            buffer = np.empty(selected.counts, dtype=self._dtype)
            moved = [native.read_transfer(selected.axes, buffer.view(self._stored))] if buffer.size else []
            return Transfer(moved, lambda: buffer[selected.view])
        wanted = np.empty(selected.counts, dtype=np.int8)[_as_array(selected.view)].shape
        if out.shape != wanted:
            raise InvalidError(f"an array of shape {out.shape} was given to read into; the selection has {wanted}")
        if not out.flags.writeable:
            raise InvalidError("the array to read into is read-only")
        if not out.size:
            return Transfer([], lambda: out)
        dtype = None if out.dtype == self._dtype else _foreign(out.dtype, self._dtype)
        target = _place(out[_inverse(selected.view)])
        result = lambda: out  # noqa: E731
        if target is None:
            # Memory that goes backwards: by another array.
            target = np.empty(selected.counts, dtype=out.dtype)
            result = _copied(target[_as_array(selected.view)], out)
        if dtype is None and self._stored is not self._dtype:
            target = target.view(self._stored)
        return Transfer([native.read_transfer(selected.axes, target, dtype)], result)

    def _pieces_read(self, pieces: _index.Pieces, shape: list, out: Optional[np.ndarray]) -> Transfer:
        buffer = np.empty(pieces.shape, dtype=self._dtype)
        natives = [
            native for one in self._piece_transfers(pieces, shape, buffer, write=False) for native in one._natives
        ]
        made = Transfer(natives, lambda: buffer)
        if out is None:
            return made
        if out.shape != buffer.shape:
            raise InvalidError(
                f"an array of shape {out.shape} was given to read into; the selection has {buffer.shape}"
            )
        if out.dtype != self._dtype:
            raise InvalidError(
                f"an array of {out.dtype} was given to read elements of {self._dtype} into by an index of arrays"
            )
        return Transfer(natives, _copied(buffer, out))

    def write_transfer(self, value: Any, index: Any = ...) -> Transfer:
        """A write of a basic index, to be started. ``value`` is broadcast; an array of the selection's shape and dtype is used as it is,
        and must not change before the end."""
        native = self._native(write=True)
        selected = _index.basic(index, native.dims())
        if selected is None:
            raise NotSupportedError(
                "transfers write integers and slices; use array[...] = value for arrays of integers"
            )
        buffer = self._prepared(selected, value)
        moved = [native.write_transfer(selected.axes, buffer.view(self._stored))] if buffer.size else []
        return Transfer(moved, None)

    # Its length.

    def resize(self, shape: Any) -> None:
        """Changes the shape: each axis grows up to its ``max_shape``, or shrinks, and what is outside is gone. Other users see it.

        Raises:
            InvalidError: an axis may not have that length.
        """
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        self._native(write=True).set_dims([int(length) for length in shape])

    def append(self, data: Any, axis: int = 0) -> tuple:
        """Appends along an axis that may grow, and returns the new shape. Programs that append to one array at the same time have to
        agree on who does so when: use ``resize`` once, and write blocks.

        Raises:
            InvalidError: the other axes differ, or the axis may not grow.
        """
        # What cannot be converted must not leave a longer array.
        data = np.asarray(data).astype(self._dtype, copy=False)
        shape = list(self.shape)
        if data.ndim != len(shape):
            raise InvalidError(f"data of {data.ndim} axes cannot be appended to an array of {len(shape)}")
        axis = axis + len(shape) if axis < 0 else axis
        if not 0 <= axis < len(shape):
            raise InvalidError(f"axis {axis} of an array of {len(shape)} axes")
        for other, (own, given) in enumerate(zip(shape, data.shape)):
            if other != axis and own != given:
                raise InvalidError(f"axis {other} has {own} elements, and the data {given}")
        before = shape[axis]
        shape[axis] = before + data.shape[axis]
        self.resize(shape)
        self[(slice(None),) * axis + (slice(before, None),)] = data
        return tuple(shape)

    # Its end.

    def flush(self) -> None:
        """Sends what was written through this array to the servers."""
        if self._writer is not None:
            self._writer.flush()

    def sync(self) -> None:
        """Returns when everything written to the array is on the servers' disks."""
        self._native(write=self._writer is not None).sync()

    def close(self) -> None:
        """Closes it; what was written is sent to the servers. It is not needed: the session's end does it, too."""
        with self._lock:
            handles = [self._reader, self._writer]
        for handle in handles:
            if handle is not None:
                handle.close()

    def _native(self, write: bool = False) -> Any:
        """The open object: the one for writing if there is one."""
        if self._writer is not None:
            return self._writer
        if not write:
            return self._reader
        with self._lock:
            if self._writer is None:
                self._writer = self._opened_again()
        return self._writer

    def _opened_again(self) -> Any:
        """Opens the path for writing; another array may have taken it."""
        try:
            native = self._session._native.open(self._path, True)
        except NotFoundError:
            native = None
        if native is None or native.stat()["ino"] != self._ino:
            if native is not None:
                native.close()
            raise StaleError(
                f"{self._path} was removed, renamed or replaced since this array was opened; open it again from its container"
            )
        return native

    # What other libraries ask for.

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of an array without axes")
        return shape[0]

    def __iter__(self) -> Iterator:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the elements are on servers: an array of them is always a copy")
        data = np.asarray(self[...])
        return data if dtype is None else data.astype(dtype, copy=False)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __reduce__(self) -> tuple:
        return _reopened, (self._session._address(), self._path)

    def __repr__(self) -> str:
        return f"<slabfs.Array {self._path!r} shape={self.shape} dtype={self._dtype.str}>"

    def _repr_html_(self) -> str:
        return _html.array(self)


def _exact_dtype(tags: list, stored: np.dtype) -> np.dtype:
    """The dtype that the tag of an array names, if it fits."""
    for key, _, data in tags:
        if key != DTYPE:
            continue
        try:
            named = json.loads(data).get("numpy")
            # Members without a name are padding.
            dtype = stored if named is None else np.lib.format.descr_to_dtype(ast.literal_eval(named))
        except (ValueError, SyntaxError, TypeError, AttributeError):
            return stored
        return dtype if dtype.itemsize == stored.itemsize and not dtype.hasobject else stored
    return stored


def _names(data: bytes) -> list:
    """The names in a tag ``dim_names``; none if it is none."""
    try:
        names = json.loads(data)
    except ValueError:
        return []
    if not isinstance(names, list):
        return []
    return [name if isinstance(name, str) and name else None for name in names]


def _inverse(view: tuple) -> tuple:
    """The index that makes the buffer's shape of the result's, where ``view`` makes the result's of the buffer's."""
    # With an ellipsis the result is an array, also one without axes.
    axes = (item for item in view if item is not Ellipsis)
    return (*(item if isinstance(item, slice) else None if item is not None else 0 for item in axes), ...)


def _as_array(view: tuple) -> tuple:
    return view if Ellipsis in view else (*view, ...)


def _copied(source: np.ndarray, out: np.ndarray) -> Callable[[], np.ndarray]:
    def result() -> np.ndarray:
        out[...] = source
        return out

    return result


def _foreign(dtype: np.dtype, own: np.dtype) -> str:
    if dtype.kind in "mM" or own.kind in "mM":
        raise InvalidError(f"elements of {own} are not converted to {dtype}; read them, and use astype")
    return stored_dtype(dtype)[0]


def _reopened(address: tuple, path: str) -> Array:
    from ._session import reconnected

    return Array(reconnected(address), path)


def _grid_of(tiles: list, shape: tuple) -> Optional[tuple]:
    """The lengths along each axis, if these boxes are the cells of a grid of these lengths."""
    edges = [{0, size} for size in shape]
    for offset, lengths in tiles:
        for own, at, length in zip(edges, offset, lengths):
            own.update((at, at + length))
    cuts = [sorted(edge for edge in own if edge <= size) for own, size in zip(edges, shape)]
    cells = 1
    for own in cuts:
        cells *= len(own) - 1
    inside = {tile for tile in tiles if all(tile[1])}
    if not inside or cells > 4 * len(inside) or cells > 1_000_000:
        return None
    # Each chunk is a cell: then the cuts are those of the chunks.
    spans = [{at: length for at, length in zip(own, np.diff(own))} for own in cuts]
    for offset, lengths in inside:
        for own, at, length in zip(spans, offset, lengths):
            if own.get(at) != length:
                return None
    return tuple(tuple(int(length) for length in np.diff(own)) for own in cuts)
