"""xarray's backend: ``xr.open_dataset("slab://HOST:PORT/run1", engine="slabfs")``, or a path on a mount; and
``ds.slabfs.to_slabfs(target)``.

A container is a data set, its arrays are variables, their tags attributes; what is no array is left out. xarray decodes
and encodes by the CF conventions. Variables are lazy: an index of one is one request, and blocks of dask are those that
were written.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
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
from ._array import DIM_NAMES, DTYPE, Array, _exact_dtype
from ._container import Container, joined
from ._errors import ExistsError, InvalidError, NotFoundError, SlabfsError
from ._tags import decoded, encoded, is_reserved

#: Gives objects of Python a dtype. Before 2025 the encoder did so itself.
_typed = getattr(common, "ensure_dtype_not_object", lambda var, name=None: var)
#: The tag of a container that has the dimensions of an imported group (docs/data-model.md).
_DIMS = "_slabfs_dims"
#: Tags of a container that describe the data set that was imported to it: they end with it.
_OF_IMPORT = (_DIMS, "_slabfs_order", "_slabfs_types", "_slabfs_attributes")
#: Names that the package and the commands have for themselves.
_HIDDEN = ".slabfs-"
#: Containers of arrays that are to replace others.
_WRITTEN = f"{_HIDDEN}write-"
#: Texts are bytes of UTF-8; others come back as they were.
_LENIENT = "surrogateescape"
#: Requests for several variables that are made at once.
_TOGETHER = 8
#: Bytes of a variable that is not written at the same time as others: it may have to be read first.
_LARGE = 1 << 20


class _Lazy(BackendArray):
    """An array that is opened when it is indexed for the first time, and read then."""

    def __init__(self, container: Container, name: str, shape: tuple, dtype: np.dtype, text: bool = False) -> None:
        self.container, self.name = container, name
        # Of n bytes of UTF-8 there are at most n characters.
        self.shape, self.dtype = shape, np.dtype(f"U{dtype.itemsize}") if text else dtype
        self._text = text
        self._stored = dtype
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
        return _Lazy, (self.container, self.name, self.shape, self._stored, self._text)

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
        return self._decoded(self.source[key])

    def _outer(self, key: tuple) -> Any:
        return self._decoded(self.source.oindex[key])

    def _points(self, key: tuple) -> Any:
        return self._decoded(self.source[key])

    def _decoded(self, found: Any) -> Any:
        if not self._text:
            return found
        return np.char.decode(np.asarray(found), "utf-8", _LENIENT).astype(self.dtype)


def _text_type(tags: list, dtype: np.dtype) -> Optional[str]:
    """The tag that says that bytes are text, as JSON: they were strings of NetCDF or HDF5 (docs/data-model.md)."""
    for key, _, data in tags:
        if key != DTYPE or dtype.kind != "S":
            continue
        with contextlib.suppress(ValueError):
            exact = json.loads(data)
            if not isinstance(exact, dict):
                return None
            if exact.get("strings") in ("utf-8", "ascii"):
                return bytes(data).decode()
            # Another length is not that of this array.
            if isinstance(exact.get("hdf5"), dict) and exact["hdf5"].get("string") == dtype.itemsize:
                return bytes(data).decode()
    return None


def _as_bytes(variable: xr.Variable, name: str, kind: str, strict: bool) -> xr.Variable:
    """Texts as the bytes that such a tag tells of, with the tag in the encoding. It changes where texts are longer, or are not
    ASCII, but if it is ``strict``."""
    exact = json.loads(kind)
    fixed = exact.get("hdf5")
    texts = np.asarray(variable.values)
    ascii_only = (exact.get("strings") or fixed.get("set")) == "ascii"
    try:
        data = np.char.encode(texts, "ascii" if ascii_only else "utf-8", _LENIENT)
    except UnicodeEncodeError:
        if strict:
            raise InvalidError(f"{name} has texts of ASCII there, and others here") from None
        data = np.char.encode(texts, "utf-8", _LENIENT)
        if fixed:
            fixed["set"] = "utf-8"
        else:
            exact["strings"] = "utf-8"
    if fixed:
        length = data.dtype.itemsize + (fixed.get("pad") == "nullterm")
        fixed["string"] = max(length, fixed["string"])
        data = data.astype(f"S{fixed['string']}") if not strict else data
    return xr.Variable(variable.dims, data, variable.attrs, {_TEXT: json.dumps(exact, separators=(",", ":"))})


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
        self._variables: Optional[Mapping] = None

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
        if self._variables is None:
            listed = self.container.session._native.list(self.container.path)
            names = [name for name, kind in listed if kind == "object" and not name.startswith(_HIDDEN)]
            found = zip(names, _together(self._variable, names))
            self._variables = FrozenDict({name: variable for name, variable in found if variable is not None})
        return self._variables

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
        kind = _text_type(tags, dtype) if "_Encoding" not in attrs else None
        lazy = _Lazy(self.container, name, shape, dtype, kind is not None)
        # The fill of an array has no meaning, unless it was chosen.
        if dtype.kind in "iufc" and "_FillValue" not in attrs and stat["fill"] not in ("0", "0.0"):
            fill = dtype.type(stat["fill"]) if dtype.kind in "iuf" and stat["fill"][:2] != "0x" else None
            fill = lazy.source.fill_value if fill is None else fill
            if fill != 0:
                attrs["_FillValue"] = fill
        encoding = {"codec": stat["codec"], "layout": stat["layout"], "preferred_chunks": _Chunks(lazy, dims)}
        if kind is not None:
            encoding[_TEXT] = kind
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
        if kind == "container" and not name.startswith(_HIDDEN):
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

        All that can be checked is checked before anything changes. After an error arrays and containers that this call
        created are removed again, and arrays that ``append_dim`` made longer are cut back.

        Args:
            target: a container, ``slab://HOST:PORT/PATH``, or a path on a mount.
            mode: ``"w-"``: create it, and fail if it exists; ``"w"``: replace the data set that it has, if any: its
                arrays and attributes that are not in the new one are removed, containers and files of bytes in it stay;
                the old arrays are there until the new ones are written, but with ``compute=False``; ``"a"``: add
                variables, and with ``append_dim`` records; ``"r+"``: write to what exists.
            region: where to write in variables that exist: a mapping of dimensions to slices, or ``"auto"``, which
                finds the place by the coordinates.
            append_dim: the dimension along which existing variables grow: all that have it.
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
            return _append(dataset, container, append_dim, compute)
        into = _Place(target, storage_options)
        if mode == "w-" and into.found is not None and len(into.found):
            raise ExistsError(
                f"{into.name} has entries; use mode='a' to add to it, or mode='w' to replace the data set"
            )
        return _create(dataset, into, mode, encoding or {}, compute)


class _Place:
    """A container to write to, which may have to be created."""

    def __init__(self, target: Any, options: Optional[Mapping]) -> None:
        self.found: Optional[Container] = None
        self.name = (target.path or "the root") if isinstance(target, Container) else os.fspath(target)
        try:
            self.found = _located(target, options)
        except NotFoundError:
            text = os.fspath(target).rstrip("/")
            parent, _, self._name = text.rpartition("/")
            above = _session.open(parent or ("/" if text.startswith("/") else "."), **(options or {}))
            if not isinstance(above, Container):
                raise InvalidError(f"{parent} is no container") from None
            self._above = above

    def entries(self) -> dict:
        """What is there by names: ``array``, ``container``, ``file`` of bytes, or ``other``."""
        if self.found is None:
            return {}
        native, path = self.found.session._native, self.found.path
        listed = dict(native.list(path))

        def kind(name: str) -> str:
            if listed[name] != "object":
                return listed[name]
            return "array" if native.stat(joined(path, name)).get("declared") else "file"

        return dict(zip(listed, _together(kind, listed)))

    def made(self, undone: contextlib.ExitStack) -> Container:
        """The container, created if it is missing."""
        if self.found is not None:
            return self.found
        made = self._above.create_container(self._name)
        undone.callback(_removed, self._above, [self._name])
        return made


#: Keys of a variable's encoding that are properties of its array.
_PROPERTIES = ("codec", "layout", "placement")
#: Those of the CF conventions. What else a variable that was read from a file has, e.g. ``zlib``, is of that format.
_CONVENTIONS = (
    *("dtype", "scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "_Encoding"),
    *("units", "calendar", "coordinates", *xr.conventions.CF_RELATED_DATA),
)
#: That of texts that are stored as bytes: the tag that says so. It comes from the array that was read.
_TEXT = "slabfs_type"
#: The name that xarray gives to the variable of the name ``None``.
_NAMELESS = "__values__"


def _encoded(dataset: xr.Dataset, there: Iterable) -> tuple:
    """Variables and attributes by the CF conventions. ``there`` are variables that exist."""
    for name in dataset.variables:
        _check_name(name)
    variables, attrs = xr.conventions.encode_dataset_coordinates(dataset)
    kinds = {}
    for name, variable in variables.items():
        encoding = {key: value for key, value in variable.encoding.items() if key in _CONVENTIONS}
        same = encoding.get("dtype") in (None, variable.dtype)
        if variable.dtype.kind == "f" and same:
            # NaN marks missing elements by itself; a fill value would make reads compare each element with it.
            encoding.setdefault("_FillValue", None)
        if variable.dtype.kind == "b":
            # Arrays have truth values. Without a dtype xarray would write integers.
            encoding.setdefault("dtype", variable.dtype)
        if _TEXT in variable.encoding:
            kinds[name] = variable.encoding[_TEXT]
            encoding.pop("dtype", None)
        variable.encoding = encoding
    written, attrs = xr.conventions.cf_encoder(variables, attrs)
    texts = strings.EncodedStringCoder(allows_unicode=True)
    found = set(there)
    result = {}
    for name, variable in written.items():
        variable = _sized(texts.encode(_typed(variable, name), name=name))
        if name in kinds and variable.dtype.kind == "U":
            variable = _as_bytes(variable, name, kinds[name], name in found)
        result[_NAMELESS if name is None else name] = variable
    return result, attrs


def _check_name(name: Any) -> None:
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"the name of a variable is a string or None, and not {name!r}")
    if not name:
        raise InvalidError(f"the name of a variable is {name!r}; a string must be length 1 or greater")
    if name.startswith(_HIDDEN):
        raise InvalidError(f"the name of a variable, {name!r}, begins with {_HIDDEN}, which is reserved; rename it")
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


def _create(dataset: xr.Dataset, place: _Place, mode: str, encoding: Mapping, compute: bool) -> Any:
    """Writes the data set in the modes w-, w and a."""
    unknown = set(encoding) - set(dataset.variables)
    if unknown:
        raise NotFoundError(f"encoding for variables that are not there: {sorted(map(str, unknown))}")
    entries = place.entries()
    arrays = {name for name, kind in entries.items() if kind == "array" and not name.startswith(_HIDDEN)}
    both = arrays & {_NAMELESS if name is None else name for name in dataset.variables} if mode == "a" else set()
    if both & set(encoding):
        raise InvalidError(f"{sorted(map(str, both & set(encoding)))} exist, so their encoding cannot be another one")
    there = SlabfsStore(place.found) if mode == "a" and place.found is not None else None
    changed = _as_there(dataset, there) if there is not None and both else dataset.copy(deep=False)
    properties = _split_encodings(changed, encoding)
    variables, attrs = _encoded(changed, both)
    for name in variables:
        if entries.get(name, "array") != "array":
            kind = {"file": "a file of bytes", "container": "a container"}.get(entries[name], "something else")
            raise InvalidError(f"{name} is {kind} in {place.name}; rename the variable")
    if there is not None:
        _lengths_fit(variables, there.get_variables())
    attributes = {name: _tags(name, _attributes(variable)[0]) for name, variable in variables.items()}
    own = _tags("the data set", attrs)
    existing = [place.found.array(name) for name in variables if name in both] if place.found is not None else []
    for array in existing:
        _fits(array.name, variables[array.name], array, {})
    unlimited = dataset.encoding.get("unlimited_dims", ())
    unlimited = {unlimited} if isinstance(unlimited, str) else set(unlimited)
    replaces = mode == "w" and bool(arrays)

    with contextlib.ExitStack() as undone:
        container = place.made(undone)
        native = container.session._native
        # Arrays that replace others are written elsewhere, and get their names when all is there.
        within = container
        if replaces:
            within = container.create_container(f"{_WRITTEN}{uuid.uuid4().hex[:12]}")
            undone.callback(_removed, container, [within.name])
        made: list = []
        undone.callback(_removed, within, made)

        def create(name: str) -> Array:
            array = _created(within, name, variables[name], unlimited, properties.get(name, {}))
            made.append(name)
            return array

        new = [name for name in variables if name not in both]
        handles = {**{array.name: array for array in existing}, **dict(zip(new, _together(create, new)))}
        tags: list = []
        for name in both:
            changed_tags = [tag for tag in attributes[name] if tag[0] != "_FillValue"]
            tags.append((joined(container.path, name), changed_tags, []))
        for name in new:
            kind = variables[name].encoding.get(_TEXT)
            if kind is not None:
                tags.append((joined(within.path, name), [(DTYPE, "text", kind.encode())], []))
        if not replaces:
            tags.append((container.path, own, _left_over(container, own) if mode == "w" else []))
        tags = [(path, given, gone) for path, given, gone in tags if given or gone]
        if tags:
            native.tag(tags)
        writes = [(variable, handles[name], (slice(None),) * variable.ndim) for name, variable in variables.items()]
        result = None
        if compute or not replaces:
            result = _store(writes, compute)
        undone.pop_all()
    if not replaces:
        return result
    # From here an error leaves old or new arrays of each name; what has no name yet stays in the hidden container.
    _together(lambda name: container.rename(joined(within.name, name), name, replace=True), new)
    gone = _left_over(container, own)
    if own or gone:
        native.tag([(container.path, own, gone)])
    _together(container.remove, sorted(arrays - set(variables)))
    # Those of calls that were killed, too.
    for name in (within.name, *(name for name in entries if name.startswith(_WRITTEN))):
        container.remove(name, recursive=True)
    if compute:
        return None
    return _store([(variable, container.array(array.name), index) for variable, array, index in writes], compute)


def _split_encodings(changed: xr.Dataset, encoding: Mapping) -> dict:
    """The properties of arrays in encodings; the rest goes to the variables of the data set."""
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
        before = dict(changed[name].encoding)
        if "dtype" in rest:
            before.pop(_TEXT, None)
        changed[name].encoding = {**before, **rest}
    return properties


def _attributes(variable: xr.Variable) -> tuple:
    """The attributes of an array for a variable, and its fill value."""
    own = dict(variable.attrs)
    fill = own.pop("_FillValue", None)
    # It is an attribute as well, if it looks like an array's own.
    if fill is not None and (variable.dtype.kind not in "iufc" or fill == 0):
        own["_FillValue"] = variable.dtype.type(fill)
    return own, fill


def _created(within: Container, name: str, variable: xr.Variable, unlimited: set, properties: Mapping) -> Array:
    own, fill = _attributes(variable)
    # Of an aligned array each axis may grow at no cost: records are appended later.
    limits = tuple(
        None if dim in unlimited or axis == 0 else size for axis, (dim, size) in enumerate(variable.sizes.items())
    )
    try:
        return within.create_array(
            name,
            shape=variable.shape,
            dtype=variable.dtype,
            max_shape=limits if limits else None,
            fill_value=fill,
            dims=variable.dims,
            attrs=own,
            **properties,
        )
    except InvalidError as error:
        raise InvalidError(f"{name}: {error}") from error


def _tags(what: str, attrs: Mapping) -> list:
    """Attributes as tags, if they can be that."""
    tags = []
    for key, value in attrs.items():
        try:
            if is_reserved(key):
                raise InvalidError("the name is reserved")
            tags.append(encoded(key, value))
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            text = str(error).removeprefix(f"attribute {key!r}: ")
            raise InvalidError(f"attribute {key!r} of {what}: {text}") from error
    return tags


def _left_over(container: Container, tags: list) -> list:
    """The keys of attributes of a container's old data set that the new one has not."""
    new = {key for key, _, _ in tags}
    keys = [key for key, _, _ in container.session._native.tags(container.path)]
    return [key for key in keys if key not in new and (not is_reserved(key) or key.startswith(_OF_IMPORT))]


