# Setup and functions shared by the scripts in this directory. Each script tests for one bug from a public report about
# another filesystem; its second line has the number of the report. Exit status 0: the bug is not present; 77: the test
# cannot run here; any other: the bug is present.
#
# M: a directory on the mount under test. M2: the same directory on a second mount (default: M).
M=${M:?a directory on the mount}; M2=${M2:-$M}; PY=${PY:-/usr/bin/python3}
B=$(mktemp -d "$M/bugXXXXXX"); B2=$M2/${B##*/}; T=$(mktemp -d)
export M M2 B B2 T PY GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t GIT_CONFIG_GLOBAL=/dev/null
trap 'rm -rf "$B" "$T"' EXIT
case_=${0##*/}; case_=${case_%.sh}
pass() { echo "PASS $case_"; exit 0; }
fail() { echo "FAIL $case_: $*"; exit 1; }
skip() { echo "SKIP $case_: $*"; exit 77; }
# runs a command as an unprivileged user
plain() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp "$@"; else "$@"; fi; }
