"""What `slabfs view` and `slabfs layout --png` draw.

    pictures.py colours MOUNT     the pixels of pictures, compared with Matplotlib's colours of the same elements
    pictures.py terminal MOUNT    what a terminal gets that can show kitty's pictures, sixels, colours, or nothing of these
    pictures.py large MOUNT       an array of 64 GiB
"""
import base64
import io
import os
import pty
import re
import select
import subprocess
import sys

import matplotlib
import numpy as np
from matplotlib import image

SLABFS = os.environ["SLABFS"]


def slabfs(*arguments):
    done = subprocess.run([SLABFS, *arguments], check=True, capture_output=True, text=True)
    return done.stdout


def array(path, data, **tags):
    slabfs("create", path, "--dtype", data.dtype.str.lstrip("<|"), "--dims", ",".join(map(str, data.shape)))
    data.tofile(path)
    for key, value in tags.items():
        slabfs("tag", path, f"{key}={value}")


def expected(data, name, low=None, high=None):
    """Matplotlib's pixels of these elements."""
    values = data.astype("f8")
    known = values[np.isfinite(values)]
    norm = matplotlib.colors.Normalize(known.min() if low is None else low, known.max() if high is None else high)
    pixels = matplotlib.colormaps[name](norm(np.ma.masked_invalid(values)), bytes=True)[..., :3].copy()
    pixels[np.isnan(values)] = 0xC8
    return pixels


def pixels_of(file):
    return (image.imread(file, format="png")[..., :3] * 255).round().astype("u1")


def drawn(svg):
    """Place, size and pixels of the picture in a drawing, and not of its colour bar."""
    pattern = r'<image x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)".*?base64,([^"]+)"'
    found = re.search(pattern, svg, re.DOTALL)
    place = tuple(round(float(number)) for number in found.groups()[:4])
    return place, pixels_of(io.BytesIO(base64.b64decode(found[5])))


def check(path, wanted, *arguments):
    """Both files have the wanted pixels: the picture in the SVG file one, that in the PNG file a square, for each element."""
    directory = os.path.dirname(path)
    svg, png = f"{directory}/drawn.svg", f"{directory}/drawn.png"
    for file in svg, png:
        slabfs("view", path, *arguments, "-o", file)
    with open(svg) as file:
        (x, y, width, height), pixels = drawn(file.read())
    np.testing.assert_array_equal(pixels, wanted)
    down, across = height // len(wanted), width // len(wanted[0])
    assert down >= 1 and across >= 1
    part = pixels_of(png)[y : y + height, x : x + width]
    np.testing.assert_array_equal(part, wanted.repeat(down, axis=0).repeat(across, axis=1))


def colours(mnt):
    generator = np.random.default_rng(5)
    data = generator.normal(280, 10, size=(3, 40, 60)).astype("f4")
    data[0, 3:7, 5:20] = np.nan
    path = f"{mnt}/plain"
    array(path, data)
    check(path, expected(data[0], "viridis"))
    check(path, expected(data[1, ::3, 10:50], "inferno"), "[1, ::3, 10:50]", "--map", "inferno")
    check(f"{path}@[2]", expected(data[2], "coolwarm", 270, 290), "--map", "coolwarm", "--range", "270,290")
    check(path, expected(data[:, 4, :], "cividis"), "[:, 4]", "--map", "cividis")
    # Every dtype.
    for dtype in "i1", "u2", ">i4", "i8", "u8", "f2", ">f8", "b1":
        own = (data[1] > 280 if dtype == "b1" else data[1] * 0.3).astype(dtype)
        array(f"{mnt}/{dtype}", own)
        check(f"{mnt}/{dtype}", expected(own, "viridis"))
    array(f"{mnt}/c8", (data[1] + 1j * data[2]).astype("c8"))
    check(f"{mnt}/c8", expected(np.hypot(data[1].astype("f8"), data[2].astype("f8")), "viridis"))
    # With more elements than pixels, every so many of them.
    large = generator.normal(size=(1500, 2000)).astype("f4")
    array(f"{mnt}/large", large)
    check(f"{mnt}/large", expected(large[::3, ::3], "viridis"))
    check(f"{mnt}/large", expected(large[100::6, ::6], "viridis"), "[100:, :]", "--size", "600x500")
    # Packed by the CF conventions, with coordinates: north is up.
    os.mkdir(f"{mnt}/cf")
    packed = generator.integers(0, 1000, size=(20, 30)).astype("i2")
    packed[4, 4] = -1
    array(f"{mnt}/cf/temp", packed, dim_names='["lat","lon"]', units="K", _FillValue=-1, scale_factor=0.5, add_offset=3)
    array(f"{mnt}/cf/lat", np.linspace(-90, 90, 20), units="degrees_north")
    values = np.where(packed == -1, np.nan, packed * 0.5 + 3)
    check(f"{mnt}/cf/temp", expected(values[::-1], "viridis"))
    with open(f"{mnt}/cf/drawn.svg") as file:
        svg = file.read()
    for text in ">lat (degrees_north)<", ">lon<", ">K<", ">-80<", ">80<", "without a value 1 of 600":
        assert text in svg, text
    # A line, and one element.
    slabfs("view", path, "[1, 5]", "-o", f"{mnt}/line.svg")
    with open(f"{mnt}/line.svg") as file:
        points = re.search(r'<polyline points="([^"]+)" fill="none" stroke="#1f77b4"', file.read())[1].split()
    heights = np.array([float(point.split(",")[1]) for point in points])
    assert len(points) == 60
    assert heights.argmin() == data[1, 5].argmax() and heights.argmax() == data[1, 5].argmin()
    one = slabfs("view", path, "[1, 5, 7]")
    assert one.startswith(f"{path}, axis 0[1], axis 1[5], axis 2[7] = "), one
    assert np.isclose(float(one.split("= ")[1]), data[1, 5, 7], rtol=1e-6)
    # The chunks as a picture.
    slabfs("layout", path, "--png", f"{mnt}/layout.png")
    assert pixels_of(f"{mnt}/layout.png").shape[1] > 400


