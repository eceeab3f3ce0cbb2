"""Sessions: connections to a filesystem."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import weakref
from typing import Any, Optional, Union

from . import _native
from ._array import Array
from ._container import Container
from ._errors import ClosedError, InvalidError, NotFoundError, NotSupportedError

_sessions: weakref.WeakSet = weakref.WeakSet()
_connected: dict = {}
_lock = threading.Lock()


class Session(Container):
    """A session of a filesystem, and its root container. It ends with :meth:`close`, at the end of a ``with`` block, or with the
    process; all that was written is on the servers' disks then.

    Threads may use a session together. A child of ``fork`` may not: use the start methods ``spawn`` or ``forkserver``
    of multiprocessing.
    """

    def __init__(self, native: Any, address: Optional[tuple]) -> None:
        super().__init__(self, "")
        self._native, self._reconnect = native, address
        self._process = os.getpid()
        _sessions.add(self)

    def _item(self, path: str) -> Union[Array, Container]:
        kind = self._native.stat(path)["kind"]
        if kind == "container":
            return Container(self, path)
        if kind == "object":
            return Array(self, path)
        raise NotFoundError(f"{path} is neither an array nor a container")

    def _address(self) -> tuple:
        if self._reconnect is None:
            raise NotSupportedError(
                "a filesystem of this process alone cannot be opened by another one; serve it with "
                "`slabfs up --listen unix:PATH`, and connect to that"
            )
        return self._reconnect

    def sync(self) -> None:
        """Returns when everything written by this session is on the servers' disks."""
        self._native.sync()

    def stats(self) -> dict:
        """Counters of this session: requests, bytes, caches, as ``.slabfs/stats`` of a mount."""
        return json.loads(self._native.stats())

    def close(self) -> None:
        """Ends the session. What was written is on the servers' disks then, and its arrays cannot be used any more."""
        with _lock:
            for key, session in list(_connected.items()):
                if session is self:
                    del _connected[key]
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._native.is_closed()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        where = self._reconnect[0] if self._reconnect else "this process alone"
        return f"<slabfs.Session {where!r}{' closed' if self.closed else ''}>"


def place_of(place: Union[str, os.PathLike]) -> str:
    """An address as the commands take it. ``HOST:PORT`` is short for ``tcp:HOST:PORT``."""
    text = os.fspath(place)
    if not isinstance(text, str):
        raise InvalidError("give the address as a text")
    if text.startswith("slab://"):
        text = text[len("slab://") :].split("/", 1)[0]
    if text.startswith(("unix:", "tcp:")) or os.path.exists(text):
        return text
    host, colon, port = text.rpartition(":")
    if colon and port.isdigit() and host and "/" not in host:
        return f"tcp:{text}"
    return text


def connect(
    place: Union[str, os.PathLike, None] = None,
    *,
    key_file: Union[str, os.PathLike, None] = None,
    io_timeout: Optional[float] = None,
    consistency: str = "strict",
    read_only: bool = False,
    cache: Optional[int] = None,
    dirty_limit: Optional[int] = None,
) -> Session:
    """Connects to a running filesystem.

    Args:
        place: ``"unix:PATH"``, ``"HOST:PORT"``, or a path on a mount. By default the environment's ``SLABFS_MD``.
        key_file: the shared key, which TCP needs; by default the environment's ``SLABFS_KEY_FILE``.
        io_timeout: seconds that a call waits for a server that is away; 30 by default.
        consistency: ``"strict"``: reads see all writes that have ended, of any process; ``"commit"``: after ``sync``
            or ``close``.
        read_only: refuses all changes.
        cache: bytes of the read cache; 64 MiB by default.
        dirty_limit: bytes that may be written and not sent yet; 256 MiB by default.

    Raises:
        ServiceError: no service answers there.
        AccessError: another key, or another user.
        InvalidError: the place is no address.
    """
    if place is None:
        place = os.environ.get("SLABFS_MD")
        if not place:
            raise InvalidError(
                "no filesystem: give unix:PATH, HOST:PORT or a path on a mount, or set SLABFS_MD to an address"
            )
    if key_file is None:
        key_file = os.environ.get("SLABFS_KEY_FILE") or None
    if io_timeout is not None and not 0.1 <= io_timeout <= 1e6:
        raise InvalidError(f"io_timeout is {io_timeout}; give seconds, at least 0.1")
    where = place_of(place)
    if not where.startswith(("unix:", "tcp:")):
        where = os.path.abspath(where)
    address = (where, os.fspath(key_file) if key_file else None, io_timeout, consistency, read_only, cache, dirty_limit)
    return Session(_native.Session.connect(*address), address)


def alone(directory: Union[str, os.PathLike]) -> Session:
    """Opens a filesystem of this process alone, in a directory that is created if it is missing; the format is that of
    ``slabfs up --data``. No other process may have it open.

    Raises:
        StorageError: another process has it open, or it cannot be used.
    """
    return Session(_native.Session.alone(os.fspath(directory)), None)


def reconnected(address: tuple) -> Session:
    """The session of this process for an address: one, however many arrays come from other processes."""
    key = (os.getpid(), address)
    with _lock:
        session = _connected.get(key)
        if session is None or session.closed:
            session = _connected[key] = Session(_native.Session.connect(*address), address)
    return session


def open(path: Union[str, os.PathLike], **options: Any) -> Union[Array, Container]:
    """Opens an array or container by a path on a mount, by ``slab://HOST:PORT/PATH``, or by ``slab:///PATH`` at the address in the
    environment's ``SLABFS_MD``. Data does not go through the mount: the
    process connects to the servers, once for all paths of a filesystem.

    Args:
        path: a path on a mount, or an address with a path behind it.
        options: those of :func:`connect`.

    Raises:
        NotFoundError: there is no such name.
        InvalidError: the path is not on a mount of slabfs.
        NotSupportedError: the mount serves no other process (``slabfs up`` without ``--listen``).
    """
    text = os.fspath(path)
    if isinstance(text, str) and text.startswith("slab://"):
        place, _, rest = text[len("slab://") :].partition("/")
        place = f"tcp:{place}" if place else place_of(os.environ.get("SLABFS_MD", ""))
        if not place:
            raise InvalidError(f"{text} has no HOST:PORT; set SLABFS_MD to the address of the filesystem, or give one")
    else:
        place, rest = _split(text)
    address = (
        place,
        os.fspath(options.pop("key_file", None) or os.environ.get("SLABFS_KEY_FILE") or "") or None,
        options.pop("io_timeout", None),
        options.pop("consistency", "strict"),
        options.pop("read_only", False),
        options.pop("cache", None),
        options.pop("dirty_limit", None),
    )
    if options:
        raise TypeError(f"open() has no option {next(iter(options))!r}")
    return reconnected(address)[rest] if rest else reconnected(address)


def _split(path: str) -> tuple:
    """The mount point of a path, and the rest."""
    full = os.path.realpath(path)
    at = full
    while not os.path.ismount(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    if not os.path.isfile(os.path.join(at, ".slabfs", "status")):
        if not os.path.exists(full):
            raise NotFoundError(f"{path} does not exist; is the filesystem mounted there?")
        raise InvalidError(f"{path} is not on a mount of slabfs; give one, or slab://HOST:PORT/PATH")
    return at, os.path.relpath(full, at) if full != at else ""


@atexit.register
def _close_all() -> None:
    """What was written must not be lost with the process."""
    for session in list(_sessions):
        if session._process == os.getpid():
            with contextlib.suppress(ClosedError):
                session._native.close()
