#!/bin/bash
# mappings of a file that is open for writing, and programs that run from the mount (conda/conda#7185)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "ENODEV or EINVAL: a file cannot be mapped while it is open for writing"
import mmap, os
a = os.environ["B"] + "/index"; w = os.open(a, os.O_CREAT | os.O_RDWR, 0o644); os.write(w, b"_etag: x\n" * 500)
for p in (a, os.environ["B2"] + "/index"):
    r = os.open(p, os.O_RDONLY); m = mmap.mmap(r, 0, access=mmap.ACCESS_READ); assert m.find(b"_etag") == 0; m.close()
P
"$PY" -m venv --without-pip --copies "$B/v" && "$B/v/bin/python" -c 'import sys, json, ssl; assert sys.prefix != sys.base_prefix' || fail "a Python venv on the mount does not work"
cp /bin/sleep "$B/s" && "$B/s" 2 & sleep 0.5
(: > "$B/s") 2> "$T/e" && fail "the file of a running program was truncated"; grep -qi 'busy' "$T/e" || fail "no ETXTBSY: $(cat "$T/e")"
cp /bin/true "$B/s.new" && mv "$B/s.new" "$B/s" && "$B/s" || fail "the file of a running program cannot be replaced by mv"; wait
pass
