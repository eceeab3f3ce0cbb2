#!/bin/bash
# what is not removed yet is listed, while a directory is emptied from two mounts (pscedu/slash2#66)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "names hidden from the directory that is being emptied"
import os
b, b2 = os.environ["B"], os.environ["B2"]
for d in range(12):
    os.mkdir(f"{b}/t{d}")
    for i in range(30 + 40 * d): open(f"{b}/t{d}/{'n' * (i % 90)}{i}", "w").close()
    for e in os.scandir(f"{b2 if d % 2 else b}/t{d}"): os.unlink(e.path)        # removed while it is being read
    os.rmdir(f"{b}/t{d}")                                                        # ENOTEMPTY: some were not shown
P
mkdir -p "$B"/tree/{1..12}/{a..f} && for d in "$B"/tree/*/*; do touch "$d"/{1..8}; done
rm -rf "$B/tree" & rm -rf "$B2/tree" 2>/dev/null; wait
rm -rf "$B/tree" || fail "rm -rf"; [ ! -e "$B2/tree" ] || fail "the tree is still there"
pass
