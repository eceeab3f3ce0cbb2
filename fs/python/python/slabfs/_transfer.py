"""Transfers: reads and writes that are started, tested and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from typing import Any, Callable, Optional

import numpy as np

from . import _native
from ._errors import InvalidError


class Transfer:
    """A read or write of an array: made, started, waited for. It does nothing before it is started.

    The result of :meth:`wait`, or of ``await``, is the array that was read, or ``None`` for a write. Until then the
    memory of the array that is read or written belongs to the transfer.
    """

    def __init__(self, natives: list, result: Optional[Callable[[], Any]]) -> None:
        self._natives, self._result = natives, result

    def start(self) -> Transfer:
        """Starts it, if it was not started, and returns at once.

        Raises:
            ClosedError: the session or the array was closed.
        """
        start_all([self])
        return self

    def test(self) -> bool:
        """Whether it has ended, so that :meth:`wait` would return at once."""
        return all(native.test() for native in self._natives)

    def cancel(self) -> None:
        """Ends it without any effect, if it is not running yet."""
        for native in self._natives:
            native.cancel()

    def wait(self) -> Any:
        """Waits for its end, after starting it if necessary. Ctrl-C cancels it.

        Returns:
            The array that was read; ``None`` for a write.
        Raises:
            SlabfsError: what the read or write raises.
            CancelledError: it was cancelled.
        """
        self.start()
        for native in self._natives:
            native.wait()
        return self._result() if self._result is not None else None

    def __await__(self) -> Generator[Any, None, Any]:
        self.start()
        waiting = asyncio.get_running_loop().run_in_executor(None, self.wait)
        return waiting.__await__()


def start_all(transfers: Iterable[Transfer]) -> None:
    """Starts transfers of one session together: one message to each data server, writes first.

    Raises:
        ClosedError: the session or an array was closed. None is started then.
    """
    transfers = list(transfers)
    for transfer in transfers:
        if not isinstance(transfer, Transfer):
            raise InvalidError(f"transfers are started, and not {type(transfer).__name__}")
    _native.start_all([native for transfer in transfers for native in transfer._natives])


def wait_all(transfers: Iterable[Transfer]) -> list:
    """Starts transfers together, waits for all of them, and returns their results in order.

    Raises:
        SlabfsError: the first error; all of them have ended then.
    """
    transfers = list(transfers)
    start_all(transfers)
    results, first = [], None
    for transfer in transfers:
        try:
            results.append(transfer.wait())
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
    return results


#: Pieces that one batch may have.
MAX_PIECES = 1 << 15


def batches(offsets: np.ndarray, length: int, write: bool) -> list:
    """Pieces as rows of offset, place in memory and length, with neighbours joined: at most :data:`MAX_PIECES` rows, first and
    last element in memory for each. Rows are in the order of their offsets, in which servers find those of a chunk by
    bisection; those of a write that overlap stay as they are, since the last value counts."""
    count = len(offsets)
    if count == 0 or length == 0:
        return []
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(offsets) != length)))
    ends = np.append(starts[1:], count)
    rows = np.stack([offsets[starts], starts * length, (ends - starts) * length], axis=1).astype(np.uint64)
    parts = []
    for at in range(0, len(rows), MAX_PIECES):
        part = rows[at : at + MAX_PIECES]
        first = int(part[0, 1])
        last = int(part[-1, 1] + part[-1, 2])
        ordered = part[np.argsort(part[:, 0], kind="stable")]
        if not write or (ordered[:-1, 0] + ordered[:-1, 2] <= ordered[1:, 0]).all():
            part = ordered
        part[:, 1] -= np.uint64(first)
        parts.append((part, first, last))
    return parts
