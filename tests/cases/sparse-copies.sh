#!/bin/bash
# writes beyond the end of a file, and cp --sparse to and from the mount (s3fs-fuse/s3fs-fuse#375)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "a write beyond the end"
import os
a, b = os.environ["B"] + "/s", os.environ["B2"] + "/s"
f = os.open(a, os.O_CREAT | os.O_RDWR, 0o644); want = bytearray()
for off, n in [(0, 4096), (61440, 4096), (10485761, 7), (3000000, 100000), (20000000, 1)]:
    os.lseek(f, off, 0); d = os.urandom(n); assert os.write(f, d) == n
    if len(want) < off + n: want.extend(bytes(off + n - len(want)))
    want[off:off + n] = d
    assert open(b, "rb").read() == bytes(want), off
os.close(f); assert open(b, "rb").read() == bytes(want)
open(os.environ["T"] + "/s", "wb").write(want)
P
for how in always auto never; do cp --sparse=$how "$T/s" "$B/$how" && cmp "$T/s" "$B2/$how" || fail "cp --sparse=$how to the mount"; done
cp --sparse=always "$B/s" "$T/back" && cmp "$T/s" "$T/back" || fail "cp --sparse from the mount"
pass
