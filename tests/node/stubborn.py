"""A program that does not want to end, and what tests do with it."""

from __future__ import annotations

from pathlib import Path

from node_lab import Lab, is_gone, written_pid
from scripted import until

# Every rank writes its pid, starts a daemon that left its session and ignores SIGTERM, and goes on working.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time

def write(home, name):
    path = pathlib.Path(home, name)
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)

def daemon(home, name):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write(home, name)
        time.sleep(600)
        os._exit(0)

def work(home):
    rank = os.environ["RANK"]
    daemon(home, f"daemon-{rank}")
    subprocess.Popen(["sh", "-c", f"trap '' TERM; echo $$ > {home}/shell-{rank}; sleep 600; sleep 600"],
                     start_new_session=True)
    write(home, f"rank-{rank}")
    time.sleep(600)

def hide(home):
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        write(home, "hidden")
        os.closerange(3, 1000)
        os.execve("/bin/sleep", ["sleep", "600"], {})  # no mark is left
    write(home, "rank-0")
    time.sleep(600)

def patient(home):
    def term(*_):
        print("got SIGTERM", flush=True)
        raise SystemExit(0)
    signal.signal(signal.SIGTERM, term)
    write(home, "rank-0")
    time.sleep(600)

def with_helper(home):
    helper = os.fork()
    if helper == 0:
        write(home, "helper")
        time.sleep(600)
    def term(*_):
        time.sleep(0.1)  # a helper that got the signal, too, would be dead by now
        print("my helper lives" if os.waitpid(helper, os.WNOHANG) == (0, 0) else "it is dead", flush=True)
        print("and I leave", flush=True)
        os._exit(0)
    signal.signal(signal.SIGTERM, term)
    write(home, "rank-0")
    time.sleep(600)

def wraps(home):
    if os.fork() == 0:
        def term(*_):
            print("my wrapper is no obstacle", flush=True)
            os._exit(0)
        signal.signal(signal.SIGTERM, term)
        write(home, "wrapped")
    time.sleep(600)

def listens(home):
    import gangline
    gangline.stop_requested()
    write(home, "rank-" + os.environ["RANK"])
    while not gangline.stop_requested():
        time.sleep(0.01)

def deaf(home):
    signal.signal(signal.SIGTERM, lambda *_: print("not now", flush=True))
    daemon(home, "daemon-0")
    write(home, "rank-0")
    while True:
        time.sleep(600)

def fail_second(home):
    if os.environ["RANK"] == "1":
        for name in ("rank-0", "daemon-0"):
            while not os.path.exists(f"{home}/{name}"):
                time.sleep(0.01)
        raise ValueError("rank one gives up")
    work(home)

def done(home):
    daemon(home, "daemon-0")
    return "done"
"""


def begin(lab: Lab, folder: Path, function: str, ranks: int = 1, gang: str = "g-1") -> None:
    code = lab.snapshot(work=STUBBORN)
    lab.begin(gang, lab.task(function=f"work:{function}", args={"home": str(folder)}, snapshot=code,
                             ranks=ranks))
    lab.script.wait_report("started", gang)


def tree(folder: Path, ranks: int) -> list[int]:
    return [written_pid(folder / f"{kind}-{rank}") for rank in range(ranks)
            for kind in ("rank", "daemon", "shell")]


def all_gone(pids: list[int], within_s: float = 20.0) -> None:
    until(lambda: all(is_gone(pid) for pid in pids), f"the end of {pids}", within_s)
