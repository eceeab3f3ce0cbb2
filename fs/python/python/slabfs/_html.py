"""Arrays and containers as notebooks show them."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._array import Array
    from ._container import Container

#: Boxes of a picture, at most.
_BOXES = 2000
#: Side of a picture in pixels.
_SIDE = 160


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _rows(rows: list) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def picture(shape: tuple, tiles: list) -> str:
    """The chunks of an array as SVG: of the last two axes, at the first index of the others."""
    if not shape or not all(shape):
        return ""
    rows, columns = (1, shape[0]) if len(shape) == 1 else shape[-2:]
    longest = max(rows, columns)
    height = max(16.0, _SIDE * rows / longest)
    width = max(16.0, _SIDE * columns / longest)
    boxes = []
    for offset, lengths in tiles[-_BOXES:]:
        if any(at > 0 for at in offset[:-2]):
            continue
        top, tall = (0, 1) if len(shape) == 1 else (offset[-2], lengths[-2])
        left, wide = offset[-1], lengths[-1]
        boxes.append(
            f"<rect x='{left * width / columns:.1f}' y='{top * height / rows:.1f}' "
            f"width='{wide * width / columns:.1f}' height='{tall * height / rows:.1f}' "
            "fill='#8ecae6' stroke='#023047' stroke-width='0.5'/>"
        )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width:.0f}' height='{height:.0f}' "
        f"viewBox='0 0 {width:.0f} {height:.0f}'>"
        f"<rect width='100%' height='100%' fill='#f4f4f4' stroke='#023047' stroke-width='1'/>{''.join(boxes)}</svg>"
    )


def array(one: Array) -> str:
    """An array: what it is, its attributes, and its chunks."""
    shape = one.shape
    tiles = one.tiling
    rows = [
        ("path", one.path),
        ("shape", shape),
        ("dtype", one.dtype),
        ("bytes", _size(one.nbytes)),
        ("layout", one.layout),
        ("codec", one.codec),
        ("chunks", len(tiles)),
        *one.attrs.asdict().items(),
    ]
    return f"<div style='display:flex;gap:1em'>{_rows(rows)}<div>{picture(shape, tiles)}</div></div>"


def container(one: Container) -> str:
    """A container: its attributes and entries."""
    entries = []
    for name, kind in one._session._native.list(one._path):
        stat = one._session._native.stat(f"{one._path}/{name}" if one._path else name)
        shown = f"{stat['dtype']} {tuple(stat['dims'])}" if kind == "object" else kind
        entries.append((str(name), shown))
        if len(entries) == 100:
            entries.append(("…", ""))
            break
    head = [("path", f"/{one.path}"), *one.attrs.asdict().items()]
    return f"<div>{_rows(head)}{_rows(entries)}</div>"