def answered(command, answer):
    """What a program writes to a terminal that answers its question so."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.pop("NO_COLOR", None)
        os.execv(command[0], command)
    out, asked = b"", False
    while True:
        if not select.select([terminal], [], [], 30)[0]:
            raise TimeoutError(out)
        try:
            part = os.read(terminal, 65536)
        except OSError:
            part = b""
        if not part:
            break
        out += part
        if not asked and b"\x1b[c" in out:
            asked = True
            os.write(terminal, answer)
    status = os.waitpid(process, 0)[1]
    assert status == 0, (status, out)
    assert asked
    return out.replace(b"\r\n", b"\n")


def terminal(mnt):
    data = np.arange(48, dtype="f4").reshape(6, 8)
    path = f"{mnt}/plain"
    array(path, data)
    command = [SLABFS, "view", path]
    # Pictures of kitty's protocol are the file that -o writes.
    out = answered(command, b"\x1b_Gi=31;OK\x1b\\\x1b[?62;c")
    parts = re.findall(rb"\x1b_G[^;\x1b]*m=[01];([^\x1b]*)\x1b\\", out)
    slabfs("view", path, "-o", f"{mnt}/picture.png")
    with open(f"{mnt}/picture.png", "rb") as file:
        assert base64.b64decode(b"".join(parts)) == file.read()
    out = answered(command, b"\x1b[?62;4;22c")
    assert out.count(b"\x1bPq") == 1 and out.count(b"\x1b\\\n") == 1, out[:200]
    # Half blocks: two rows of elements a line. Also in a terminal that does not answer as one should.
    for answer in b"\x1b[?62;22c", b"c":
        out = answered(command, answer).decode()
        lines = [line for line in out.splitlines() if line.count("\u2580") == 8]
        found = [re.findall(r"\x1b\[38;2;(\d+);(\d+);(\d+)m\x1b\[48;2;(\d+);(\d+);(\d+)m", line) for line in lines]
        pixels = np.array(found, dtype=int).reshape(3, 8, 2, 3).transpose(0, 2, 1, 3).reshape(6, 8, 3)
        np.testing.assert_array_equal(pixels, expected(data, "viridis"))
        assert "down: axis 0, 0 to 5" in out and "max 47" in out
    # What is no terminal has characters.
    plain = slabfs("view", path).splitlines()
    wanted = [[" .:-=+*#%@"[min(int(value / 47 * 256), 255) * 10 // 256] for value in row] for row in data]
    assert plain[2:8] == ["".join(row).rstrip() for row in wanted], plain
    assert plain[8:] == [
        "down: axis 0, 0 to 5",
        "across: axis 1, 0 to 7",
        "0  .:-=+*#%@ 47.0",
        "min 0  max 47.0  mean 23.5  std 13.9",
    ], plain


def large(mnt):
    path = f"{mnt}/large"
    slabfs("create", path, "--dtype", "f4", "--dims", "131072,131072", "--layout", "grid:8192,8192")
    svg = f"{mnt}/large.svg"
    slabfs("view", path, "-o", svg)
    with open(svg) as file:
        step = int(re.search(r"\[::(\d+), ::\d+\]", file.read())[1])
    np.arange(131072, dtype="f4").tofile(f"{path}@[{300 * step}, :]")
    slabfs("view", path, "-o", svg)
    with open(svg) as file:
        _, pixels = drawn(file.read())
    assert len(pixels) == -(-131072 // step)
    row = np.arange(0, 131072, step, dtype="f4")
    np.testing.assert_array_equal(pixels[300], expected(row, "viridis", 0, row.max()))
    slabfs("view", path, f"[{300 * step}]", "-o", svg)
    with open(svg) as file:
        assert "min 0  max 131071" in file.read()


{"colours": colours, "terminal": terminal, "large": large}[sys.argv[1]](sys.argv[2])