def _removed(within: Container, names: list) -> None:
    """Removes what a call has created that fails. If that fails, too, the first error is the one to know."""
    with contextlib.suppress(SlabfsError):
        for name in names:
            within.remove(name)


def _lengths_fit(variables: Mapping, there: Mapping) -> None:
    """Compares lengths with those of arrays that stay as they are."""
    lengths = {dim: size for name, one in there.items() if name not in variables for dim, size in one.sizes.items()}
    for name, variable in variables.items():
        for dim, size in variable.sizes.items():
            if lengths.get(dim, size) != size:
                raise InvalidError(f"{name}: {dim} has {lengths[dim]} elements there, and {size} here")


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


def _as_there(dataset: xr.Dataset, store: SlabfsStore) -> xr.Dataset:
    """The data set with the encoding of what exists, so that times have the same units."""
    there = StoreBackendEntrypoint().open_dataset(store)
    changed = dataset.copy(deep=False)
    for name in changed.variables:
        if name in there.variables:
            encoding = dict(there[name].encoding)
            if np.dtype(encoding.get("dtype", float)).kind in "SU":
                # Texts are not cut to the length that is there.
                encoding["dtype"] = "S1" if "_Encoding" in encoding else None
            changed[name].encoding = {key: value for key, value in encoding.items() if value is not None}
    return changed


