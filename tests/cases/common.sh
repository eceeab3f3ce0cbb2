# What the scripts here share. Each tries one thing that went wrong on another filesystem, as a public report tells; the
# number of the report is in its second line. Exit 0: it is right here; 77: it cannot be tried here; else it is wrong.
#
# M: a directory on the mount under test. M2: the same directory seen through a second mount (default: M).
M=${M:?a directory on the mount}; M2=${M2:-$M}; PY=${PY:-/usr/bin/python3}
B=$(mktemp -d "$M/bugXXXXXX"); B2=$M2/${B##*/}; T=$(mktemp -d)
export M M2 B B2 T PY GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t GIT_CONFIG_GLOBAL=/dev/null
trap 'rm -rf "$B" "$T"' EXIT
case_=${0##*/}; case_=${case_%.sh}
pass() { echo "PASS $case_"; exit 0; }
fail() { echo "FAIL $case_: $*"; exit 1; }
skip() { echo "SKIP $case_: $*"; exit 77; }
# runs a command as somebody who is not root
plain() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp "$@"; else "$@"; fi; }
