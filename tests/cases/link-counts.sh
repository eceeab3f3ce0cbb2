#!/bin/bash
# two mounts create and remove hard links to one file at the same time (juicedata/juicefs#3689)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "wrong link count, or links missing"
import os
from concurrent.futures import ThreadPoolExecutor
b, b2 = os.environ["B"], os.environ["B2"]; open(b + "/o", "w").write("hello"); n = 240; side = lambda i: b if i % 2 else b2
with ThreadPoolExecutor(12) as p: list(p.map(lambda i: os.link(side(i) + "/o", f"{side(i)}/l{i}"), range(n)))
for s in (b, b2): assert os.stat(s + "/o").st_nlink == n + 1 and len(os.listdir(s)) == n + 1, os.stat(s + "/o")
assert len({os.stat(f"{b2}/l{i}").st_ino for i in range(n)}) == 1
with ThreadPoolExecutor(12) as p: list(p.map(lambda i: os.unlink(f"{side(i)}/l{i}"), range(n)))
for s in (b, b2): assert os.stat(s + "/o").st_nlink == 1 and open(s + "/o").read() == "hello"
P
pass
