#!/bin/bash
# renameat2 with RENAME_NOREPLACE and RENAME_EXCHANGE (juicedata/juicefs#782)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "renameat2"
import ctypes, errno, os
c = ctypes.CDLL(None, use_errno=True); b, b2 = os.environ["B"], os.environ["B2"]
def ren(x, y, flags): return 0 if c.renameat2(-100, f"{b}/{x}".encode(), -100, f"{b}/{y}".encode(), flags) == 0 else ctypes.get_errno()
put = lambda n, s: open(f"{b}/{n}", "w").write(s); get = lambda n: open(f"{b2}/{n}").read()
put("a", "A"); put("b", "B"); os.mkdir(f"{b}/d"); put("d/in", "I")
assert ren("a", "b", 1) == errno.EEXIST and get("a") == "A" and get("b") == "B"      # NOREPLACE
assert ren("a", "new", 1) == 0 and get("new") == "A" and not os.path.exists(f"{b2}/a")
i = os.stat(f"{b}/new").st_ino, os.stat(f"{b}/b").st_ino
assert ren("new", "b", 2) == 0 and get("new") == "B" and get("b") == "A"             # EXCHANGE
assert (os.stat(f"{b2}/b").st_ino, os.stat(f"{b2}/new").st_ino) == i
assert ren("b", "d", 2) == 0 and get("b/in") == "I" and get("d") == "A"              # a file and a non-empty directory
assert ren("b", "nothing", 2) == errno.ENOENT and ren("b", "d", 3) == errno.EINVAL
P
pass