def _append(dataset: xr.Dataset, container: Container, dim: str, compute: bool) -> Any:
    if dim not in dataset.sizes:
        raise InvalidError(f"the data set has no dimension {dim!r}; it has {sorted(map(str, dataset.sizes))}")
    store = SlabfsStore(container)
    there = store.get_variables()
    variables, _ = _encoded(_as_there(dataset, store), there)
    missing = [
        name for name, one in there.items() if dim in one.dims and dim not in getattr(variables.get(name), "dims", ())
    ]
    if missing:
        raise InvalidError(
            f"{', '.join(missing)} of {container.path} have the dimension {dim}, too; append to all of them"
        )
    writes, grown = [], []
    for name, variable in variables.items():
        if name not in there:
            raise InvalidError(f"{container.path} has no variable {name}; mode='a' without append_dim adds it")
        if dim not in variable.dims:
            continue
        array = container.array(name)
        _fits(name, variable, array, {dim: None})
        axis = variable.dims.index(dim)
        shape = array.shape
        before, limit = shape[axis], array.max_shape[axis]
        length = before + variable.shape[axis]
        if limit is not None and length > limit:
            raise InvalidError(f"{name}: {dim} may have {limit} elements, and not {length}")
        grown.append((array, shape, (*shape[:axis], length, *shape[axis + 1 :])))
        place = (slice(None),) * axis + (slice(before, length),)
        writes.append((variable, array, place + (slice(None),) * (variable.ndim - axis - 1)))
    done = []
    try:
        for array, before, after in grown:
            done.append((array, before))
            array.resize(after)
        return _store(writes, compute)
    except BaseException:
        with contextlib.suppress(SlabfsError):
            for array, before in done:
                array.resize(before)
        raise


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
    store = SlabfsStore(container)
    there = store.get_variables()
    variables, _ = _encoded(_as_there(dataset, store), there)
    writes = []
    for name, variable in variables.items():
        if name not in there:
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
