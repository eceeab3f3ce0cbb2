#!/bin/bash
# growing a file with truncate keeps its data, and truncated data does not reappear (CurvineIO/curvine#1106)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "growing a file"
import os
a, b = os.environ["B"] + "/g", os.environ["B2"] + "/g"; d = os.urandom(3 * 2**20 + 17); open(a, "wb").write(d)
r = os.open(b, os.O_RDONLY); f = os.open(a, os.O_RDWR)
os.ftruncate(f, len(d) + 5000); assert os.pread(f, len(d) + 9999, 0) == d + bytes(5000)
assert os.fstat(r).st_size == len(d) + 5000 and os.pread(r, 4, len(d) - 2) == d[-2:] + b"\0\0"
os.ftruncate(f, 1000); os.ftruncate(f, 9000); assert open(b, "rb").read() == d[:1000] + bytes(8000), "truncated bytes reappeared"
os.pwrite(f, d, 0); os.close(f)
for huge in (2**63 - 1, 2**62):
    try: os.truncate(a, huge); os.truncate(a, len(d))      # a filesystem may accept the size
    except OSError: pass                                   # or refuse it; then the file must not change
    assert open(b, "rb").read() == d, "a refused truncate changed the file"
P
pass
