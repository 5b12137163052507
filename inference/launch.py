"""A local launcher for scripts that several processes share: ``python -m inference.launch 2 script.py``.

It starts the processes on this machine, tells each where process 0 listens (a free port of the loopback
interface) in the environment variables that `inference.join_processes` reads, shows what process 0 prints,
passes signals on, and ends all when one fails. With ``--all`` every process's lines are shown whole, and
Python does not buffer its output (``PYTHONUNBUFFERED=1``). Everything else is the script's and the engine's,
so that the same script runs under Slurm or on several hosts (notebooks/guide/several_machines.md).
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

from inference.processes import LOST_STATUS

__all__ = ["main"]

LOOPBACK = "127.0.0.1"
SECONDS_TO_END = 2.0  # for the others to notice; a process may be killed at any time, checkpoints stay whole
LAST_LINES = 30  # of the errors of a failed process that are shown
_ONE_AT_A_TIME = threading.Lock()  # lines of several processes are written one after another
PASSED_ON = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"inference.launch: {message}", file=sys.stderr)
        raise SystemExit(2)


class _Process:
    """One of the processes, with the last lines that it printed where they are not shown."""

    def __init__(self, number: int, command: list[str], environment: dict[str, str], shows: bool) -> None:
        self.number, self.last = number, deque[str](maxlen=LAST_LINES)
        streams = {} if number == 0 else {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        if shows:  # whole lines, of process 0 too: without a buffer print writes them in pieces
            streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT if number else None}
            environment = environment | {"PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C reaches it once, through `_passing_on`
            **streams,
        )
        self.reader = None
        if streams:
            lines = self.process.stdout if shows else self.process.stderr
            self.reader = threading.Thread(target=self._read, args=(lines, shows), daemon=True)
            self.reader.start()

    def _read(self, lines: IO[bytes], shows: bool) -> None:
        with lines:
            for line in lines:
                label = f"[{self.number}] " if self.number else ""
                text = label + line.decode(errors="replace").rstrip()
                if shows:
                    with _ONE_AT_A_TIME:
                        print(text, flush=True)
                else:
                    self.last.append(text)

    def end(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a script in several processes.

    Args:
        arguments: as on the command line, without the program's name; None: those of this process.

    Returns:
        The exit status: 0 if every process ended with it, else that of the first that failed, 128 plus its
        number for a signal.
    """
    given = _parsed(arguments)
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        address = f"{LOOPBACK}:{free.getsockname()[1]}"
    shared = os.environ | {
        "JAX_COORDINATOR_ADDRESS": address,
        "JAX_COORDINATOR_BIND_ADDRESS": address,
        "JAX_NUM_PROCESSES": str(given.processes),
        "ZOO_LAUNCHED": "1",
    }
    command = [sys.executable, given.script, *given.arguments]
    processes: list[_Process] = []
    received: list[int] = []
    former = {number: signal.signal(number, _passing_on(processes, received)) for number in PASSED_ON}
    try:
        for number in range(given.processes):
            own = shared | {"JAX_PROCESS_ID": str(number)}
            processes.append(_Process(number, command, own, given.all))
        return _watched(processes, received)
    finally:
        for one in processes:
            one.end(signal.SIGKILL)
            one.process.wait()
            if one.reader is not None:
                one.reader.join(SECONDS_TO_END)
        for number, handler in former.items():
            signal.signal(number, handler)


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Arguments(
        prog="python -m inference.launch", description="Run a script in several processes on this machine."
    )
    parser.add_argument("--all", action="store_true", help="show what every process prints, with its number")
    parser.add_argument("processes", help="how many")
    parser.add_argument("script", help="a Python file that calls inference.join_processes()")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")
    given = parser.parse_args(arguments)
    text = given.processes
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        parser.error(f"the number of processes must be a whole number of at least 1; got {text!r}")
    given.processes = int(text)
    if not Path(given.script).is_file():
        parser.error(
            f"there is no script {given.script!r}; python -m inference.launch 2 script.py [arguments]"
        )
    return given


def _passing_on(processes: list[_Process], received: list[int]) -> object:
    def handler(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for one in processes:
            one.end(number)

    return handler


def _watched(processes: list[_Process], received: list[int]) -> int:
    """Wait until all have ended, or one has failed and the others are ended; the exit status."""
    while True:
        statuses = [one.process.poll() for one in processes]
        if all(status == 0 for status in statuses):
            return 0
        if any(statuses):
            break
        time.sleep(0.05)
    time.sleep(0.05)  # the others may have noticed at once: who failed first tells more
    failed = [one for one in processes if one.process.poll()]
    culprits = [one for one in failed if one.process.returncode != LOST_STATUS]
    culprit = (culprits or failed)[0]
    status = culprit.process.returncode
    until = time.monotonic() + SECONDS_TO_END
    for one in processes:
        try:
            one.process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            one.end(signal.SIGKILL)
            one.process.wait()
    if culprit.reader is not None:
        culprit.reader.join(1.0)
        print(*culprit.last, sep="\n", end="\n" if culprit.last else "", file=sys.stderr)
    if not received:
        how = f"ended with status {status}"
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        print(
            f"inference.launch: process {culprit.number} of {len(processes)} {how}, and the others were "
            "ended; start again, and a fit with a checkpoint goes on from there",
            file=sys.stderr,
        )
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    raise SystemExit(main())
