"""Writes chunks as HDF5 encodes them to arrays of a mount, reads them back, and gives wrong ones. Used by system/chunks.rs.

    encoded.py write ARRAY [SECOND]   an array of the dims and dtype below; SECOND is the same one on another mount
    encoded.py wrong ARRAY
"""
import errno, fcntl, json, os, struct, sys, zlib
import numpy as np

CHUNKS = ord("s") << 8 | 5
DIMS, CHUNK = (100, 70), (16, 32)
SHUFFLE_DEFLATE, NONE = 5, 0


def shuffled(a):
    return np.frombuffer(a.tobytes(), "u1").reshape(-1, a.dtype.itemsize).T.tobytes()


def head(chunk, shown, codec, level, n):
    out = b"SLEC" + bytes([1, len(chunk[0]), codec, 0]) + struct.pack("<iI", level, n)
    for numbers in (*chunk, *shown):
        out += struct.pack("<%dQ" % len(numbers), *numbers)
    return out


def encoded(a, y, x, level=4):
    """The chunk at (y, x), which reaches beyond the array at its edges."""
    part = a[y : y + CHUNK[0], x : x + CHUNK[1]]
    full = np.full(CHUNK, -1, a.dtype)
    full[: part.shape[0], : part.shape[1]] = part
    if level is None:
        data = full.tobytes()
    else:
        data = zlib.compress(shuffled(full), level)
    codec = NONE if level is None else SHUFFLE_DEFLATE
    return head(((y, x), CHUNK), ((y, x), part.shape), codec, max(level or 1, 1) if codec else 0, len(data)) + data


def opened(path, flags=os.O_WRONLY):
    fd = os.open(path, flags)
    fcntl.ioctl(fd, CHUNKS)
    return fd


def read(path):
    with open(path, "rb") as f:  # NumPy's fromfile hides errors.
        return np.frombuffer(f.read(), "<i4").reshape(DIMS)


def places():
    return [(y, x) for y in range(0, DIMS[0], CHUNK[0]) for x in range(0, DIMS[1], CHUNK[1])]


def write(path, second=None):
    a = np.random.default_rng(1).integers(-1000, 1000, DIMS).astype("<i4")
    # Deflate of level 0 makes chunks longer than they are decoded.
    stream = b"".join(encoded(a, y, x, [4, 0, 9, None][i % 4]) for i, (y, x) in enumerate(places()))
    # What is dirty in memory is older.
    dirty = os.open(path, os.O_RDWR)
    os.pwrite(dirty, b"\x01" * 4000, 100)
    fd, at = opened(path), 0
    for n in (3, 5, 100, 2500, 3000, 1, len(stream)):
        part = stream[at : at + n]
        at += os.pwrite(fd, part, at)
    assert (read(second or path) == a).all(), "the chunks read otherwise"
    assert os.stat(path).st_size == a.nbytes
    os.fsync(fd)
    os.close(fd)
    os.close(dirty)
    assert (read(path) == a).all() and (read(second or path) == a).all()

    # The same chunks come out of it, by the mount that has not written them.
    path = second or path
    root, name = os.path.split(path)
    layout = json.load(open(os.path.join(root, ".slabfs/layout", name)))
    fd = opened(path, os.O_RDWR)
    found = {}
    for chunk in layout["chunks"]:
        data = b""
        while part := os.pread(fd, 700, (chunk["order"] << 32) + len(data)):
            data += part
        found[tuple(chunk["offset"])] = data
        assert (chunk["codec"] is None) == (not data)
    assert os.pread(fd, 100, 10**6 << 32) == b""
    expected = [encoded(a, y, x, [4, 0, 9, None][i % 4]) for i, (y, x) in enumerate(places())]
    for i, (y, x) in enumerate(places()):
        assert found[y, x * 4] == (b"" if i % 4 == 3 else expected[i]), (y, x)
    os.close(fd)
    # Who cannot write the array gets what it shows: not what lies beyond it in chunks at its edges.
    fd = opened(path, os.O_RDONLY | os.O_DIRECT)
    for chunk in layout["chunks"]:
        y, x = chunk["offset"]
        complete = y + CHUNK[0] <= DIMS[0] and x // 4 + CHUNK[1] <= DIMS[1] and chunk["codec"]
        assert bool(os.pread(fd, 100, chunk["order"] << 32)) == bool(complete), (y, x)
    os.close(fd)

    # Newer bytes over chunks, and chunks over newer bytes.
    with open(path, "r+b") as f:
        f.seek(1234 * 4)
        f.write(b"\x07" * 8000)
    a.reshape(-1)[1234:3234] = 0x07070707
    assert (read(path) == a).all()
    a[16:32, 32:64] = 5
    fd = opened(path)
    os.write(fd, encoded(a, 16, 32))
    os.close(fd)
    assert (read(path) == a).all()


