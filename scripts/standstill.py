# SPDX-License-Identifier: Apache-2.0
"""Stop a process that works on a SQLite store, but never in the middle of a write: a stopped process keeps the lock of
the file, and everybody else would wait for it."""
import os
import signal
import time


def holds(pid, path):
    """Does the process hold the flock of this file?"""
    inode = os.stat(path).st_ino
    with open("/proc/locks", encoding="ascii") as f:
        for line in f:
            words = line.split()
            if words[1] == "FLOCK" and int(words[4]) == pid and words[5].endswith(f":{inode}"):
                return True
    return False


def stands(pid):
    """Has the signal reached every thread? One in the middle of a system call may still take the lock."""
    states = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/stat", encoding="ascii", errors="replace") as f:
                states.append(f.read().rpartition(")")[2].split()[0])
        except OSError:  # it has ended meanwhile
            continue
    return all(state in "TtZX" for state in states)


def stand_still(process, database=None):
    """SIGSTOP; database: the path of the SQLite file, or None for another store."""
    while True:
        process.send_signal(signal.SIGSTOP)
        while not stands(process.pid):
            time.sleep(0.001)
        if database is None or not holds(process.pid, database + "-lock"):
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)  # at another moment
