"""xarray's backend: ``xr.open_dataset("slab://HOST:PORT/run1", engine="slabfs")``, or a path on a mount; and
``ds.slabfs.to_slabfs(target)``.

A container is a data set, its arrays are variables, their tags attributes; what is no array is left out. xarray decodes
and encodes by the CF conventions. Variables are lazy: an index of one is one request, and blocks of dask are those that
were written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Optional, Union

import numpy as np
import xarray as xr
from xarray.backends import AbstractDataStore, BackendArray, BackendEntrypoint, common
from xarray.backends.store import StoreBackendEntrypoint
from xarray.coding import strings
from xarray.core import indexing
from xarray.core.utils import FrozenDict, close_on_error

from . import _session
from ._array import DIM_NAMES, Array, _exact_dtype
from ._container import Container, joined
from ._errors import ExistsError, InvalidError, NotFoundError
from ._tags import decoded, is_reserved

#: Gives objects of Python a dtype. Before 2025 the encoder did so itself.
_typed = getattr(common, "ensure_dtype_not_object", lambda var, name=None: var)
#: The tag of a container that has the dimensions of an imported group (docs/data-model.md).
_DIMS = "_slabfs_dims"
#: Requests for several variables that are made at once.
_TOGETHER = 8
#: Bytes of a variable that is not written at the same time as others: it may have to be read first.
_LARGE = 1 << 20


class _Lazy(BackendArray):
    """An array that is opened when it is indexed for the first time, and read then."""

    def __init__(self, container: Container, name: str, shape: tuple, dtype: np.dtype) -> None:
        self.container, self.name = container, name
        self.shape, self.dtype = shape, dtype
        self._opened: Optional[Array] = None

    @property
    def source(self) -> Array:
        """The array."""
        found = self._opened
        if found is None:
            # Two threads may open it; one handle too many does no harm.
            found = self._opened = Array(self.container.session, joined(self.container.path, self.name))
        return found

    def __reduce__(self) -> tuple:
        return _Lazy, (self.container, self.name, self.shape, self.dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        if isinstance(key, indexing.VectorizedIndexer):
            method = self._points
        elif isinstance(key, indexing.OuterIndexer):
            method = self._outer
        else:
            method = self._basic
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.VECTORIZED, method)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """The same in a thread, so that many variables are read at once."""
        import asyncio

        return await asyncio.to_thread(self.__getitem__, key)

    def _basic(self, key: tuple) -> Any:
        return self.source[key]

    def _outer(self, key: tuple) -> Any:
        return self.source.oindex[key]

    def _points(self, key: tuple) -> Any:
        return self.source[key]


def _located(target: Any, options: Optional[Mapping] = None) -> Container:
    if isinstance(target, Container):
        return target
    found = _session.open(target, **(options or {}))
    if isinstance(found, Container):
        return found
    raise InvalidError(f"{target} is an array; a data set is a container")


class SlabfsStore(AbstractDataStore):
    """A container as a data set."""

    def __init__(self, container: Container) -> None:
        self.container = container

    def get_attrs(self) -> Mapping:
        """The container's attributes."""
        return FrozenDict(self.container.attrs.asdict())

    def get_encoding(self) -> Mapping:
        """The dimensions that were unlimited in the file that was imported."""
        for key, kind, data in self.container.session._native.tags(self.container.path):
            if key == _DIMS and kind in ("string[]", "list"):
                named = [str(one).rpartition("=") for one in json.loads(data)]
                return {"unlimited_dims": {name for name, _, size in named if size == "unlimited"}}
        return {}

    def get_dimensions(self) -> Mapping:
        """Lengths by names."""
        return FrozenDict(
            {name: size for one in self.get_variables().values() for name, size in zip(one.dims, one.shape)}
        )

    def get_variables(self) -> Mapping:
        """The arrays of the container."""
        listed = self.container.session._native.list(self.container.path)
        names = [name for name, kind in listed if kind == "object"]
        found = _together(self._variable, names)
        return FrozenDict({name: variable for name, variable in zip(names, found) if variable is not None})

    def _variable(self, name: str) -> Optional[xr.Variable]:
        """The variable of an array, by two requests; ``None`` for a file of bytes."""
        native, path = self.container.session._native, joined(self.container.path, name)
        stat = native.stat(path)
        if not stat.get("declared"):
            return None
        tags = native.tags(path)
        shape, stored = tuple(stat["dims"]), np.dtype(stat["dtype"])
        dtype = _exact_dtype(tags, stored)
        attrs, names = {}, []
        for key, kind, data in tags:
            if key == DIM_NAMES:
                names = json.loads(data)
            elif not is_reserved(key):
                attrs[key] = decoded(kind, data)
        names = [*names, *[""] * len(shape)][: len(shape)]
        dims = tuple(name or f"dim_{axis}_{size}" for axis, (name, size) in enumerate(zip(names, shape)))
        lazy = _Lazy(self.container, name, shape, dtype)
        # The fill of an array has no meaning, unless it was chosen.
        if dtype.kind in "iufc" and "_FillValue" not in attrs and stat["fill"] not in ("0", "0.0"):
            fill = dtype.type(stat["fill"]) if dtype.kind in "iuf" and stat["fill"][:2] != "0x" else None
            fill = lazy.source.fill_value if fill is None else fill
            if fill != 0:
                attrs["_FillValue"] = fill
        encoding = {"codec": stat["codec"], "layout": stat["layout"], "preferred_chunks": _Chunks(lazy, dims)}
        return xr.Variable(dims, indexing.LazilyIndexedArray(lazy), attrs, encoding)


