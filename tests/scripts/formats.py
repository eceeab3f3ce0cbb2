"""Makes files of many formats and compares what comes back.

usage: formats.py make KIND DIRECTORY      makes the files of a kind, and prints their names
       formats.py same ONE OTHER           compares two files or Zarr directories of one format
       formats.py exported NETCDF BASE     compares BASE.h5, BASE.npz, BASE.zarr and BASE.nc with a NetCDF file

The first difference is printed, and the status is 1.
"""
import itertools
import json
import os
import sys
import zlib

import h5py
import netCDF4
import numpy as np
import zarr

rng = np.random.default_rng(20261129)


def fail(*what):
    print(*what, file=sys.stderr)
    sys.exit(1)


# --- what is made ---------------------------------------------------------------------------------------------------


def skipped_filters(path):
    """Chunks that skip one of the filters, that were never written, and that are longer than the axis."""
    table = rng.integers(0, 60000, (7, 9)).astype("u2")
    with h5py.File(path, "w") as file:
        made = file.create_dataset("table", (7, 9), "u2", chunks=(3, 5), shuffle=True, compression="gzip", fillvalue=77)
        for number, (row, column) in enumerate(itertools.product((0, 3, 6), (0, 5))):
            if number == 4:
                continue
            chunk = np.zeros((3, 5), "u2")
            part = table[row:row + 3, column:column + 5]
            chunk[:part.shape[0], :part.shape[1]] = part
            stored, mask = chunk.tobytes(), number % 4
            if mask & 1 == 0:
                stored = np.frombuffer(stored, "u1").reshape(-1, 2).T.tobytes()
            if mask & 2 == 0:
                stored = zlib.compress(stored)
            made.id.write_direct_chunk((row, column), stored, mask)
        file.create_dataset("holes", (4, 6), "f4", chunks=(2, 6), fillvalue=np.nan)
        file.create_dataset("piece", (9,), "i8", fillvalue=-1)
        file.create_dataset("long", data=np.arange(6.0), chunks=(512,), maxshape=(None,), compression=3)
        file.create_dataset("checked", data=table, dtype=">u2", chunks=(4, 4), fletcher32=True)
        file.create_dataset("nothing", data=h5py.Empty("f8"))
        file.create_dataset("none", (3, 0), "u1", maxshape=(3, None))
    return [path]


def attributes(path):
    """Attributes of all types: empty, many, long, and of both kinds of text."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("n", 2)
        one = file.createVariable("one", "i2", ("n",), fill_value=np.int16(-9))
        one[:] = [4, 5]
        for letters in "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8":
            info = np.iinfo(letters)
            one.setncattr("least_" + letters, np.array([info.min, info.max], letters))
        for letters in "f4", "f8":
            one.setncattr("odd_" + letters, np.array([np.nan, np.inf, -0.0, np.finfo(letters).tiny], letters))
            one.setncattr("no_" + letters, np.array([], letters))
        one.setncattr("empty", "")
        one.setncattr("lines", " a\n\tb  ")
        one.setncattr("accents", "größe °C 度")
        one.setncattr_string("text", "größe °C 度")
        one.setncattr_string("texts", ["", "b" * 400, "ü"])
        file.setncattr("long", "slab" * 25000)
        file.setncattr("many", np.arange(15000.0) / 4)
        for number in range(900):
            file.setncattr(f"n{number}", np.float32(number))
    with h5py.File(path, "a") as file:
        file["one"].attrs["null"] = h5py.Empty("S1")
    return [path]


def groups(path):
    """Dimensions of groups: inherited, hidden by another of the same name, without a variable."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", None)
        file.createDimension("y", 3)
        file.createVariable("t", "f8", ("t",))[:] = [1, 2]
        inner = file.createGroup("a")
        inner.createDimension("y", 2)
        inner.createVariable("y", "i4", ("y",))[:] = [7, 8]
        inner.createVariable("v", "f4", ("t", "y"))[:] = [[1, 2], [3, 4]]
        deep = inner.createGroup("b").createGroup("c")
        deep.createVariable("w", "u1", ("y", "t"))[:] = [[1, 2], [3, 4]]
        other = file.createGroup("d")
        other.createDimension("alone", 5)
        other.createVariable("y", "i2", ("y", "t"))[:] = np.arange(6).reshape(3, 2)
    return [path]


def unlimited(path):
    """Several unlimited dimensions, one of them empty, and a variable with fewer records than the others."""
    with netCDF4.Dataset(path, "w") as file:
        for name in "t", "s", "e":
            file.createDimension(name, None)
        file.createVariable("full", "i4", ("t", "s"), fill_value=-1)[:] = np.arange(12).reshape(4, 3)
        file.createVariable("few", "f8", ("t",), fill_value=5e20)[:2] = [1, 2]
        file.createVariable("empty", "u1", ("e", "s"))
        packed = file.createVariable("packed", "i2", ("s",), fill_value=np.int16(-300))
        packed.set_auto_maskandscale(False)
        packed.setncatts({"scale_factor": 0.5, "missing_value": np.int16(-1)})
        packed[:] = [-300, -1, 9]
    return [path]


