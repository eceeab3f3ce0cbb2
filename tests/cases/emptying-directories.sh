#!/bin/bash
# a directory that two mounts empty still lists the names that are not removed yet (pscedu/slash2#66)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "a directory that is being emptied does not list all remaining names"
import os
b, b2 = os.environ["B"], os.environ["B2"]
for d in range(12):
    os.mkdir(f"{b}/t{d}")
    for i in range(30 + 40 * d): open(f"{b}/t{d}/{'n' * (i % 90)}{i}", "w").close()
    for e in os.scandir(f"{b2 if d % 2 else b}/t{d}"): os.unlink(e.path)        # unlink during readdir
    os.rmdir(f"{b}/t{d}")                                                        # ENOTEMPTY: some names were not listed
P
mkdir -p "$B"/tree/{1..12}/{a..f} && for d in "$B"/tree/*/*; do touch "$d"/{1..8}; done
rm -rf "$B/tree" & rm -rf "$B2/tree" 2>/dev/null; wait
rm -rf "$B/tree" || fail "rm -rf of the tree"; [ ! -e "$B2/tree" ] || fail "the tree still exists on the second mount"
pass
