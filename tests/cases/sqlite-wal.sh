#!/bin/bash
# SQLite in WAL mode with three writing processes (trapexit/mergerfs#976)
. "${0%/*}/common.sh"
cat > "$T/w.py" <<'P'
import os, sqlite3, sys
c = sqlite3.connect(os.environ["B"] + "/db", timeout=60, isolation_level=None)
c.execute("pragma journal_mode=wal"); c.execute("pragma mmap_size=8388608")
for i in range(int(sys.argv[2])):
    c.execute("begin immediate"); c.execute("insert into t values (?, ?)", (sys.argv[1], os.urandom(2000))); c.execute("commit")
P
"$PY" -c 'import os,sqlite3;c=sqlite3.connect(os.environ["B"]+"/db");print(c.execute("pragma journal_mode=wal").fetchone()[0]);c.execute("create table t (w, d)")' | grep -qx wal || fail "SQLite does not enable WAL mode"
"$PY" "$T/w.py" a 60 & "$PY" "$T/w.py" b 60 & "$PY" "$T/w.py" c 60; wait
"$PY" - <<'P' || fail "rows are missing or the database is damaged"
import os, sqlite3
c = sqlite3.connect(os.environ["B"] + "/db"); assert c.execute("select count(*) from t").fetchone()[0] == 180
assert c.execute("pragma integrity_check").fetchone()[0] == "ok"
P
pass