class _Chunks(Mapping):
    """The lengths of an array's chunks by dimensions; they are asked for when dask is to have them."""

    def __init__(self, lazy: _Lazy, dims: tuple) -> None:
        self._lazy, self._dims = lazy, dims
        self._lengths: Optional[dict] = None

    def _asked(self) -> dict:
        if self._lengths is None:
            self._lengths = dict(zip(self._dims, self._lazy.source.chunks or ()))
        return self._lengths

    def __getitem__(self, dim: str) -> tuple:
        return self._asked()[dim]

    def __iter__(self) -> Iterator:
        return iter(self._asked())

    def __len__(self) -> int:
        return len(self._asked())

    def __deepcopy__(self, _: dict) -> _Chunks:
        return self

    def __repr__(self) -> str:
        return repr(self._asked())


class SlabfsBackend(BackendEntrypoint):
    """The engine ``slabfs``."""

    description = "Open containers of slabfs, by slab://HOST:PORT/PATH or a path on a mount"
    url = ""
    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "use_cftime",
        "decode_timedelta",
        "group",
        "storage_options",
    )

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether this is a container: an address, or a directory on a mount."""
        if isinstance(filename_or_obj, Container):
            return True
        if not isinstance(filename_or_obj, (str, os.PathLike)):
            return False
        text = os.fspath(filename_or_obj)
        if isinstance(text, bytes):
            return False
        if text.startswith("slab://"):
            return True
        if not os.path.isdir(text):
            return False
        try:
            _session._split(text)
        except (InvalidError, NotFoundError):
            return False
        return True

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: Any,
        *,
        mask_and_scale: Any = True,
        decode_times: Any = True,
        concat_characters: Any = True,
        decode_coords: Any = True,
        drop_variables: Any = None,
        use_cftime: Any = None,
        decode_timedelta: Any = None,
        group: Optional[str] = None,
        storage_options: Optional[Mapping] = None,
    ) -> xr.Dataset:
        """Opens a container."""
        container = _located(filename_or_obj, storage_options)
        if group and group.strip("/"):
            container = container.container(group)
        store = SlabfsStore(container)
        with close_on_error(store):
            return StoreBackendEntrypoint().open_dataset(
                store,
                mask_and_scale=mask_and_scale,
                decode_times=decode_times,
                concat_characters=concat_characters,
                decode_coords=decode_coords,
                drop_variables=drop_variables,
                use_cftime=use_cftime,
                decode_timedelta=decode_timedelta,
            )

    def open_groups_as_dict(self, filename_or_obj: Any, **options: Any) -> dict:
        """Opens a container and all below it."""
        root = _located(filename_or_obj, options.pop("storage_options", None))
        group = options.pop("group", None)
        if group and group.strip("/"):
            root = root.container(group)
        groups = {}
        for path, container in _walk(root, "/"):
            groups[path] = self.open_dataset(container, **options)
        return groups

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Opens a container and all below it as a tree."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _walk(container: Container, path: str) -> Iterable:
    yield path, container
    for name, kind in container.session._native.list(container.path):
        if kind == "container":
            yield from _walk(container.container(name), f"{path.rstrip('/')}/{name}")


@xr.register_dataset_accessor("slabfs")
class SlabfsAccessor:
    """``ds.slabfs``: writing a data set."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def to_slabfs(
        self,
        target: Union[str, os.PathLike, Container],
        *,
        mode: str = "w-",
        region: Union[str, Mapping, None] = None,
        append_dim: Optional[str] = None,
        encoding: Optional[Mapping] = None,
        storage_options: Optional[Mapping] = None,
        compute: bool = True,
    ) -> Any:
        """Writes the data set to a container. Each block of dask is a write of its own, so a chunk of its shape; several
        processes may write different regions at once.

        Args:
            target: a container, ``slab://HOST:PORT/PATH``, or a path on a mount.
            mode: ``"w-"``: create it, and fail if it exists; ``"w"``: replace the variables that it has; ``"a"``: add
                variables, and with ``append_dim`` records; ``"r+"``: write to what exists.
            region: where to write in variables that exist: a mapping of dimensions to slices, or ``"auto"``, which
                finds the place by the coordinates.
            append_dim: the dimension along which existing variables grow.
            encoding: for each variable ``codec``, ``layout``, ``placement``, and what xarray's conventions know:
                ``dtype``, ``scale_factor``, ``_FillValue``, ``units``, …
            storage_options: those of :func:`slabfs.connect`.
            compute: with ``False`` the result is a ``dask.delayed.Delayed`` that writes the data.

        Raises:
            ExistsError: the container exists, in mode ``w-``.
            InvalidError: the data set does not fit what exists.
        """
        if mode not in ("w-", "w", "a", "r+"):
            raise InvalidError(f"mode {mode!r}; give 'w-', 'w', 'a' or 'r+'")
        if region is not None and append_dim is not None:
            raise InvalidError("give a region or append_dim, not both")
        dataset = self._dataset
        if region is not None or mode == "r+":
            container = _located(target, storage_options)
            place = _region(dataset, container, region or {})
            return _store(_pieces_of_region(dataset, container, place), compute)
        if append_dim is not None:
            container = _located(target, storage_options)
            return _store(_append(dataset, container, append_dim), compute)
        container = _made(target, mode, storage_options)
        return _store(_create(dataset, container, mode, encoding or {}), compute)


