"""Makes decomposed model output, and compares a joined file with all of it.

    tiles.py make KIND DIR       writes DIR/ocean.nc.0000 and so on, and prints how many
    tiles.py check FILE TILE...  every value of FILE against every tile, and everything else against the first
    tiles.py kinds               lists the kinds

The large kinds have temp, salt and u (time, z, y, x) and ssh (time, y, x) of 7 x 8 x 1080 x 1440 float32, 1.1 GB, smooth with
noise, deflate 4 and shuffle, with a chunk for each level of a tile: `16` tiles whose chunks are aligned, `240` tiles with
42,000 chunks, and `49` uneven tiles. `small-SEED` is a random decomposition of small variables with random types, chunks,
filters, byte orders, halos, gaps and groups. The same values come out each time.
"""
import sys

import netCDF4
import numpy as np

SHAPE = {"time": 7, "z": 8, "y": 1080, "x": 1440}
FILL = np.float32(-1e20)


def cuts(length, parts):
    """Where parts of nearly the same length begin and end."""
    edges = [length * i // parts for i in range(parts + 1)]
    return list(zip(edges, edges[1:]))


FIELDS = {"temp": (15, 10, 0.02), "salt": (35, 2, 0.005), "u": (0, 0.5, 0.002), "ssh": (0, 1, 0.001)}


def plane(name, t, z):
    """A smooth field with noise."""
    y, x = np.ogrid[0:SHAPE["y"], 0:SHAPE["x"]]
    mean, height, noise = FIELDS[name]
    rng = np.random.default_rng([list(FIELDS).index(name), t, z])
    smooth = mean + height * np.cos(y / 170 + z / 3) * np.sin(x / 230 + t / 2)
    return (smooth + noise * rng.standard_normal((SHAPE["y"], SHAPE["x"]))).astype("f4")


def create(path, box, count):
    """A tile with everything but the fields."""
    d = netCDF4.Dataset(path, "w")
    d.title, d.filename, d.NumFilesInSet = "model output", path.rsplit("/", 1)[-1], np.int32(count)
    d.history = "made by tiles.py"
    for name in SHAPE:
        d.createDimension(name, None if name == "time" else box[name][1] - box[name][0] if name in box else SHAPE[name])
    for name in "x", "y", "z", "time":
        v = d.createVariable(name, "f8", (name,))
        v.units = {"x": "degrees_E", "y": "degrees_N", "z": "m", "time": "days since 2000-01-01"}[name]
        v[:] = np.arange(*box.get(name, (0, SHAPE[name]))) * 0.25
        if name in box:
            v.domain_decomposition = np.array([1, SHAPE[name], box[name][0] + 1, box[name][1]], "i4")
    area = tuple(box[n][1] - box[n][0] for n in "yx")
    for name in FIELDS:
        levels = name != "ssh"
        dims, chunk = (("time", "z", "y", "x"), (1, 1, *area)) if levels else (("time", "y", "x"), (1, *area))
        v = d.createVariable(name, "f4", dims, zlib=True, complevel=4, shuffle=True, fill_value=FILL, chunksizes=chunk)
        v.units = {"temp": "degC", "salt": "psu", "u": "m s-1", "ssh": "m"}[name]
        v.set_var_chunk_cache(1 << 20, 11, 1.0)
    return d


def make_large(kind, directory):
    columns, rows = {"16": (4, 4), "240": (20, 12), "49": (7, 7)}[kind]
    boxes = [{"y": y, "x": x} for y in cuts(SHAPE["y"], rows) for x in cuts(SHAPE["x"], columns)]
    paths = ["%s/ocean.nc.%04d" % (directory, number) for number in range(len(boxes))]
    files = [create(path, box, len(boxes)) for path, box in zip(paths, boxes)]
    for name in FIELDS:
        for t in range(SHAPE["time"]):
            for z in range(SHAPE["z"] if name != "ssh" else 1):
                field = plane(name, t, z)
                for box, d in zip(boxes, files):
                    part = field[slice(*box["y"]), slice(*box["x"])]
                    if name == "ssh":
                        d[name][t] = part
                    else:
                        d[name][t, z] = part
    for d in files:
        d.close()
    return paths


TYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


def make_small(seed, directory):
    """A random decomposition. What is in several tiles is equal, so it can be joined."""
    rng = np.random.default_rng(seed)
    classic = rng.random() < 0.2
    form = rng.choice(["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]) if classic else "NETCDF4"
    shape = {"time": int(rng.integers(1, 4)), "z": int(rng.integers(1, 4)), "y": int(rng.integers(3, 24)), "x": int(rng.integers(3, 24))}
    first = {n: int(rng.integers(-5, 600)) for n in "yx"}

    def ranges(n):
        parts = int(rng.integers(1, min(5, shape[n]) + 1))
        if rng.random() < 0.5:
            return cuts(shape[n], parts)
        edges = [0, *sorted(rng.choice(np.arange(1, shape[n]), parts - 1, replace=False).tolist()), shape[n]]
        return list(zip(edges, edges[1:]))

    halo = int(rng.integers(1, 3)) if rng.random() < 0.3 else 0
    boxes = [{"y": y, "x": x} for y in ranges("y") for x in ranges("x")]
    boxes = [{n: (max(0, b[n][0] - halo), min(shape[n], b[n][1] + halo)) for n in "yx"} for b in boxes]
    if rng.random() < 0.3 and len(boxes) > 2:
        boxes.pop(int(rng.integers(1, len(boxes))))
    variables = []
    for number in range(int(rng.integers(1, 7))):
        dims = [("time", "z", "y", "x"), ("y", "x"), ("time", "y", "x"), ("x",), ("z", "x"), ("time", "z"), ("x", "y"), ()][int(rng.integers(8))]
        typ = str(rng.choice(TYPES if form in ("NETCDF4", "NETCDF3_64BIT_DATA") else ["i1", "i2", "i4", "f4", "f8"]))
        size = [shape[d] for d in dims]
        values = rng.integers(0, 120, size) if typ[0] in "iu" else rng.normal(size=size)
        options = {"fill_value": np.dtype(typ).type(119)} if rng.random() < 0.5 else {}
        if not classic and dims:
            options["endian"] = str(rng.choice(["little", "big", "native"]))
            if rng.random() < 0.7:
                options.update(zlib=True, complevel=int(rng.integers(1, 10)), shuffle=bool(rng.random() < 0.5), fletcher32=bool(rng.random() < 0.3))
        wanted = int(rng.integers(1, 9)) if rng.random() < 0.6 else None
        variables.append(("v%d" % number, typ, dims, np.asarray(values).astype(typ), options, wanted))
    grouped = not classic and rng.random() < 0.3
    other_order = not classic and rng.random() < 0.2
    paths = []
    for number, box in enumerate(boxes):
        paths.append("%s/ocean.nc.%04d" % (directory, number))
        with netCDF4.Dataset(paths[-1], "w", format=form) as d:
            d.NumFilesInSet, d.title = np.int32(len(boxes)), "small %d" % seed
            for n in shape:
                d.createDimension(n, None if n == "time" else box[n][1] - box[n][0] if n in box else shape[n])
            for n in "yx":
                v = d.createVariable(n, "f8", (n,))
                v.domain_decomposition = np.array([first[n], first[n] + shape[n] - 1, first[n] + box[n][0], first[n] + box[n][1] - 1], "i4")
                v[:] = np.arange(*box[n]) * 0.5
            v = d.createVariable("time", "f8", ("time",))
            v[:] = np.arange(shape["time"])
            for name, typ, dims, values, options, wanted in variables:
                part = values[tuple(slice(*box[n]) if n in box else slice(None) for n in dims)]
                options = dict(options)
                if other_order and number % 2 and dims:
                    options["endian"] = "big"
                if wanted and not classic and dims:
                    # Tiles of other chunks here and there.
                    wanted += number % 2 if seed % 3 == 0 else 0
                    options["chunksizes"] = [max(1, min(wanted, s)) for s in part.shape]
                typ = np.dtype(typ).newbyteorder({"little": "<", "big": ">"}.get(options.get("endian"), "="))
                where = d.createGroup("below") if grouped and name in ("v1", "v2") else d
                v = where.createVariable(name, typ, dims, **options)
                v.set_auto_maskandscale(False)
                v.units = "m"
                if not (seed % 7 == 0 and number % 3 == 1 and dims == ("y", "x") and not halo):
                    v[...] = part
    return paths


def bits(x):
    x = np.ma.getdata(np.asarray(x))
    return x.astype(x.dtype.newbyteorder("=")).tobytes()


def groups(g, path=""):
    yield path, g
    for name, below in g.groups.items():
        yield from groups(below, path + "/" + name)


def fail(text):
    sys.exit("tiles.py: " + text)


def place(d, v, dims):
    """The box of a variable of a tile in everything; None if it is not decomposed."""
    box, found = [], False
    for name, length in zip(v.dimensions, v.shape):
        c = dims.get(name)
        if c is None:
            box.append(slice(0, length))
        else:
            found = True
            box.append(slice(c[2] - c[0], c[2] - c[0] + length))
    return tuple(box) if found else None


def check(out, tiles):
    joined = netCDF4.Dataset(out)
    raw(joined)
    covered, values = {}, 0
    seen = None
    for number, path in enumerate(tiles):
        tile = netCDF4.Dataset(path)
        raw(tile)
        dims = {n: [int(i) for i in v.domain_decomposition] for n, v in tile.variables.items() if "domain_decomposition" in v.ncattrs()}
        names = sorted(p + "/" + n for p, g in groups(tile) for n in g.variables)
        have = sorted(p + "/" + n for p, g in groups(joined) for n in g.variables)
        names == have or fail("variables %s, and not %s" % (have, names))
        seen = seen or dims
        for p, g in groups(tile):
            for n, v in g.variables.items():
                w = joined[p + "/" + n]
                v.dtype.newbyteorder("=") == w.dtype.newbyteorder("=") and v.dimensions == w.dimensions or fail("%s: other type or dimensions" % n)
                box = place(tile, v, dims)
                if box is None and number:
                    continue
                want, got = v[...], w[box] if box and v.ndim else w[...]
                bits(want) == bits(got) or fail("%s%s: %s has other values" % (n, box, path))
                values += np.size(want)
                if box and n not in dims:
                    c = covered.setdefault((p, n), np.zeros(w.shape, bool))
                    c[box] = True
                if number == 0:
                    attributes(v, w, n)
        if number == 0:
            attributes(tile, joined, "", ("filename", "NumFilesInSet"))
            for n, dim in tile.dimensions.items():
                length = dims[n][1] - dims[n][0] + 1 if n in dims else len(dim)
                (len(joined.dimensions[n]), joined.dimensions[n].isunlimited()) == (length, dim.isunlimited()) or fail("dimension " + n)
        tile.close()
    for (p, n), c in covered.items():
        if not c.all():
            w = joined[p + "/" + n]
            fill = getattr(w, "_FillValue", netCDF4.default_fillvals[w.dtype.str[1:]])
            rest = np.ma.getdata(w[...])[~c]
            (rest == np.array(fill, w.dtype)).all() or fail("%s is not filled" % n)
    print("%d values of %d tiles are in %s" % (values, len(tiles), out))


def raw(d):
    for _, g in groups(d):
        for v in g.variables.values():
            v.set_auto_maskandscale(False)
            v.set_auto_chartostring(False)


def attributes(a, b, name, free=()):
    free = set(free) | {"domain_decomposition"}
    stays = [k for k in a.ncattrs() if k not in free]
    sorted(stays) == sorted(k for k in b.ncattrs() if k not in free - {"domain_decomposition", "NumFilesInSet"}) or fail("attributes of %r: %s" % (name, b.ncattrs()))
    for k in stays:
        bits(a.getncattr(k)) == bits(b.getncattr(k)) or fail("attribute %s:%s" % (name, k))


def main(command, *args):
    if command == "kinds":
        print("16 240 49 small-SEED")
    elif command == "make":
        kind, directory = args
        made = make_small(int(kind[6:]), directory) if kind.startswith("small-") else make_large(kind, directory)
        print(len(made), "tiles")
    elif command == "check":
        check(args[0], args[1:])
    else:
        fail(__doc__)


main(*sys.argv[1:])
