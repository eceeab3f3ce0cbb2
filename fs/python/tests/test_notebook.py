"""The notebook docs/python.ipynb runs, and shows what it says; and the HTML of arrays and containers."""

import base64
import html.parser
import io
import json
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import slabfs
from slabfs import _html
from slabfs._array import Tile

NOTEBOOK = pathlib.Path(__file__).parents[3] / "docs" / "python.ipynb"
#: Seconds that a cell may take, and the kernel to start.
LIMIT = 120
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def executed(up, area):
    """The cells of the notebook by their ids, after this interpreter has executed them; and a session."""
    for name in ("nbclient", "ipykernel", "matplotlib", "xarray", "dask"):
        pytest.importorskip(name)
    import nbclient
    import nbformat
    from traitlets.config import Config

    area = area / "notebook"
    spec = area / "jupyter" / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))
    work = area / "work"
    work.mkdir()
    package = str(pathlib.Path(slabfs.__file__).parents[1])
    environment = {
        "SLABFS_MD": up[0],
        "SLABFS_MOUNT": str(up[1]),
        "PYTHONPATH": os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")])),
        "JUPYTER_PATH": str(area / "jupyter"),
        "JUPYTER_DATA_DIR": str(area / "data"),
        "JUPYTER_CONFIG_DIR": str(area / "config"),
        "JUPYTER_RUNTIME_DIR": str(area / "runtime"),
        "IPYTHONDIR": str(area / "ipython"),
        "MPLCONFIGDIR": str(area / "matplotlib"),
    }
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    with pytest.MonkeyPatch.context() as patch, slabfs.connect(up[0]) as session:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.delenv("MPLBACKEND", raising=False)
        patch.delenv("SLABFS_KEY_FILE", raising=False)
        client = nbclient.NotebookClient(
            notebook,
            timeout=LIMIT,
            startup_timeout=LIMIT,
            kernel_name="python3",
            # Sockets of short names, that of the connection file and a number, in place of ports.
            config=Config(KernelManager={"transport": "ipc", "connection_file": str(area / "kernel")}),
            resources={"metadata": {"path": str(work)}},
            # Errors are reported by the tests, with the cell that has them.
            allow_errors=True,
        )
        before = sorted(session)
        try:
            # An earlier run has left something.
            session.create_container("notebook").create_container("model").create_array("air", shape=(2,))
            client.execute()
            yield {cell.id: cell for cell in notebook.cells}, session
        finally:
            if "notebook" in session:
                session.remove("notebook", recursive=True)
        assert sorted(session) == before


def _printed(cell):
    return "".join(one.text for one in cell.outputs if one.output_type == "stream" and one.name == "stdout")


def _shown(cell, kind):
    return [one.data[kind] for one in cell.outputs if kind in one.get("data", {})]


def _chunks(text):
    """The rectangles of the chunks in a picture, by the boxes that their titles name."""
    found = {}
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
            if group.get("class") == "slabfs-chunks":
                for rect in group:
                    place = tuple(float(rect.get(side)) for side in ("x", "y", "width", "height"))
                    found[rect.find(f"{SVG}title").text] = place
    return found


def test_it_is_stored_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text())
    cells = notebook["cells"]
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    assert (notebook["nbformat"], notebook["nbformat_minor"]) >= (4, 5)
    # The ids are words, so that no tool has made them by chance.
    assert len({cell["id"] for cell in cells}) == len(cells)
    assert all(re.fullmatch("[a-z]+", cell["id"]) for cell in cells)
    assert [cell["id"] for cell in cells if "setup" in cell["metadata"].get("tags", ())] == ["setup"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(codes) >= 9
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in codes)
    assert len(NOTEBOOK.read_bytes()) < 20_000


def test_no_cell_fails(executed):
    cells, _ = executed
    for name, cell in cells.items():
        for one in cell.get("outputs", ()):
            text = "\n".join(one.get("traceback", ())) or one.get("text", "")
            assert one.output_type != "error", f"cell {name}: {text}"
            if one.output_type == "stream" and one.name == "stderr":
                # A new MPLCONFIGDIR has no list of fonts yet.
                assert "font cache" in text, f"cell {name} warns: {text}"
        if cell.cell_type == "code":
            assert cell.execution_count, name