def _made(target: Any, mode: str, options: Optional[Mapping]) -> Container:
    """The container to write to, created if it is missing."""
    if isinstance(target, Container):
        container = target
        if mode == "w-" and len(container):
            raise ExistsError(f"{container.path or 'the root'} has entries; use mode='a' or mode='w'")
        return container
    try:
        found = _located(target, options)
    except NotFoundError:
        text = os.fspath(target).rstrip("/")
        parent, _, name = text.rpartition("/")
        above = _session.open(parent or ("/" if text.startswith("/") else "."), **(options or {}))
        if not isinstance(above, Container):
            raise InvalidError(f"{parent} is no container") from None
        return above.create_container(name)
    if mode == "w-" and len(found):
        raise ExistsError(f"{target} exists; use mode='a' to add to it, or mode='w' to replace its variables")
    return found


#: Keys of a variable's encoding that are properties of its array.
_PROPERTIES = ("codec", "layout", "placement")
#: Those of the CF conventions. What else a variable that was read from a file has, e.g. ``zlib``, is of that format.
_CONVENTIONS = (
    *("dtype", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "_Encoding"),
    *("units", "calendar", "coordinates", *xr.conventions.CF_RELATED_DATA),
)
#: The name that xarray gives to the variable of the name ``None``.
_NAMELESS = "__values__"


def _encoded(dataset: xr.Dataset) -> tuple:
    """Variables and attributes by the CF conventions."""
    for name in dataset.variables:
        _check_name(name)
    variables, attrs = xr.conventions.encode_dataset_coordinates(dataset)
    for variable in variables.values():
        encoding = {key: value for key, value in variable.encoding.items() if key in _CONVENTIONS}
        same = encoding.get("dtype") in (None, variable.dtype)
        if variable.dtype.kind == "f" and same:
            # NaN marks missing elements by itself; a fill value would make reads compare each element with it.
            encoding.setdefault("_FillValue", None)
        if variable.dtype.kind == "b":
            # Arrays have truth values. Without a dtype xarray would write integers.
            encoding.setdefault("dtype", variable.dtype)
        variable.encoding = encoding
    encoded, attrs = xr.conventions.cf_encoder(variables, attrs)
    texts = strings.EncodedStringCoder(allows_unicode=True)
    return {
        _NAMELESS if name is None else name: _sized(texts.encode(_typed(variable, name), name=name))
        for name, variable in encoded.items()
    }, attrs


def _check_name(name: Any) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"the name of a variable is a string or None, and not {name!r}")
    if not name:
        raise InvalidError(f"the name of a variable is {name!r}; a string must be length 1 or greater")
    if "/" in name:
        raise InvalidError(f"the name of a variable, {name!r}, has a slash; rename it, or write a tree to containers")


