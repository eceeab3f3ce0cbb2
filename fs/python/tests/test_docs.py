"""The lines of docs/python.md."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import slabfs

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def _blocks():
    """Programs of their own, which begin with their name, and the other blocks."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    programs = {found[1]: block for block in blocks if (found := re.match(r"# (\w+\.py): ", block))}
    return programs, [block for block in blocks if block not in programs.values()]


def test_the_readme_is_true(up, served, monkeypatch, capsys):
    readme = PAGE.parents[1] / "README.md"
    (block,) = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    temp = served.create_array("temp", shape=(16, 16), dtype="f4", attrs={"project": "climate"})
    temp[0:10, 0:9] = 1
    # Where the README's shell is.
    monkeypatch.chdir(up[1].parent)
    exec(compile(block, str(readme), "exec"), {})
    assert capsys.readouterr().out == "[1. 1. 1. 1.] climate [((0, 0), (10, 9)), ((12, 0), (4, 15), (1, 2))]\n"
    assert (temp[12:, ::2] == 273.5).all()
    served.remove("temp")


def test_ranks_write_at_once(up, served, tmp_path):
    pytest.importorskip("mpi4py")
    program = tmp_path / "ranks.py"
    program.write_text(_blocks()[0]["ranks.py"].replace("unix:slabfs.sock", up[0]))
    # The wheel of mpi4py takes the library that it finds first, which is Open MPI's here.
    mpiexec = shutil.which("mpiexec.openmpi")
    if mpiexec is None:
        pytest.skip("Open MPI is not there")
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "TMPDIR": str(tmp_path),
    }
    command = [mpiexec, "--oversubscribe", "-n", "4", sys.executable, str(program)]
    subprocess.run(command, check=True, timeout=120, env=environment)
    field = served["field"]
    assert field.shape == (32, 16)
    assert sorted(field.tiling) == [((row, 0), (4, 16)) for row in range(0, 32, 4)]
    served.remove("field")


def test_the_page_is_true(up, monkeypatch):
    connect = slabfs.connect
    monkeypatch.setattr(slabfs, "connect", lambda place: connect(up[0]) if place == "unix:slabfs.sock" else None)
    programs, blocks = _blocks()
    assert len(programs) == 1 and len(blocks) >= 5
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    with connect(up[0]) as session:
        session.remove("run1", recursive=True)