def test_the_numbers_are_right(executed):
    cells, session = executed
    expected = np.zeros((16, 16), dtype="f4")
    expected[0:10, 0:9] = np.arange(90).reshape(10, 9)
    expected[0:10, 9:16] = 100
    expected[10:16] = 200
    expected[6:12, 6:12] = 300
    assert np.array_equal(session["notebook/temp"][...], expected)
    indexed = [expected[3, :4], expected[::5, -1], expected[[0, 3], [2, 2]], expected[np.ix_([0, 3, 8], [1, 8])]]
    assert _printed(cells["indexing"]).splitlines() == "\n".join(map(str, indexed)).splitlines()
    assert float(_printed(cells["together"])) == expected.sum()
    paths = ["notebook/temp", "notebook/temp4", "notebook/temp5"]
    assert _printed(cells["find"]).strip() == str(paths)


def test_the_data_set_is_right(executed):
    cells, session = executed
    air, lat = session["notebook/model/air"], session["notebook/model/lat"]
    assert air.dims == ("time", "lat", "lon") and air.shape == (59, 36, 72) and air.attrs["units"] == "K"
    assert sorted(air.tiling) == [((0, 0, 0), (31, 36, 72)), ((31, 0, 0), (28, 36, 72))]
    sizes, chunks, *months = _printed(cells["open"]).splitlines()
    assert sizes == "{'time': 59, 'lat': 36, 'lon': 72}"
    assert chunks == "((31, 28), (36,), (72,))"
    values, weights = air[...].astype("f8"), np.cos(np.deg2rad(lat[...]))
    days = (values.mean(axis=2) * weights).sum(axis=1) / weights.sum()
    numbers = [re.fullmatch(r"month (\d): ([\d.]+) K", line).groups() for line in months]
    assert [month for month, _ in numbers] == ["1", "2"]
    assert [float(kelvin) for _, kelvin in numbers] == pytest.approx([days[:31].mean(), days[31:].mean()], abs=2e-3)


def test_the_html_has_the_tiling(executed):
    cells, _ = executed
    (shown,) = _shown(cells["write"], "text/html")
    side = 200 / 16
    assert _chunks(shown) == {
        "[0:10, 0:9]": (0, 0, 9 * side, 10 * side),
        "[0:10, 9:16]": (9 * side, 0, 7 * side, 10 * side),
        "[10:16, 0:16]": (0, 10 * side, 16 * side, 6 * side),
        "[6:12, 6:12]": (6 * side, 6 * side, 6 * side, 6 * side),
    }
    for part in ("y: 16, x: 16", "float32", "units", "step", "notebook/temp", "1.0 KiB"):
        assert part in shown
    (shown,) = _shown(cells["find"], "text/html")
    assert all(part in shown for part in ("temp", "temp4", "temp6", "y: 16, x: 16", "int64"))
    (shown,) = _shown(cells["dataset"], "text/html")
    assert list(_chunks(shown)) == ["[0:31, 0:36]", "[31:59, 0:36]"]
    assert "time: 59, lat: 36, lon: 72" in shown and "at index 0 of lon" in shown


def test_the_pictures_are_pictures(executed):
    import matplotlib.image

    cells, _ = executed
    for name in ("plot", "view"):
        (shown,) = _shown(cells[name], "image/png")
        data = base64.b64decode(shown)
        assert data.startswith(b"\x89PNG\r\n\x1a\n"), name
        pixels = matplotlib.image.imread(io.BytesIO(data), format="png")
        height, width = pixels.shape[:2]
        assert 200 <= height <= 1000 and 400 <= width <= 1200, (name, pixels.shape)
        colours = np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)
        assert len(colours) > 100, (name, len(colours))
        assert all(np.ptp(colours[:, channel]) > 0.5 for channel in range(3)), name