def _sized(variable: xr.Variable) -> xr.Variable:
    """Texts of any length as texts of the longest one's."""
    kind = strings.check_vlen_dtype(variable.dtype)
    if kind is not None:
        dtype = np.dtype("S" if kind is bytes else "U")
        variable = xr.Variable(variable.dims, np.asarray(variable.values, dtype=dtype), variable.attrs)
    if variable.dtype == "S1" and variable.dims:
        # Of S1 xarray would make texts along the last dimension when it reads them.
        variable = variable.astype("S2")
    return variable


def _create(dataset: xr.Dataset, container: Container, mode: str, encoding: Mapping) -> list:
    unknown = set(encoding) - set(dataset.variables)
    if unknown:
        raise NotFoundError(f"encoding for variables that are not there: {sorted(map(str, unknown))}")
    there = set(container)
    both = there & set(dataset.variables) if mode == "a" else set()
    if both & set(encoding):
        raise InvalidError(f"{sorted(map(str, both & set(encoding)))} exist, so their encoding cannot be another one")
    changed = _as_there(dataset, container) if both else dataset.copy(deep=False)
    properties = {}
    for name, given in encoding.items():
        if not isinstance(given, Mapping):
            raise InvalidError(f"the encoding of {name} must be castable to a dictionary; it is {given!r}")
        foreign = set(given) - set(_PROPERTIES) - set(_CONVENTIONS)
        if foreign:
            raise InvalidError(
                f"unexpected encoding of {name}: {sorted(map(str, foreign))}; give {', '.join(_PROPERTIES)}, or what "
                f"the conventions have: {', '.join(_CONVENTIONS[:9])}, …"
            )
        properties[name] = {key: given[key] for key in _PROPERTIES if key in given}
        rest = {key: value for key, value in given.items() if key not in _PROPERTIES}
        changed[name].encoding = {**changed[name].encoding, **rest}
    variables, attrs = _encoded(changed)
    unlimited = dataset.encoding.get("unlimited_dims", ())
    unlimited = {unlimited} if isinstance(unlimited, str) else set(unlimited)

    def made(name: str) -> tuple:
        variable = variables[name]
        if name in there:
            if mode == "a":
                array = container.array(name)
                _fits(name, variable, array, {})
                array.attrs.update({key: value for key, value in variable.attrs.items() if key != "_FillValue"})
                return variable, array, (slice(None),) * variable.ndim
            container.remove(name, recursive=True)
        own = dict(variable.attrs)
        fill = own.pop("_FillValue", None)
        # It is an attribute as well, if it looks like an array's own.
        if fill is not None and (variable.dtype.kind not in "iufc" or fill == 0):
            own["_FillValue"] = variable.dtype.type(fill)
        # Of an aligned array each axis may grow at no cost: records are appended later.
        limits = tuple(
            None if dim in unlimited or axis == 0 else size for axis, (dim, size) in enumerate(variable.sizes.items())
        )
        array = container.create_array(
            name,
            shape=variable.shape,
            dtype=variable.dtype,
            max_shape=limits if limits else None,
            fill_value=fill,
            dims=variable.dims,
            attrs=own,
            **properties.get(name, {}),
        )
        return variable, array, (slice(None),) * variable.ndim

    writes = _together(made, variables)
    if attrs:
        container.attrs.update(attrs)
    return writes


def _together(function: Callable, items: Iterable) -> list:
    """The results of a function, which waits for servers, for each item."""
    items = list(items)
    if len(items) < _TOGETHER:
        return [function(item) for item in items]
    with ThreadPoolExecutor(_TOGETHER) as pool:
        return list(pool.map(function, items))


def _fits(name: str, variable: xr.Variable, array: Array, free: Mapping) -> None:
    dims = tuple(dim or "" for dim in array.dims)
    if dims != variable.dims:
        raise InvalidError(f"{name} has the dimensions {dims} there, and {variable.dims} here")
    for dim, own, given in zip(dims, array.shape, variable.shape):
        if dim not in free and own != given:
            raise InvalidError(f"{name}: {dim} has {own} elements there, and {given} here")
    given, own = variable.dtype, array.dtype
    if given.kind in "SU" and given.kind == own.kind and given.itemsize > own.itemsize:
        raise InvalidError(f"{name} has texts of type {own} there, and longer ones, {given}, here")


def _as_there(dataset: xr.Dataset, container: Container) -> xr.Dataset:
    """The data set with the encoding of what exists, so that times have the same units."""
    there = SlabfsBackend().open_dataset(container)
    changed = dataset.copy(deep=False)
    for name in changed.variables:
        if name in there.variables:
            encoding = dict(there[name].encoding)
            if np.dtype(encoding.get("dtype", float)).kind in "SU":
                # Texts are not cut to the length that is there.
                encoding["dtype"] = "S1" if "_Encoding" in encoding else None
            changed[name].encoding = {key: value for key, value in encoding.items() if value is not None}
    return changed


