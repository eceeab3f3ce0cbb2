"""The lines of docs/python.md."""

import pathlib
import re

import slabfs

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "python.md"


def test_the_page_is_true(up, monkeypatch):
    connect = slabfs.connect
    monkeypatch.setattr(slabfs, "connect", lambda place: connect(up[0]) if place == "unix:slabfs.sock" else None)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 5
    names = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    with connect(up[0]) as session:
        session.remove("run1", recursive=True)
