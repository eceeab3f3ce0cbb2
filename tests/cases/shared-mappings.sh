#!/bin/bash
# shared writable mappings of files whose size is not a multiple of the page size (seaweedfs/seaweedfs#5769)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "a shared mapping"
import mmap, os
a, b = os.environ["B"] + "/m", os.environ["B2"] + "/m"
for size in (1024, 4096, 300001):
    f = os.open(a, os.O_CREAT | os.O_RDWR | os.O_TRUNC, 0o644); os.ftruncate(f, size); m = mmap.mmap(f, size)
    m[0:5] = b"hello"; m[size - 3:] = b"end"; m.flush()
    assert open(b, "rb").read() == b"hello" + bytes(size - 8) + b"end", size
    os.pwrite(f, b"W", 7); assert m[7:8] == b"W"                        # a write is visible in the mapping
    m[8:9] = b"M"; m.close(); os.close(f)                                # no msync: close must write it back
    assert open(b, "rb").read()[:10] == b"hello\0\0WM\0" and os.stat(b).st_size == size
P
pass
