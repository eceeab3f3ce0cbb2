"""A process that takes locks, one step after the other, and says how each came out.

usage: locker.py STEP...

Steps, each one word with its parts between commas:
  open,NAME,PATH            opens PATH for reading and writing as NAME
  read,NAME,PATH            opens it for reading
  close,NAME
  fcntl,NAME,MODE,FIRST,LEN locks bytes: sh, ex, un; with ! behind it, without waiting
  flock,NAME,MODE           the same for the whole file
  ofd,NAME,MODE,FIRST,LEN   as fcntl, of the open file description
  alarm                     from now on a signal comes every 50 ms, and ends what waits
  stay                      waits to be killed

Prints a line for each step before (what it is) and after (what came of it).
"""
import errno
import fcntl
import os
import signal
import struct
import sys


class Interrupted(Exception):
    pass


def interrupt(_signal, _frame):
    raise Interrupted


def record(fd, mode, first, length, command):
    wait = not mode.endswith("!")
    typ = {"sh": fcntl.F_RDLCK, "ex": fcntl.F_WRLCK, "un": fcntl.F_UNLCK}[mode.rstrip("!")]
    lock = struct.pack("hhqqi4x", typ, os.SEEK_SET, int(first), int(length), 0)
    fcntl.fcntl(fd, command[wait], lock)


def step(what, args, files):
    if what == "open":
        files[args[0]] = os.open(args[1], os.O_RDWR)
    elif what == "read":
        files[args[0]] = os.open(args[1], os.O_RDONLY)
    elif what == "close":
        os.close(files.pop(args[0]))
    elif what == "fcntl":
        record(files[args[0]], *args[1:], (fcntl.F_SETLK, fcntl.F_SETLKW))
    elif what == "ofd":
        record(files[args[0]], *args[1:], (fcntl.F_OFD_SETLK, fcntl.F_OFD_SETLKW))
    elif what == "flock":
        mode = {"sh": fcntl.LOCK_SH, "ex": fcntl.LOCK_EX, "un": fcntl.LOCK_UN}[args[1].rstrip("!")]
        fcntl.flock(files[args[0]], mode | (fcntl.LOCK_NB if args[1].endswith("!") else 0))
    elif what == "alarm":
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    elif what == "stay":
        while True:
            signal.pause()
    else:
        sys.exit(f"locker.py: no step {what}")


def main():
    files = {}
    for number, words in enumerate(sys.argv[1:]):
        what, *args = words.split(",")
        print(f"{number} {what}", flush=True)
        try:
            step(what, args, files)
            outcome = "ok"
        except Interrupted:
            signal.setitimer(signal.ITIMER_REAL, 0)
            outcome = "interrupted"
        except OSError as error:
            outcome = errno.errorcode[error.errno]
        print(f"{number} {what}: {outcome}", flush=True)


main()
