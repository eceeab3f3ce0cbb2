#!/bin/bash
# a new 0444 file is writable through the descriptor that created it; git as an unprivileged user (tytso/e2fsprogs#242)
. "${0%/*}/common.sh"
chmod 755 "$B"; mkdir "$B/w"; chmod 777 "$B/w"; cd "$B/w" || fail cd
plain "$PY" - <<'P' || fail "the descriptor that created a 0444 file cannot be used"
import os
f = os.open("ro", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o444)
assert os.write(f, b"x" * 70000) == 70000
os.ftruncate(f, 80000); os.fsync(f); os.lseek(f, 0, 0); assert os.read(f, 1) == b"x"; os.close(f)
try: os.open("ro", os.O_WRONLY); raise SystemExit("a 0444 file was opened for writing")
except PermissionError: pass
os.rename("ro", "ro2"); os.unlink("ro2")
os.umask(0o333); os.close(os.open("touched", os.O_CREAT | os.O_WRONLY, 0o666))
P
plain git init -q r && cd r && plain sh -c 'echo hi > a && git add a && git commit -qm 1 && git gc -q && git clone -q . ../c && git -C ../c fsck --strict' || fail "git as an unprivileged user"
pass
