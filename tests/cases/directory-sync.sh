#!/bin/bash
# fsync of directories, including removed ones (jingkaihe/matchlock#102)
. "${0%/*}/common.sh"
"$PY" - <<'P' || fail "fsync of a directory"
import ctypes, os
b = os.environ["B"]; c = ctypes.CDLL(None, use_errno=True); os.mkdir(b + "/d")
d = os.open(b + "/d", os.O_RDONLY | os.O_DIRECTORY)
for i in range(20):                                        # write, rename and fsync as PostgreSQL and atomicwrites do
    f = os.open("tmp", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=d); os.write(f, b"%d" % i); os.fsync(f); os.close(f)
    os.rename("tmp", "final", src_dir_fd=d, dst_dir_fd=d); os.fsync(d); os.fdatasync(d)
f = os.open(b + "/d/final", os.O_RDWR); assert c.sync_file_range(f, ctypes.c_int64(0), ctypes.c_int64(0), 7) == 0
os.unlink(b + "/d/final"); os.fsync(d); os.fsync(f); os.rmdir(b + "/d"); os.fsync(d)      # removed, but still open
P
pass
