"""Arrays and containers as notebooks show them.

Colours are those of the page (``currentColor``), so that light and dark pages can be read, and there is no style sheet.
All that comes from users goes through :func:`_escaped`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import NotFoundError

if TYPE_CHECKING:
    from ._array import Array, Tile
    from ._container import Container

#: Rectangles of a picture, at most.
_BOXES = 400
#: The longer and the shorter side of a picture in pixels, at most and at least.
_SIDE, _THIN = 200, 24
#: Entries of a container that are listed, at most.
_ENTRIES = 100
#: Characters of a text, and of a name in a picture, at most; and pixels of one in a picture.
_TEXT, _LABEL, _LETTER = 200, 16, 6

_HEAD = "margin:0 0 .4em 0"
_CELL = "style='text-align:left;vertical-align:top;padding:.1em .8em .1em 0;white-space:pre-wrap'"


def array(one: Array) -> str:
    """An array: what it is, its attributes, and its chunks."""
    shape, names, stat = one.shape, one.dims, one._native().stat()
    tiles, complete = one._tiles()
    rows: list = [("shape", _shape(shape, names))]
    if stat["max_dims"] != stat["dims"]:
        limits = tuple("unlimited" if length is None else length for length in stat["max_dims"])
        rows.append(("at most", _shape(limits, names)))
    rows += [
        ("dtype", one.dtype),
        ("size", _size(one.nbytes)),
        ("chunks", len(tiles) if complete else "too many to list"),
        ("layout", stat["layout"]),
        ("codec", stat["codec"]),
    ]
    tags = one.attrs.asdict()
    left = _title("Array", one.path) + _table(rows)
    if tags:
        left += f"<div style='margin:.6em 0 0 0;opacity:.7'>Tags</div>{_table(tags.items())}"
    return _side_by_side(left, picture(shape, tiles, names) if complete else "")


def container(one: Container) -> str:
    """A container: its attributes and entries."""
    native = one.session._native
    listed = [(name, kind) for name, kind in native.list(one.path) if kind != "other"]
    rows = []
    for name, kind in listed[:_ENTRIES]:
        path = f"{one.path}/{name}" if one.path else name
        try:
            rows.append((name, *(_entry(native, path) if kind == "object" else ("container", "", ""))))
        except NotFoundError:
            # Another program has removed it.
            continue
    if len(listed) > _ENTRIES:
        rows.append((f"… {len(listed) - _ENTRIES} more", "", "", ""))
    tags = one.attrs.asdict()
    text = _title("Container", f"/{one.path}")
    if tags:
        text += f"{_table(tags.items())}<div style='margin:.6em 0 0 0;opacity:.7'>Entries</div>"
    return f"<div>{text}{_table(rows) if rows else '<em>no entries</em>'}</div>"


def picture(shape: tuple, tiles: Sequence[Tile], names: Sequence = ()) -> str:
    """The chunks of an array as SVG, newer ones over older ones: of its first two axes of more than one element, or as a strip
    of the only one. Along other axes it is a cut, through the first chunk. Chunks of elements at equal steps have a dashed edge.
    """
    if not shape or not all(shape):
        return ""
    axes = [axis for axis, length in enumerate(shape) if length > 1][:2] or [len(shape) - 1]
    names = [*names, *[None] * len(shape)][: len(shape)]
    cut = [axis for axis in range(len(shape)) if axis not in axes]
    tiles = [tile for tile in tiles if len(tile.offset) == len(shape)]
    at = min((tuple(tile.offset[axis] for axis in cut) for tile in tiles), default=(0,) * len(cut))
    seen = [
        tile
        for tile in tiles
        if all(tile.offset[axis] <= place < tile.offset[axis] + tile.shape[axis] for axis, place in zip(cut, at))
    ]
    width, height = _sides(shape, axes)
    boxes = "".join(_box(tile, shape, axes, width, height) for tile in seen[-_BOXES:])
    notes = [
        f"at index {place} of {_label(names[axis], axis)[:_LABEL]}" for axis, place in zip(cut, at) if shape[axis] > 1
    ]
    if len(seen) > _BOXES:
        notes.append(f"the newest {_BOXES} of {len(seen)} chunks")
    return _framed(boxes, width, height, [(_label(names[axis], axis), shape[axis]) for axis in axes], notes)


def _sides(shape: tuple, axes: list) -> tuple:
    """Width and height in pixels."""
    if len(axes) == 1:
        return _SIDE, _THIN
    rows, columns = (shape[axis] for axis in axes)
    longest = max(rows, columns)
    return max(_THIN, _SIDE * columns / longest), max(_THIN, _SIDE * rows / longest)


def _box(tile: Tile, shape: tuple, axes: list, width: float, height: float) -> str:
    """The rectangle of a chunk; what is outside the array's present shape is cut off."""
    spans = []
    for axis in axes:
        first, last = tile.offset[axis], min(tile.offset[axis] + tile.shape[axis], shape[axis])
        if first >= last:
            return ""
        spans.append((first, last, shape[axis]))
    (left, right, columns), (top, bottom, rows) = spans[-1], spans[-2] if len(spans) == 2 else (0, 1, 1)
    place = ", ".join(f"{first}:{last}" for first, last, _ in spans)
    dashed = " stroke-dasharray='3 2' fill-opacity='.35'" if tile.step else ""
    return (
        f"<rect x='{left * width / columns:.1f}' y='{top * height / rows:.1f}' "
        f"width='{(right - left) * width / columns:.1f}' height='{(bottom - top) * height / rows:.1f}'{dashed}>"
        f"<title>[{place}]</title></rect>"
    )


