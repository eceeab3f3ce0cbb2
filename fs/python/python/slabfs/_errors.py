"""Exceptions: a class for each kind of error. All of them are a :class:`SlabfsError`; most are a built-in one, too."""

from __future__ import annotations


class SlabfsError(Exception):
    """Any error of slabfs. Its text says what was wrong, and what to do."""

    def __str__(self) -> str:
        # KeyError would quote it.
        return str(self.args[0]) if self.args else ""


class NotFoundError(SlabfsError, KeyError, FileNotFoundError):
    """No entry has that name."""


class ExistsError(SlabfsError, FileExistsError):
    """The name exists already."""


class NotAContainerError(SlabfsError, NotADirectoryError):
    """A container was needed."""


class IsAContainerError(SlabfsError, IsADirectoryError):
    """An array was needed."""


class NotEmptyError(SlabfsError, OSError):
    """The container is not empty."""


class AccessError(SlabfsError, PermissionError):
    """The user lacks the permission."""


class ReadOnlyError(SlabfsError, PermissionError):
    """The session does not allow changes."""


class InvalidError(SlabfsError, ValueError):
    """The request makes no sense; the text gives an alternative."""


class SelectionError(InvalidError, IndexError):
    """An index or selection that does not fit the array."""


class TooLargeError(SlabfsError, ValueError):
    """A name, a size or a number beyond its limit."""


class NoSpaceError(SlabfsError, OSError):
    """A disk is full."""


class NotSupportedError(SlabfsError, NotImplementedError):
    """This filesystem does not support the operation."""


class BusyError(SlabfsError, OSError):
    """A conflict with another user of the array; a repetition may succeed."""


class StaleError(SlabfsError, OSError):
    """The array was removed or replaced since it was opened."""


class ServiceError(SlabfsError, ConnectionError):
    """A server could not be reached in time, or ended the session; the text names its address."""


class DamagedError(SlabfsError, OSError):
    """Stored data is damaged."""


class StorageError(SlabfsError, OSError):
    """A disk or a protocol failed."""


class CancelledError(SlabfsError):
    """It was cancelled before it had any effect."""


class ClosedError(SlabfsError, ValueError):
    """The session or the array was closed."""
