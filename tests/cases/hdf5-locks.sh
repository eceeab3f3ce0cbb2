#!/bin/bash
# flock and HDF5 file locking between two mounts (h5py/h5py#1082)
. "${0%/*}/common.sh"; export HDF5_USE_FILE_LOCKING=TRUE
touch "$B/l"; exec 9>"$B/l"; flock -n 9 || fail "flock: the first lock was refused"
flock -n "$B2/l" true && fail "flock: two holders of an exclusive lock"; flock -u 9; flock -n "$B2/l" true || fail "flock: not released"
"$PY" -c 'import h5py' 2>/dev/null || { echo "(h5py is not installed: only flock was tested)"; pass; }
"$PY" - <<'P' || fail "HDF5 locking"
import h5py, os, subprocess, sys
a, b = os.environ["B"] + "/x.h5", os.environ["B2"] + "/x.h5"
other = lambda mode: subprocess.run([sys.executable, "-c", f"import h5py; h5py.File({b!r}, {mode!r}).close()"], capture_output=True)
f = h5py.File(a, "w"); f["d"] = range(1000); f.flush()
for m in ("r", "r+"): r = other(m); assert r.returncode and b"lock" in r.stderr, (m, r.stderr)
f.close(); assert other("r+").returncode == 0
f, g = h5py.File(a, "r"), other("r"); assert g.returncode == 0 and other("r+").returncode
P
pass
