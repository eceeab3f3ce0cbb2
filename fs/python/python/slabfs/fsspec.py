"""fsspec's filesystem of the protocol ``slab``: files that are bytes, ``slab://HOST:PORT/PATH``.

>>> import pandas                                            # doctest: +SKIP
>>> pandas.read_parquet("slab://node7:7070/tables/a.parquet")  # doctest: +SKIP

Arrays are listed, too; their elements are read with :func:`slabfs.open`, or as files on a mount.
"""

from __future__ import annotations

import os
from typing import Any, Optional

import numpy as np
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import _session
from ._array import Array
from ._container import Container
from ._errors import ExistsError, InvalidError, NotFoundError, NotSupportedError
from ._session import Session


def _connected(place: Optional[str], key_file: Optional[str], io_timeout: Optional[float]) -> Session:
    """The session of this process for an address."""
    place = place or os.environ.get("SLABFS_MD")
    if not place:
        raise InvalidError("no filesystem: give slab://HOST:PORT/PATH, host= or place=, or set SLABFS_MD to an address")
    where = _session.place_of(place)
    if not where.startswith(("unix:", "tcp:")):
        where = os.path.abspath(where)
    key = os.fspath(key_file or os.environ.get("SLABFS_KEY_FILE") or "") or None
    return _session.reconnected((where, key, io_timeout, "strict", False, None, None))


