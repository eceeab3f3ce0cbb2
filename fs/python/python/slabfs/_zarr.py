"""A store of zarr in a container: each key is a file of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._container import Container


def zarr_store(container: Container) -> Any:
    """A store for ``zarr.open`` in a container, whose keys are files of bytes there. For arrays that only zarr reads: those of slabfs are
    :class:`slabfs.Array`, and ``.slabfs/zarr`` of a mount shows them to zarr.

    Raises:
        ImportError: zarr 3 or fsspec is missing.
    """
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
    from zarr.storage import FsspecStore

    from .fsspec import SlabfsFileSystem

    # Keys have slashes, and what they name is made when it is written.
    files = SlabfsFileSystem(session=container.session, auto_mkdir=True)
    filesystem = AsyncFileSystemWrapper(files, asynchronous=True)
    return FsspecStore(filesystem, path=container.path)
