"""Arrays of slabfs, the filesystem of hyperslabs.

No mount is needed: :func:`connect` finds a running filesystem, and data goes between its servers and NumPy's arrays.

>>> import numpy as np, slabfs
>>> fs = getfixture("session")        # slabfs.connect("unix:slabfs.sock")
>>> run = fs.create_container("run1")
>>> temp = run.create_array("temp", shape=(16, 16), dtype="f4", attrs={"step": 3})
>>> temp[4:6, 0:3] = np.arange(6).reshape(2, 3)
>>> temp[4:6, 1]
array([1., 4.], dtype=float32)
>>> [array.path for array in fs.find("step < 10")]
['run1/temp']
"""

from ._array import Array
from ._container import Container
from ._errors import (
    AccessError,
    BusyError,
    CancelledError,
    ClosedError,
    DamagedError,
    ExistsError,
    InvalidError,
    IsAContainerError,
    NoSpaceError,
    NotAContainerError,
    NotEmptyError,
    NotFoundError,
    NotSupportedError,
    ReadOnlyError,
    SelectionError,
    ServiceError,
    SlabfsError,
    StaleError,
    StorageError,
    TooLargeError,
)
from ._native import version as __version__
from ._session import Session, alone, connect, open
from ._tags import Attributes
from ._transfer import Transfer, start_all, wait_all
from ._zarr import zarr_store

__all__ = [
    "AccessError",
    "Array",
    "Attributes",
    "BusyError",
    "CancelledError",
    "ClosedError",
    "Container",
    "DamagedError",
    "ExistsError",
    "InvalidError",
    "IsAContainerError",
    "NoSpaceError",
    "NotAContainerError",
    "NotEmptyError",
    "NotFoundError",
    "NotSupportedError",
    "ReadOnlyError",
    "SelectionError",
    "ServiceError",
    "Session",
    "SlabfsError",
    "StaleError",
    "StorageError",
    "TooLargeError",
    "Transfer",
    "__version__",
    "alone",
    "connect",
    "open",
    "start_all",
    "wait_all",
    "zarr_store",
]
