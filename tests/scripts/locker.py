"""Runs lock operations one after the other and prints the result of each.

usage: locker.py STEP...

Each step is one word with comma-separated arguments:
  open,NAME,PATH            opens PATH for reading and writing as NAME
  read,NAME,PATH            opens PATH for reading as NAME
  close,NAME                closes NAME
  fcntl,NAME,MODE,FIRST,LEN locks or unlocks bytes: MODE is sh, ex or un; with ! appended it does not wait
  flock,NAME,MODE           the same with flock, for the entire file
  ofd,NAME,MODE,FIRST,LEN   as fcntl, with the open file description as the owner
  alarm                     starts a signal every 50 ms, which interrupts a step that waits
  stay                      waits until the process is killed

Prints a line before each step (its number and name) and one after it (the same, and the result).
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
        sys.exit(f"locker.py: unknown step {what}")


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
