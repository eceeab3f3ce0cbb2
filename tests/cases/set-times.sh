#!/bin/bash
# an mtime set by utimensat persists through fsync and close (seaweedfs/seaweedfs#9363)
. "${0%/*}/common.sh"
WAIT=${WAIT:-3} "$PY" - <<'P' || fail "an mtime that was set was changed"        # WAIT=40 covers a 30 s write-behind
import os, shutil, time
a, b = os.environ["B"] + "/f", os.environ["B2"] + "/f"; t = 1579059296_123456789
def stays(what, secs):
    end = time.time() + secs
    while True:
        for p in (a, b): assert os.stat(p).st_mtime_ns == t, (what, p, os.stat(p).st_mtime_ns)
        if time.time() > end: return
        time.sleep(0.1)
f = os.open(a, os.O_CREAT | os.O_RDWR, 0o644); os.write(f, os.urandom(300000)); os.utime(a, ns=(t, t))
stays("open", float(os.environ["WAIT"])); os.fsync(f); stays("after fsync", 0.3); os.close(f); stays("after close", 0.5)
open(os.environ["T"] + "/o", "wb").write(b"z" * 70000); os.utime(os.environ["T"] + "/o", ns=(t, t)); os.unlink(a)
os.system('cp -p "$T/o" "$B/f"'); stays("cp -p", 1)
os.system('cd "$T" && tar -cf - o | tar -xf - -C "$B"'); assert os.stat(os.environ["B2"] + "/o").st_mtime == t // 10**9
P
pass
