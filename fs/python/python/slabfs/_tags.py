"""Attributes: tags of objects and containers as values of Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from ._session import Session

#: Types of NumPy that tags have, too.
_EXACT = {"i1", "i2", "i4", "u1", "u2", "u4", "u8", "f4"}
_LISTS = {"i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"}


def is_reserved(key: str) -> bool:
    """Whether a tag is no attribute, but says what dtype, dims and order do not (docs/data-model.md)."""
    return key == "dim_names" or key.startswith("_slabfs_")


def _number(value: Any) -> str:
    text = repr(float(value)) if isinstance(value, (float, np.floating)) else str(int(value))
    return text


def _member(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise InvalidError(f"{value!r} cannot be in a list of an attribute; give numbers, texts and bytes")


def encoded(key: str, value: Any) -> tuple:
    """Key, type and bytes of a tag."""
    if not isinstance(key, str):
        raise InvalidError(f"the name of an attribute is a text, and not {key!r}")
    if isinstance(value, (bool, np.bool_)):
        return key, "int", str(int(value)).encode()
    if isinstance(value, np.datetime64):
        return key, "text", str(value).encode()
    if isinstance(value, np.generic) and value.dtype.kind in "iuf":
        name = value.dtype.str[1:]
        if name in _EXACT:
            return key, name, _number(value).encode()
    if isinstance(value, (int, np.integer)):
        return key, "int", str(int(value)).encode()
    if isinstance(value, (float, np.floating)):
        if np.isnan(value):
            return key, "f4", b"nan"
        return key, "float", repr(float(value)).encode()
    if isinstance(value, str):
        return key, "text", str(value).encode("utf-8")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return key, "bytes", bytes(value)
    if isinstance(value, np.ndarray):
        name = value.dtype.str[1:]
        if value.ndim > 1:
            raise InvalidError(f"attribute {key!r}: an array of {value.ndim} axes; give one axis, or make it an array")
        if value.ndim == 0:
            return encoded(key, value[()])
        if name in _LISTS:
            return key, f"{name}[]", f"[{', '.join(_number(member) for member in value)}]".encode()
        value = value.tolist()
    if isinstance(value, (list, tuple)) and any(
        isinstance(one, (float, np.floating)) and not np.isfinite(one) for one in value
    ):
        # Lists have finite numbers only; those of one type have all.
        if not all(isinstance(one, (bool, int, float, np.bool_, np.integer, np.floating)) for one in value):
            raise InvalidError(f"attribute {key!r}: a list with texts has finite numbers only")
        value = np.asarray(value, dtype="f8")
        return key, "f8[]", f"[{', '.join(_number(member) for member in value)}]".encode()
    if isinstance(value, (list, tuple)):
        return key, "list", json.dumps([_member(member) for member in value]).encode()
    raise InvalidError(
        f"attribute {key!r}: {type(value).__name__} is no type of an attribute; give a number, text, bytes, or a list of "
        "these"
    )


def _value(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return float(text)


def decoded(kind: str, data: bytes) -> Any:
    """The value of a tag."""
    if kind == "int":
        return int(data)
    if kind == "float":
        return float(data)
    if kind in ("text", "char", "auto"):
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data
    if kind == "bytes":
        return data
    if kind.endswith("[]"):
        members = [member.strip() for member in data.decode().strip()[1:-1].split(",")]
        if kind == "string[]":
            return json.loads(data)
        return np.array([_value(member) for member in members if member], dtype=kind[:-2])
    if kind == "list":
        members = json.loads(data)
        return [bytes.fromhex(one["bytes"]) if isinstance(one, dict) else one for one in members]
    return np.dtype(kind).type(_value(data.decode()))


def _reopened(address: tuple, path: str) -> Attributes:
    from ._session import reconnected

    return Attributes(reconnected(address), path)


class Attributes(MutableMapping):
    """The attributes of an array or container: tags, which searches find. Values are numbers, texts, bytes, and lists or arrays
    of one axis of these."""

    def __init__(self, session: Session, path: str) -> None:
        self._session, self._path = session, path

    def asdict(self) -> dict:
        """All attributes, by one request."""
        tags = self._session._native.tags(self._path)
        return {key: decoded(kind, data) for key, kind, data in tags if not is_reserved(key)}

    def __getitem__(self, key: str) -> Any:
        all_of_them = self.asdict()
        if key not in all_of_them:
            raise NotFoundError(f"{self._path or 'the root'} has no attribute {key!r}; it has {sorted(all_of_them)}")
        return all_of_them[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        if key not in self.asdict():
            raise NotFoundError(f"{self._path or 'the root'} has no attribute {key!r}")
        self._session._native.tag([(self._path, [], [key])])

    def update(self, *args: Any, **values: Any) -> None:  # type: ignore[override]
        """Sets several attributes by one request, all or none."""
        new = dict(*args, **values)
        if new:
            self._session._native.tag([(self._path, [encoded(key, value) for key, value in new.items()], [])])

    def __reduce__(self) -> tuple:
        return _reopened, (self._session._address(), self._path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.asdict())

    def __len__(self) -> int:
        return len(self.asdict())

    def __repr__(self) -> str:
        return repr(self.asdict())