def _framed(boxes: str, width: float, height: float, sides: list, notes: list) -> str:
    """The rectangles in the frame of the array, with the names and lengths of its axes."""
    names = [f"{name[:_LABEL]}: {length}" for name, length in sides]
    # Room for names that are longer than their side.
    left = max(20 if len(sides) == 2 else 1, (len(names[-1]) * _LETTER - width) / 2)
    top = max(1, (len(names[0]) * _LETTER - height) / 2) if len(sides) == 2 else 1
    under = top + height
    full = max([2 * left + width] + [left + len(note) * _LETTER for note in notes]), under + top + 20 + 15 * len(notes)
    texts = [(f"translate({left + width / 2:.0f} {under + 15:.0f})", names[-1])]
    if len(sides) == 2:
        texts.append((f"translate({left - 7:.0f} {top + height / 2:.0f}) rotate(-90)", names[0]))
    labels = "".join(f"<text transform='{at}' text-anchor='middle'>{_escaped(name)}</text>" for at, name in texts)
    labels += "".join(
        f"<text x='{left:.0f}' y='{under + 31 + 15 * line:.0f}'>{_escaped(note)}</text>"
        for line, note in enumerate(notes)
    )
    frame = f"x='0' y='0' width='{width:.1f}' height='{height:.1f}'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{full[0]:.0f}' height='{full[1]:.0f}' "
        f"viewBox='0 0 {full[0]:.0f} {full[1]:.0f}' role='img' aria-label='chunks'>"
        f"<g transform='translate({left:.0f} {top:.0f})'>"
        f"<rect {frame} fill='currentColor' fill-opacity='.06' stroke='none'/>"
        f"<g class='slabfs-chunks' fill='#4a90c2' stroke='currentColor' stroke-width='.7'>{boxes}</g>"
        f"<rect {frame} fill='none' stroke='currentColor' stroke-width='1.2' pointer-events='none'/></g>"
        f"<g fill='currentColor' font-size='11' font-family='sans-serif'>{labels}</g></svg>"
    )


def _entry(native: Any, path: str) -> tuple:
    """Shape, dtype and size of an array, or of a file of bytes."""
    stat = native.stat(path)
    if not stat["declared"]:
        return "file", "", _size(stat["size"])
    from ._array import DIM_NAMES, _names  # which imports this module

    names: list = []
    for key, _, data in native.tags(path):
        if key == DIM_NAMES:
            names = _names(data)
    return _shape(tuple(stat["dims"]), names), np.dtype(stat["dtype"]), _size(stat["size"])


def _shape(shape: tuple, names: Sequence) -> str:
    """A shape with the names of its axes: ``y: 16, x: 16``."""
    named = [*names, *[None] * len(shape)]
    return (
        ", ".join(f"{name}: {length}" if name else str(length) for name, length in zip(named, shape)) or "one element"
    )


def _label(name: Any, axis: int) -> str:
    return str(name) if name else f"axis {axis}"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""


def _escaped(value: Any, longest: int = _TEXT) -> str:
    """A value as text that HTML shows as it is. Names that are not UTF-8 have a replacement character."""
    text = str(value.tolist() if isinstance(value, np.ndarray) and value.size < longest else value)
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return html.escape(text.encode("utf-8", "replace").decode())


def _title(kind: str, path: str) -> str:
    return f"<div style='{_HEAD}'>{kind} <strong>{_escaped(path)}</strong></div>"


def _table(rows: Iterable) -> str:
    """Rows of cells; the first of each is a name."""
    lines = []
    for name, *values in rows:
        cells = "".join(f"<td {_CELL}>{_escaped(value)}</td>" for value in values)
        lines.append(f"<tr><th scope='row' {_CELL}>{_escaped(name)}</th>{cells}</tr>")
    return f"<table style='margin:0'><tbody>{''.join(lines)}</tbody></table>"


def _side_by_side(left: str, right: str) -> str:
    return (
        "<div style='display:flex;flex-wrap:wrap;gap:2em;align-items:flex-start'>"
        f"<div>{left}</div>{f'<div>{right}</div>' if right else ''}</div>"
    )