class _Elements(html.parser.HTMLParser):
    """The elements and attributes of HTML, and its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.texts = set(), set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data):
        self.texts.append(data)


def test_what_users_name_is_text(container):
    nasty = "<script>alert('1')</script>\"&amp;"
    name = nasty.replace("/", "")
    attrs = {nasty: nasty, "list": [nasty, 1], "bytes": b"<script>\xff", "numbers": np.arange(5)}
    dtype = [("<script>", "i4"), ("'><b>", "f8")]
    made = container.create_array(name, shape=(4, 6), dtype=dtype, dims=("<i>'\"&", "</svg><b>"), attrs=attrs)
    made[1:3, 0:2] = np.zeros((2, 2), dtype=dtype)
    container.attrs[nasty] = nasty
    shown = made._repr_html_()
    assert list(_chunks(shown)) == ["[1:3, 0:2]"]
    for text in (shown, container._repr_html_()):
        found = _Elements(text)
        assert found.elements <= {
            "div",
            "strong",
            "table",
            "tbody",
            "tr",
            "th",
            "td",
            "svg",
            "g",
            "rect",
            "title",
            "text",
        }
        assert not {one for one in found.attributes if one.startswith("on") or one in ("href", "src")}
        assert found.texts.count(nasty) == 2 and any(name in one for one in found.texts)
    assert "[0, 1, 2, 3, 4]" in _Elements(shown).texts
    long = container.create_array("long", data=np.zeros(3), attrs={"history": "h" * 10_000})
    assert len(long._repr_html_()) < 6000


def test_names_that_are_not_utf8_are_shown(container):
    # Messages of a kernel are UTF-8.
    container.create_container("caf\udce9")
    container._repr_html_().encode()
    assert "caf?" in container._repr_html_()


def test_containers_are_shown(session, container):
    container.create_container("inner")
    container.create_array("a", data=np.zeros((2, 3), dtype="f4"), dims=("y", None), attrs={"k": 1})
    texts = _Elements(container._repr_html_()).texts
    assert texts == ["Container ", f"/{container.path}", "a", "y: 2, 3", "float32", "24 B", "inner", "container"]
    assert "no entries" in container["inner"]._repr_html_()
    assert f"{container.path}" in session._repr_html_()
    for number in range(101):
        container["inner"].create_container(f"c{number:03}")
    assert _Elements(container["inner"]._repr_html_()).texts[-1] == "… 1 more"


def test_chunks_that_are_not_listed_are_not_drawn(container):
    # The layout does not list the chunks of grids of more than 100,000 cells.
    grid = container.create_array("g", shape=(500, 500), dtype="i1", layout="grid:1,1")
    grid[0, 0:2] = 1
    text = grid._repr_html_()
    assert "too many to list" in text and "<svg" not in text


def test_pictures_of_chunks():
    def picture(shape, tiles, *names):
        return _html.picture(shape, [Tile(*tile) for tile in tiles], *names)

    def drawn(*args):
        return _chunks(picture(*args))

    assert picture((), []) == "" and picture((0, 3), []) == ""
    # One axis is a strip; what is outside the shape is not drawn.
    assert drawn((10,), [((0,), (2,)), ((8,), (4,)), ((10,), (2,))]) == {
        "[0:2]": (0, 0, 40, 24),
        "[8:10]": (160, 0, 40, 24),
    }
    # Of more axes the first two of more than one element, cut where the first chunk is.
    deep = [((2, 0, 0, 5), (1, 1, 3, 1)), ((3, 0, 0, 5), (2, 1, 4, 1)), ((2, 0, 3, 6), (1, 1, 1, 1))]
    text = picture((5, 1, 4, 8), deep, ("t", "single", "y", "x"))
    assert list(_chunks(text)) == ["[2:3, 0:3]", "[3:5, 0:4]"]
    assert "at index 5 of x" in text and "t: 5" in text and "y: 4" in text and "single" not in text
    assert list(drawn((1, 1), [((0, 0), (1, 1))])) == ["[0:1]"]
    # Long and thin ones can be seen.
    ((_, _, width, height),) = drawn((1_000_000, 2), [((0, 0), (1_000_000, 2))]).values()
    assert (width, height) == (24, 200)
    # The newest are drawn if there are many.
    many = [((row, 0), (1, 5)) for row in range(1000)]
    text = picture((1000, 5), many)
    assert list(_chunks(text)) == [f"[{row}:{row + 1}, 0:5]" for row in range(600, 1000)]
    assert "newest 400 of 1000" in text and len(text) < 60_000


def test_pictures_are_read_on_dark_pages(container):
    made = container.create_array("a", shape=(4, 4), dtype="i4", attrs={"k": "v"})
    made[0:2, 0:2] = 1
    made[::2, 3] = 1
    text = made._repr_html_()
    # The chunks have the only colour of its own; all else has that of the page's text.
    assert re.findall("#[0-9a-f]{3,8}", text) == ["#4a90c2"]
    assert set(re.findall("(?:fill|stroke)='([^'0-9]+)'", text)) == {"currentColor", "none"}
    assert "background" not in text and "stroke-dasharray" in text.split("[0:3, 3:4]")[0].rsplit("<rect", 1)[1]
    assert "dasharray" not in text.split("[0:2, 0:2]")[0]