def refused(fd, data, code, at=0):
    try:
        os.pwrite(fd, data, at)
    except OSError as e:
        assert e.errno == code, (e, code)
        return
    raise AssertionError("accepted")


def wrong(path):
    a = np.arange(DIMS[0] * DIMS[1], dtype="<i4").reshape(DIMS)
    a.tofile(path)
    good = encoded(a, 0, 0)
    box = lambda o, s: (o, s)
    data = good[16 + 64 :]
    heads = {
        "rank": head(box((0,), (16,)), box((0,), (16,)), 5, 4, len(data)),
        "not within": head(box((0, 0), CHUNK), box((0, 8), CHUNK), 5, 4, len(data)),
        "empty": head(box((0, 0), CHUNK), box((0, 0), (0, 3)), 5, 4, len(data)),
        "overflow": head(box((0, 2**63), CHUNK), box((0, 2**63), CHUNK), 5, 4, len(data)),
        "too large": head(box((0, 0), (2**13, 2**13)), box((0, 0), (16, 32)), 5, 4, len(data)),
        "raw length": head(box((0, 0), CHUNK), box((0, 0), CHUNK), 0, 0, len(data)),
    }
    for what, h in heads.items():
        fd = opened(path)
        refused(fd, h + data, errno.EINVAL)
        refused(fd, good, errno.EIO)
        os.close(fd)
    fd = opened(path)
    refused(fd, head(box((96, 0), CHUNK), box((96, 0), CHUNK), 5, 4, len(data)) + data, errno.EFBIG)
    os.close(fd)
    fd = opened(path)
    refused(fd, b"no head of a chunk, but text", errno.EINVAL)
    os.close(fd)
    fd = opened(path)
    refused(fd, good, errno.EINVAL, 1)
    os.pwrite(fd, good[:100], 0)
    refused(fd, good[100:], errno.EINVAL, 99)
    try:
        os.close(os.dup(fd))
        raise AssertionError("an incomplete chunk, and close said nothing")
    except OSError as e:
        assert e.errno == errno.EINVAL
    try:
        os.fsync(fd)
        raise AssertionError("an incomplete chunk, and fsync said nothing")
    except OSError as e:
        assert e.errno == errno.EINVAL
    os.pwrite(fd, good[100:], 100)
    os.fsync(fd)
    os.close(fd)
    assert (read(path) == a).all(), "wrong chunks have changed the array"

    # Bytes that cannot be decoded are stored, and found when they are read.
    bad = good[:-9] + b"123456789"
    fd = opened(path)
    os.write(fd, bad)
    os.close(fd)
    try:
        read(path)
        raise AssertionError("what cannot be decoded was read")
    except OSError as e:
        assert e.errno == errno.EIO
    with open(path, "rb") as f:
        f.seek(16 * 70 * 4)
        assert f.read() == a[16:].tobytes()
    a.tofile(path)
    assert (read(path) == a).all()

    # Only arrays that are not stored in place.
    fd = opened(path + ".grid")
    refused(fd, good, errno.EINVAL)
    os.close(fd)
    try:
        opened(path + "@[0:5]", os.O_RDONLY)
        raise AssertionError("a selection has no chunks")
    except OSError as e:
        assert e.errno == errno.EINVAL


def hidden(path):
    """Who reads chunks of an array does not get what was written over, also where it was not flushed yet."""
    a = np.full(DIMS, 65, "<i4")
    fd = opened(path)
    os.write(fd, encoded(a, 0, 0))
    os.close(fd)
    chunks = opened(path, os.O_RDONLY | os.O_DIRECT)
    first = os.pread(chunks, 50, 0)
    assert len(first) == 50
    writer = os.open(path, os.O_RDWR)
    os.pwrite(writer, bytes(4 * DIMS[1] * DIMS[0]), 0)
    assert os.pread(chunks, 1 << 20, 0) == b"", "bytes that are not there any more"
    os.close(writer)
    os.close(chunks)


globals()[sys.argv[1]](*sys.argv[2:])
