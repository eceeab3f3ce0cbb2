#!/bin/bash
# ranks on two mounts write interleaved records without locks (open-mpi/ompi#4334)
. "${0%/*}/common.sh"
cat > "$T/w.py" <<'P'
import os, sys
rank, rec, n = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
f = os.open(os.environ["B2" if rank % 2 else "B"] + "/shared", os.O_RDWR)
for i in range(n): os.pwrite(f, bytes([65 + rank]) * rec, (i * 4 + rank) * rec)
os.close(f)
P
for rec in 1000 13 4095; do
    : > "$B/shared"; for r in 0 1 2 3; do "$PY" "$T/w.py" $r $rec 150 & done; wait
    for d in "$B" "$B2"; do "$PY" -c '
import sys; rec = int(sys.argv[2]); d = open(sys.argv[1], "rb").read()
want = b"".join(bytes([65 + r]) * rec for r in range(4)) * 150
bad = sum(a != b for a, b in zip(d, want)); sys.exit(0 if d == want else f"{len(d)} bytes, {bad} of them wrong")' "$d/shared" $rec || fail "records of $rec bytes, $d"; done
done
pass
