"""Containers: mappings of names to arrays and containers."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

import numpy as np

from . import _html
from ._array import DIM_NAMES, DTYPE, Array, stored_dtype
from ._errors import ExistsError, InvalidError, IsAContainerError, NotAContainerError, NotFoundError
from ._tags import Attributes, encoded

if TYPE_CHECKING:
    from ._session import Session


def joined(path: str, name: Any) -> str:
    """A path below another one."""
    if not isinstance(name, (str, bytes)) and not hasattr(name, "__fspath__"):
        raise NotFoundError(f"{name!r} is no name; give a text")
    text = os.fsdecode(name).strip("/")
    return f"{path}/{text}" if path and text else path or text


class Container(Mapping):
    """A container (a directory) of a filesystem: a mapping of names to arrays and containers. Names may have slashes:
    ``container["run1/temp"]``."""

    def __init__(self, session: Session, path: str) -> None:
        self._session, self._path = session, path

    @property
    def name(self) -> str:
        """The last part of its path; empty for the root."""
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
    def attrs(self) -> Attributes:
        """Its attributes: tags, which searches find."""
        return Attributes(self._session, self._path)

    def __getitem__(self, name: str) -> Union[Array, Container]:
        return self._session._item(joined(self._path, name))

    def array(self, name: str) -> Array:
        """The array of a name.

        Raises:
            NotFoundError: there is none.
            IsAContainerError: it is a container.
        """
        item = self[name]
        if isinstance(item, Array):
            return item
        raise IsAContainerError(f"{item.path} is a container; use container() for it")

    def container(self, name: str) -> Container:
        """The container of a name.

        Raises:
            NotFoundError: there is none.
            NotAContainerError: it is an array.
        """
        item = self[name]
        if isinstance(item, Container):
            return item
        raise NotAContainerError(f"{item.path} is an array; use array() for it")

    def __iter__(self) -> Iterator[str]:
        return (name for name, kind in self._session._native.list(self._path) if kind != "other")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        try:
            return self._session._native.stat(joined(self._path, name))["kind"] != "other"
        except (NotFoundError, NotAContainerError):
            return False

    def __setitem__(self, name: str, value: Any) -> None:
        """Creates an array with these elements; ``container[name][...] = value`` writes to one that exists."""
        self.create_array(name, data=value)

    def __delitem__(self, name: str) -> None:
        """Removes an array, or an empty container; see :meth:`remove`."""
        self.remove(name)

    def create_array(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        data: Any = None,
        *,
        max_shape: Any = None,
        fill_value: Any = None,
        layout: Optional[str] = None,
        codec: Optional[str] = None,
        placement: Optional[str] = None,
        dims: Optional[Sequence] = None,
        attrs: Optional[Mapping] = None,
    ) -> Array:
        """Creates an array, of fill, or of the elements of ``data``.

        Args:
            name: its name below this container, whose other parts must exist.
            shape: elements along each axis, slowest first; by default that of ``data``.
            dtype: NumPy's; by default that of ``data``, or ``float64``.
            data: its elements, broadcast to the shape.
            max_shape: the length that each axis may grow to, ``None`` for an unlimited one; by default the shape.
            fill_value: the value of elements that are not written; 0 by default.
            layout: ``"aligned"`` (a chunk for each write, the default), ``"canonical"``, or ``"grid:100,100"``.
            codec: how chunks are encoded, e.g. ``"shuffle+zstd:3"``.
            placement: which data server gets a chunk: ``"object"``, ``"region"``, ``"dynamic"`` or ``"local"``.
            dims: the names of the axes, ``None`` for one without.
            attrs: attributes.

        Raises:
            ExistsError: the name exists.
            InvalidError: a property makes no sense; the text says which.
        """
        if data is not None:
            data = np.asarray(data)
        if shape is None:
            if data is None:
                raise InvalidError("an array needs a shape, or data")
            shape = data.shape
        shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(length) for length in shape)
        if dtype is None:
            dtype = np.dtype(float) if data is None else data.dtype
        dtype = np.dtype(dtype)
        if dtype.kind in "SU" and dtype.itemsize == 0:
            dtype = np.asarray(data, dtype=dtype).dtype if data is not None else np.dtype(f"{dtype.kind}1")
        if data is not None:
            # What does not fit must not leave an array.
            data = np.broadcast_to(data.astype(dtype, copy=False), shape)
        stored, exact = stored_dtype(dtype)
        properties = [("dims", _dims(shape)), ("dtype", stored)]
        if max_shape is not None:
            limits = (max_shape,) if isinstance(max_shape, (int, np.integer)) else tuple(max_shape)
            properties.append(("max_dims", _dims(limits)))
        if fill_value is not None:
            properties.append(("fill", _fill(fill_value, dtype, stored)))
        for property_name, text in (("layout", layout), ("codec", codec), ("placement", placement)):
            if text is not None:
                properties.append((property_name, text))
        tags = [encoded(key, value) for key, value in (attrs or {}).items()]
        if dims is not None:
            if len(dims) != len(shape):
                raise InvalidError(f"{len(dims)} names for {len(shape)} axes")
            tags.append((DIM_NAMES, "string[]", json.dumps([name or "" for name in dims]).encode()))
        if exact is not None:
            tags.append((DTYPE, "text", exact.encode()))
        path = joined(self._path, name)
        if path == self._path:
            raise InvalidError("an array needs a name")
        native = self._session._native.create(path, properties, tags)
        made = Array(self._session, path, native)
        if data is not None:
            made[...] = data
        return made

    def create_container(self, name: str) -> Container:
        """Creates a container; the one above it must exist.

        Raises:
            ExistsError: the name exists.
        """
        path = joined(self._path, name)
        self._session._native.create_container(path)
        return Container(self._session, path)

    def require_container(self, name: str) -> Container:
        """The container of a name, created if it is missing, with all above it.

        Raises:
            NotAContainerError: the name, or one above it, is an array.
        """
        at = self._path
        for part in joined("", name).split("/"):
            at = joined(at, part)
            with contextlib.suppress(ExistsError):
                self._session._native.create_container(at)
        found = self._session._item(at)
        if not isinstance(found, Container):
            raise NotAContainerError(f"{at} is an array")
        return found

    def remove(self, name: str, recursive: bool = False) -> None:
        """Removes an array, or a container: an empty one, or with ``recursive`` all below it, too.

        Raises:
            NotFoundError: there is no such name.
            NotEmptyError: the container has entries.
        """
        path = joined(self._path, name)
        if recursive and self._session._native.stat(path)["kind"] == "container":
            for entry, _ in self._session._native.list(path):
                Container(self._session, path).remove(entry, recursive=True)
        self._session._native.remove(path)

    def rename(self, old: str, new: str, replace: bool = False) -> None:
        """Renames an entry; an existing one of the new name is replaced only if that is said.

        Raises:
            ExistsError: the new name exists.
        """
        self._session._native.rename(joined(self._path, old), joined(self._path, new), replace)

    def find(self, query: str, *, limit: Optional[int] = None, sort: Optional[str] = None) -> list:
        """The arrays and containers below this one whose attributes match, e.g. ``find("step < 10 and project = climate")``.

        Args:
            query: in the language of docs/search.md.
            limit: at most so many.
            sort: the attribute, or ``path``, ``size``, ``mtime``, by which they are sorted.

        Raises:
            InvalidError: the query cannot be parsed; the text points at the place.
        """
        found = self._session._native.find(query, self._path or None, limit, sort)
        items: list = []
        for path, kind, _ in found:
            text = str(path).strip("/")
            if kind == "object":
                items.append(Array(self._session, text))
            elif kind == "container":
                items.append(Container(self._session, text))
        return items

    def count(self, query: str) -> int:
        """The number of entries below this one that match a query."""
        return self._session._native.count(query, self._path or None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Container) and (self._session, self._path) == (other._session, other._path)

    def __hash__(self) -> int:
        return hash((id(self._session), self._path))

    def __reduce__(self) -> tuple:
        return _reopened, (self._session._address(), self._path)

    def __dask_tokenize__(self) -> str:
        # Its arrays may have changed since the last time, so it is never the same to dask.
        return uuid.uuid4().hex

    def __repr__(self) -> str:
        return f"<slabfs.Container {'/' + self._path!r}>"

    def _repr_html_(self) -> str:
        return _html.container(self)


def _reopened(address: tuple, path: str) -> Container:
    from ._session import reconnected

    return Container(reconnected(address), path)


def _dims(shape: tuple) -> str:
    return ",".join("unlimited" if length is None else str(int(length)) for length in shape)


def _fill(value: Any, dtype: np.dtype, stored: str) -> str:
    element = np.array(value, dtype=dtype)
    if element.shape != ():
        raise InvalidError("the fill value is one element")
    if dtype.kind in "iu":
        return str(int(element))
    if dtype.kind == "b":
        return "1" if element else "0"
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return repr(float(element))
    return "0x" + element.astype(dtype.newbyteorder("<") if dtype.kind in "mMc" else dtype).tobytes().hex()