class SlabfsFileSystem(AbstractFileSystem):
    """A filesystem of slabfs, for fsspec.

    Args:
        host: ``HOST:PORT``; or ``place``, any address that :func:`slabfs.connect` takes. By default the environment's
            ``SLABFS_MD``.
        session: an open session, instead of an address.
        key_file, io_timeout: those of :func:`slabfs.connect`.
        auto_mkdir: whether a file that is written makes the containers above it.
    """

    protocol = "slab"
    root_marker = ""
    # Sessions are shared by address: one that was closed must not come back with an old filesystem.
    cachable = False

    def __init__(
        self,
        host: Optional[str] = None,
        place: Optional[str] = None,
        session: Optional[Container] = None,
        key_file: Optional[str] = None,
        io_timeout: Optional[float] = None,
        auto_mkdir: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if session is None:
            session = _connected(place or (f"tcp:{host}" if host else None), key_file, io_timeout)
        # A session that was pickled is a container.
        self.session = session.session
        self.auto_mkdir = auto_mkdir

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SlabfsFileSystem)
            and self.session is other.session
            and self.auto_mkdir == other.auto_mkdir
        )

    def __hash__(self) -> int:
        return hash((id(self.session), self.auto_mkdir))

    def __repr__(self) -> str:
        # What wraps it is compared by this text.
        return f"<slabfs.fsspec.SlabfsFileSystem {self.session!r} {id(self.session):#x}>"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = str(path)
        if text.startswith("slab://"):
            text = text[len("slab://") :].partition("/")[2]
        return text.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict:
        host = path[len("slab://") :].partition("/")[0] if path.startswith("slab://") else ""
        return {"host": host} if host else {}

    def unstrip_protocol(self, name: str) -> str:
        """The address of a path."""
        host = self.storage_options.get("host", "")
        return f"slab://{host}/{self._strip_protocol(name)}"

    def info(self, path: str, **_: Any) -> dict:
        """What a path is."""
        path = self._strip_protocol(path)
        stat = self.session._native.stat(path)
        return {
            "name": path,
            "size": stat["size"] if stat["kind"] == "object" else 0,
            "type": {"container": "directory", "object": "file"}.get(stat["kind"], "other"),
            "mtime": stat["mtime"],
            "mode": stat["mode"],
            "uid": stat["uid"],
            "gid": stat["gid"],
        }

    def ls(self, path: str, detail: bool = True, **_: Any) -> list:
        """The entries of a container."""
        path = self._strip_protocol(path)
        own = self.info(path)
        if own["type"] == "file":
            return [own] if detail else [own["name"]]
        names = [f"{path}/{name}" if path else str(name) for name, _ in self.session._native.list(path)]
        return [self.info(name) for name in names] if detail else names

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Creates a container."""
        path = self._strip_protocol(path)
        if create_parents and "/" in path:
            self.session.require_container(path.rpartition("/")[0])
        self.session._native.create_container(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Creates a container and those above it."""
        path = self._strip_protocol(path)
        if not path:
            return
        if not exist_ok and self.exists(path):
            raise ExistsError(f"{path} exists")
        self.session.require_container(path)

    def rmdir(self, path: str) -> None:
        """Removes an empty container."""
        self.session._native.remove(self._strip_protocol(path))

    def _rm(self, path: str) -> None:
        path = self._strip_protocol(path)
        if path:
            self.session._native.remove(path)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copies a file; of a container just its name."""
        path1, path2 = self._strip_protocol(path1), self._strip_protocol(path2)
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        array = self._bytes_of(path1)
        if path1 == path2:
            return
        with self.open(path2, "wb") as file:
            size = array.size
            for start in range(0, size, file.blocksize):
                file.write(array[start : min(start + file.blocksize, size)])

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        """Renames; into a container, if there is one of that name."""
        path1, target = self._strip_protocol(path1), self._strip_protocol(path2)
        if path1 != target and (path2.endswith("/") or self.isdir(target)):
            target = f"{target}/{path1.rpartition('/')[2]}".lstrip("/")
        self._parents(target)
        self.session._native.rename(path1, target, True)

    def _parents(self, path: str) -> None:
        above = path.rpartition("/")[0]
        if self.auto_mkdir and above:
            self.session.require_container(above)

    def created(self, path: str) -> Any:
        """There is no such time."""
        raise NotImplementedError("slabfs has no time of creation")

    def modified(self, path: str) -> Any:
        """The time of the last change."""
        import datetime

        return datetime.datetime.fromtimestamp(self.info(path)["mtime"], tz=datetime.timezone.utc)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **_: Any) -> bytes:
        """The bytes of a file, or of a part of it."""
        array = self._bytes_of(self._strip_protocol(path))
        return array[slice(start, end)].tobytes()

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        """Writes all of a file."""
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def _bytes_of(self, path: str) -> Array:
        item = self.session[path]
        if not isinstance(item, Array):
            raise IsADirectoryError(path)
        if item.is_declared:
            raise InvalidError(f"{path} is an array of {item.dtype}, not a file of bytes; use slabfs.open")
        return item

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Any = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **kwargs: Any,
    ) -> SlabfsFile:
        if not autocommit:
            raise NotSupportedError("slabfs has no transactions of files")
        size = None
        if mode in ("rb", "r+b"):
            size = self._bytes_of(path).size
        elif mode == "xb" and self.exists(path):
            raise ExistsError(f"{path} exists")
        elif self.exists(path):
            self._bytes_of(path)
        return SlabfsFile(
            self, path, mode, block_size or 4 << 20, autocommit, cache_options=cache_options, size=size, **kwargs
        )


class SlabfsFile(AbstractBufferedFile):
    """A file that is bytes."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.fs._bytes_of(self.path)[start:end].tobytes()

    def _initiate_upload(self) -> None:
        session = self.fs.session
        try:
            array = self.fs._bytes_of(self.path)
            if self.mode == "xb":
                raise ExistsError(f"{self.path} exists")
            if self.mode == "wb":
                array.resize((0,))
        except NotFoundError:
            self.fs._parents(self.path)
            array = Array(session, self.path, session._native.create(self.path, [], []))
        self._array = array
        self._at = array.size

    def _upload_chunk(self, final: bool = False) -> bool:
        data = np.frombuffer(self.buffer.getvalue(), dtype=np.uint8)
        if data.size:
            self._array._native(write=True).write([(self._at, 1, data.size)], data)
            self._at += data.size
        if final:
            self._array.close()
        return True
