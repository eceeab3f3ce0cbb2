"""Filesystems for the tests: of this process alone, or three data servers behind a Unix socket.

The program is ``$SLABFS_BINARY``, or ``slabfs`` on the path.
"""

import asyncio
import inspect
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

import slabfs


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs tests that are coroutines."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


def binary():
    found = os.environ.get("SLABFS_BINARY") or shutil.which("slabfs")
    if not found:
        pytest.fail("no program slabfs: set SLABFS_BINARY")
    return found


@pytest.fixture(scope="session")
def area():
    with tempfile.TemporaryDirectory(prefix="sfspy") as path:
        yield pathlib.Path(path)


@pytest.fixture(scope="session")
def up(area):
    """`slabfs up` with three data servers: socket and mount point."""
    mnt = area / "mnt"
    mnt.mkdir()
    listen = f"unix:{area}/md.sock"
    command = [binary(), "up", "--data", str(area / "data"), "--servers", "3", "--listen", listen, "--daemon", str(mnt)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield listen, mnt
    finally:
        for session in list(slabfs._session._connected.values()):
            session.close()
        subprocess.run([binary(), "umount", str(mnt)], check=True)


@pytest.fixture(scope="session")
def served(up):
    with slabfs.connect(up[0]) as session:
        yield session


@pytest.fixture(scope="session")
def alone(area):
    with slabfs.alone(area / "alone") as session:
        yield session


@pytest.fixture(params=["alone", "served"])
def session(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def container(session):
    """A new container."""
    number = len(session)
    made = session.create_container(f"test{number}")
    yield made
    session.remove(made.path, recursive=True)