def records(path):
    """Classic files whose records have an odd size: with padding if there is more than one variable of records."""
    paths = []
    for number, (form, names) in enumerate(itertools.product(("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"),
                                                             (("b",), ("s",), ("b", "s", "d"), ()))):
        paths.append(f"{path[:-3]}-{number}.nc")
        with netCDF4.Dataset(paths[-1], "w", format=form) as file:
            file.createDimension("t", None)
            file.createDimension("x", 5)
            file.createVariable("fixed", "i1", ("x",))[:] = range(5)
            for name in names:
                letters = {"b": "i1", "s": "i2", "d": "f8"}[name]
                file.createVariable(name, letters, ("t", "x"))[:] = rng.integers(-99, 99, (3, 5))
    return paths


def zarr_2(path):
    """A Zarr version 2 group without consolidated metadata: both orders and separators, chunks that are not there."""
    def put(name, text):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with open(name, "wb") as file:
            file.write(text if isinstance(text, bytes) else json.dumps(text).encode())

    def array(name, data, chunk, fill, order, separator, left_out=()):
        place = os.path.join(path, name)
        put(place + "/.zarray", {
            "zarr_format": 2, "shape": data.shape, "chunks": chunk, "dtype": data.dtype.str, "fill_value": fill, "order": order,
            "compressor": {"id": "gzip", "level": 3} if order == "F" else None, "filters": None, "dimension_separator": separator})
        put(place + "/.zattrs", {"_ARRAY_DIMENSIONS": [f"d{axis}" for axis in range(data.ndim)], "deep": {"a": [1, None]}, "list": [1]})
        for index in itertools.product(*[range(-(-n // c)) for n, c in zip(data.shape, chunk)]):
            if index in left_out:
                continue
            block = np.zeros(chunk, data.dtype)
            part = data[tuple(slice(i * c, i * c + c) for i, c in zip(index, chunk))]
            block[tuple(slice(n) for n in part.shape)] = part
            stored = block.tobytes(order)
            if order == "F":
                packer = zlib.compressobj(wbits=31)
                stored = packer.compress(stored) + packer.flush()
            put(os.path.join(place, separator.join(map(str, index)) or "0"), stored)

    put(path + "/.zgroup", {"zarr_format": 2})
    put(path + "/.zattrs", {"title": "größe", "yes": True})
    put(path + "/in/.zgroup", {"zarr_format": 2})
    array("turned", rng.normal(size=(4, 5, 3)), (3, 2, 2), "NaN", "F", "/", [(1, 0, 1)])
    array("big", rng.integers(0, 9, (6, 4)).astype(">u4"), (4, 4), 3, "C", ".", [(1, 0)])
    array("in/flags", rng.random((5, 2)) > 0.5, (2, 2), True, "F", ".")
    array("in/words", np.array([b"ab", b"", b"xyz"], "S3"), (2,), "", "C", ".")
    array("in/wide", np.array(["ü", "abc"], "U3"), (2,), "", "C", ".")
    array("scalar", np.array(7.25), (), 0, "C", ".")
    array("null", rng.integers(0, 9, (3,)).astype("i1"), (2,), None, "C", ".")
    return [path]


def zarr_3(path):
    """A Zarr version 3 group with the codecs of zarr-python: shards, blosc, zstd, transposed, texts of any length."""
    from zarr.codecs import BloscCodec, GzipCodec, TransposeCodec, ZstdCodec
    root = zarr.create_group(path, zarr_format=3, attributes={"n": 1})
    data = rng.normal(size=(9, 8)).astype("f4")
    for name, options in {
        "blosc": {"compressors": BloscCodec(cname="lz4", shuffle="bitshuffle")}, "zstd": {"compressors": ZstdCodec()},
        "gzip": {"compressors": GzipCodec()}, "sharded": {"shards": (8, 4)}, "turned": {"filters": TransposeCodec(order=(1, 0))},
        "plain": {"compressors": None},
    }.items():
        made = root.create_array(name, shape=data.shape, chunks=(4, 2), dtype="f4", fill_value=np.nan, dimension_names=["y", None],
                                 **options)
        made[:] = data
    words = root.create_array("words", shape=(5,), chunks=(2,), dtype=str)
    words[:] = np.array(["", "größe", "a" * 90, "b", "\u2713"], object)
    return [path]


def arrays(path):
    """Files of NumPy: versions, orders, odd shapes, dates, records, and several in one."""
    base = path[:-4]
    data = rng.normal(size=(3, 4, 2))
    record = np.array([(1, b"ab", (0.5, 2)), (-1, b"", (3, 4))], [("n", ">i2"), ("größe", "S3"), ("p", "<f4", (2,))])
    paths = []
    for name, array in {
        "c": data, "f": np.asfortranarray(data), "big": data.astype(">f8"), "scalar": np.array(3, "u1"), "none": np.zeros((0, 2)),
        "half": data.astype("f2"), "complex": data[0] * 1j, "flags": data > 0, "words": np.array(["ü", "abc"]),
        "bytes": np.array([b"a", b"bcd"]), "dates": np.array(["2026-11-29", "NaT"], "M8[D]"), "record": record,
    }.items():
        paths.append(f"{base}-{name}.npy")
        version = (3, 0) if name in ("record", "f") else (2, 0) if name == "c" else None
        with open(paths[-1], "wb") as file:
            np.lib.format.write_array(file, array, version=version)
    for name, save in ("plain", np.savez), ("packed", np.savez_compressed):
        paths.append(f"{base}-{name}.npz")
        save(paths[-1], a=data, b=np.asfortranarray(data), c=np.int8(5), d=record)
    return paths


def texts(path):
    """Texts of a fixed and of any length, with all kinds of padding, and names for numbers."""
    from h5py import h5d, h5s, h5t
    words = [b"ab", b"c\0d", b""]
    with h5py.File(path, "w") as file:
        for name, pad in ("term", h5t.STR_NULLTERM), ("null", h5t.STR_NULLPAD), ("space", h5t.STR_SPACEPAD):
            kind = h5t.C_S1.copy()
            kind.set_size(4)
            kind.set_strpad(pad)
            kind.set_cset(h5t.CSET_UTF8 if name == "space" else h5t.CSET_ASCII)
            made = h5d.create(file.id, name.encode(), kind, h5s.create_simple((3,)))
            made.write(h5s.ALL, h5s.ALL, np.array(words, "S4"), mtype=kind)
        file["any"] = ["", "größe", "x" * 70]
        file["flags"] = np.array([True, False])
        file["complex"] = np.array([1 + 2j], "c8")
        file["record"] = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
        file.create_dataset("sky", data=[0, 2], dtype=h5py.enum_dtype({"clear": 0, "dark": 2}, "i1"))
        file.create_group("g")["same"] = h5py.SoftLink("/any")
        file.attrs["flag"] = True
        file.attrs["text"] = "größe"
        file.attrs["square"] = np.arange(6, dtype="i4").reshape(2, 3)
    other = path[:-3] + ".nc"
    with netCDF4.Dataset(other, "w") as file:
        file.createDimension("t", None)
        file.createDimension("len", 3)
        kind = file.createEnumType("u1", "sky_t", {"clear": 0, "dark": 7})
        file.createVariable("sky", kind, ("t",), fill_value=7)[:] = [0, 7]
        file.createVariable("words", str, ("t",))[:] = np.array(["größe", ""], object)
        chars = file.createVariable("chars", "S1", ("t", "len"), fill_value=b"*")
        chars.set_auto_chartostring(False)
        chars[:2] = np.array([[b"a", b"\0", b"\xe9"], [b"*", b"", b"b"]], "S1")
    return [path, other]


KINDS = {"skipped_filters": ".h5", "attributes": ".nc", "groups": ".nc", "unlimited": ".nc", "records": ".nc", "zarr_2": ".zarr",
         "zarr_3": ".zarr", "arrays": ".npy", "texts": ".h5"}

# --- what is compared -----------------------------------------------------------------------------------------------

# Attributes by which the libraries connect datasets.
INTERNAL = {"CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_NCProperties", "_nc3_strict"}


def exact(value):
    """A value with its type and shape, that can be compared: NaN is equal to itself, -0.0 not to 0.0."""
    if isinstance(value, h5py.Empty):
        return "empty", str(value.dtype)
    value = np.ma.getdata(np.asarray(value))
    if value.dtype.hasobject or value.dtype.kind == "T":
        return "objects", value.shape, [str(one) if isinstance(one, str) else one for one in value.ravel().tolist()]
    native = value.astype(value.dtype.newbyteorder("="))
    return str(native.dtype), native.shape, native.tobytes()


def hdf5(path):
    found = {}

    def look(name, thing):
        for key in thing.attrs:
            if key in INTERNAL:
                continue
            info = thing.attrs.get_id(key)
            text = h5py.check_string_dtype(info.dtype)
            kind = ("text", text.length is None) if text else str(info.dtype.newbyteorder("="))
            found[name, "attribute", key] = kind, exact(thing.attrs[key])
        if not isinstance(thing, h5py.Dataset):
            return
        if bytes(thing.attrs.get("NAME", b"")).startswith(b"This is a netCDF dimension"):
            found[name, "dimension"] = thing.maxshape
            return
        own = thing.id.get_type()
        plain = thing.dtype.kind in "iuf" and not h5py.check_enum_dtype(thing.dtype)
        # Comparable: a named type is equal to one without a name.
        found[name, "type"] = str(thing.dtype.newbyteorder("=")) if plain else own.copy()
        found[name, "shape"] = thing.shape, thing.maxshape
        found[name, "data"] = exact(thing[()])
        if thing.dtype.kind in "iuf":
            found[name, "fill"] = exact(thing.fillvalue)
        if "DIMENSION_LIST" in thing.attrs:
            found[name, "scales"] = [[scale.name for scale in axis.values()] for axis in thing.dims]

    def walk(group, path):
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.SoftLink):
                found[path + name, "link"] = exact(group[name][()])
            elif not isinstance(group[name], h5py.Datatype):
                look(path + name, group[name])
                if isinstance(group[name], h5py.Group):
                    found[path + name, "group"] = True
                    walk(group[name], path + name + "/")

    with h5py.File(path) as file:
        look("", file)
        walk(file, "/")
    return found


def netcdf(path):
    found = {}

    def walk(group, path):
        for name, dim in group.dimensions.items():
            found[path, "dimension", name] = len(dim), dim.isunlimited()
        for name in group.ncattrs():
            found[path, "attribute", name] = exact(group.getncattr(name))
        for name, variable in group.variables.items():
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            found[path, name] = variable.dimensions, exact(variable[...])
            for key in variable.ncattrs():
                found[path, name, key] = exact(variable.getncattr(key))
        for name, below in group.groups.items():
            walk(below, path + name + "/")

    with netCDF4.Dataset(path) as file:
        walk(file, "/")
    return found


def zarr_any(path):
    found = {}
    root = zarr.open_group(path, mode="r", use_consolidated=False)
    for name, thing in [("", root), *root.members(max_depth=None)]:
        own = dict(thing.attrs)
        if isinstance(thing, zarr.Array):
            names = own.pop("_ARRAY_DIMENSIONS", None) or getattr(thing.metadata, "dimension_names", None) or [None] * thing.ndim
            data = thing[...]
            found[name] = list(names), exact(data)
            # Version 3 has no fill value that is null.
            if thing.fill_value is not None and name != "null":
                found[name, "fill"] = exact(np.asarray(thing.fill_value).astype(np.asarray(data).dtype))
        found[name, "attributes"] = own
    return found


def numpy_file(path):
    found = np.load(path)
    return {"": exact(found)} if isinstance(found, np.ndarray) else {name: exact(found[name]) for name in found.files}


def same(one, other):
    readers = {".nc": [netcdf], ".h5": [hdf5], ".zarr": [zarr_any], ".npy": [numpy_file], ".npz": [numpy_file]}[os.path.splitext(one)[1]]
    if h5py.is_hdf5(one) and readers == [netcdf]:
        with netCDF4.Dataset(one) as file:
            longest = {name: len(dim) for name, dim in file.dimensions.items()}
            short = "few" in file.variables and longest
        # NetCDF fills the end of a variable with fewer records, and so does what is exported.
        readers = [netcdf] if short else [netcdf, hdf5]
    for reader in readers:
        left, right = reader(one), reader(other)
        for key in sorted(set(left) | set(right), key=str):
            if key not in left or key not in right:
                fail(key, "is only in", one if key in left else other)
            if left[key] != right[key]:
                fail(key, "differs:", str(left[key])[:200], str(right[key])[:200])


def exported(source, base):
    with netCDF4.Dataset(source) as file, h5py.File(base + ".h5") as h5, np.load(base + ".npz") as npz:
        group = zarr.open_group(base + ".zarr", mode="r", use_consolidated=False)
        for name, variable in file.variables.items():
            variable.set_auto_maskandscale(False)
            variable.set_auto_chartostring(False)
            wanted = exact(variable[...])
            for where, found in ("HDF5", h5[name][()]), ("NumPy", npz[name]), ("Zarr", group[name][...]):
                if exact(found) != wanted:
                    fail(name, "differs in", where)
            if list(group[name].metadata.dimension_names or []) != list(variable.dimensions):
                fail(name, "has other names of dimensions in Zarr")
    if netcdf(source) != netcdf(base + ".nc"):
        same_but_order = {key: value for key, value in netcdf(source).items() if netcdf(base + ".nc").get(key) != value}
        fail("NetCDF differs:", list(same_but_order)[:5])


match sys.argv[1:]:
    case ["make", kind, directory]:
        print(*globals()[kind](os.path.join(directory, kind + KINDS[kind])), sep="\n")
    case ["same", one, other]:
        same(one, other)
    case ["exported", source, base]:
        exported(source, base)
    case _:
        fail(__doc__)