def _append(dataset: xr.Dataset, container: Container, dim: str) -> list:
    if dim not in dataset.sizes:
        raise InvalidError(f"the data set has no dimension {dim!r}; it has {sorted(map(str, dataset.sizes))}")
    variables, _ = _encoded(_as_there(dataset, container))
    writes, grown = [], []
    for name, variable in variables.items():
        if name not in container:
            raise InvalidError(f"{container.path} has no variable {name}; mode='a' without append_dim adds it")
        array = container.array(name)
        if dim not in variable.dims:
            continue
        _fits(name, variable, array, {dim: None})
        axis = variable.dims.index(dim)
        before = array.shape[axis]
        grown.append((array, axis, before + variable.shape[axis]))
        place = (slice(None),) * axis + (slice(before, before + variable.shape[axis]),)
        writes.append((variable, array, place + (slice(None),) * (variable.ndim - axis - 1)))
    for array, axis, length in grown:
        shape = list(array.shape)
        shape[axis] = length
        array.resize(shape)
    return writes


def _region(dataset: xr.Dataset, container: Container, region: Union[str, Mapping]) -> dict:
    if region == "auto":
        region = {dim: "auto" for dim in dataset.dims}
    if not isinstance(region, Mapping):
        raise InvalidError("a region is a mapping of dimensions to slices, or 'auto'")
    unknown = set(region) - set(dataset.dims)
    if unknown:
        raise InvalidError(f"the region has dimensions that the data set has not: {sorted(map(str, unknown))}")
    place = {}
    there = None
    for dim, span in region.items():
        if span != "auto":
            if not isinstance(span, slice) or span.step not in (None, 1):
                raise InvalidError(f"the region of {dim} is no slice of step 1: {span}")
            place[dim] = span
            continue
        if dim not in dataset.coords:
            raise InvalidError(f"{dim} has no coordinate by which its region is found; give a slice")
        if there is None:
            there = SlabfsBackend().open_dataset(container)
        index = there[dim].to_index()
        at = index.get_indexer(dataset[dim].to_index())
        if (at < 0).any():
            raise InvalidError(f"not all values of {dim} are in the data set there")
        if len(at) > 1 and (np.diff(at) != 1).any():
            raise InvalidError(f"the values of {dim} are not one after the other in the data set there")
        place[dim] = slice(int(at[0]), int(at[-1]) + 1) if len(at) else slice(0, 0)
    return place


def _pieces_of_region(dataset: xr.Dataset, container: Container, place: Mapping) -> list:
    variables, _ = _encoded(_as_there(dataset, container))
    writes = []
    for name, variable in variables.items():
        if name not in container:
            raise InvalidError(f"{container.path} has no variable {name}; a region is of variables that exist")
        if place and not set(variable.dims) & set(place):
            if name in dataset.coords:
                continue
            raise InvalidError(f"{name} has no dimension of the region; drop it from the data set")
        array = container.array(name)
        _fits(name, variable, array, place)
        spans = []
        for dim, own, given in zip(variable.dims, array.shape, variable.shape):
            start, stop, _ = place.get(dim, slice(None)).indices(own)
            if stop - start != given:
                raise InvalidError(f"{name}: the region has {stop - start} elements along {dim}, and the data {given}")
            spans.append(slice(start, stop))
        writes.append((variable, array, tuple(spans)))
    return writes


def _store(writes: list, compute: bool) -> Any:
    """Writes the data: that of NumPy now, blocks of dask together."""
    sources, targets, places, small = [], [], [], []
    for variable, array, place in writes:
        if hasattr(variable.data, "dask"):
            sources.append(variable.data)
            targets.append(array)
            places.append(place)
        elif variable.nbytes >= _LARGE:
            array[place] = variable.values
        elif variable.size:
            small.append((variable, array, place))
    _together(_write, small)
    sessions = {id(array.session): array.session for _, array, _ in writes}
    if not sources:
        for session in sessions.values():
            session.sync()
        return None
    import dask
    import dask.array

    stored = dask.array.store(sources, targets, regions=places, lock=False, compute=False)
    if not compute:
        return dask.delayed(_done)(stored)
    dask.compute(stored)
    for session in sessions.values():
        session.sync()
    return None


def _write(piece: tuple) -> None:
    variable, array, place = piece
    array[place] = variable.values


def _done(*_: Any) -> None:
    """The end of a write that was put off."""
