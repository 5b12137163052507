"""Plants one mistake at a time in a copy of the project and runs tests there."""

import compileall
import json
import os
import py_compile
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import started
from tests.tools.mutants.listing import ROOT, Mutant

CPU_SECONDS = 60  # for one mistake
WALL_SECONDS = 3600  # for one pytest, on however busy a machine
IN_ORDER = ("--keep-duplicates",)  # else a test that is named before its folder runs when the folder does
KEPT_OUT = (
    ".git",
    ".venv*",
    ".*_cache",
    "__pycache__",
    "*.egg-info",
    "*.nc",
    "node_modules",
    "build",
    "dist",
)
KILLED, SURVIVED, STOPPED, BROKEN = "killed", "survived", "out of time", "broken"


@dataclass
class Outcome:
    """What came of one mistake.

    Attributes:
        status: one of the four above; "out of time" and "broken" (tests could not be collected) count as not
            killed.
        by: the test that failed, or what pytest said last.
        stage: "own", "room" or "slow": which tests had been run when it was decided.
        seconds: of the processor.
    """

    status: str
    by: str
    stage: str
    seconds: float


class Copy:
    """A copy of the project in a temporary folder, where tests run on what the copy holds."""

    def __init__(self) -> None:
        """Copy the working tree."""
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        self.root = Path(self._folder.name) / "project"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*KEPT_OUT))
        self._output = Path(self._folder.name) / "output.txt"
        self._output.touch()
        self._running: int | None = None  # the pytest's number
        self._warm: subprocess.Popen | None = None
        self._started = ExitStack()
        self.is_stopped = False
        self._lock = threading.Lock()
        cache = os.environ.get("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "d" / "jax"))
        self.environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # as in conftest.py, which comes too late here
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "OPENBLAS_NUM_THREADS": "1",  # no thread where the warm process forks
        }
        # Told by their source's digest, so that a changed file of the same size and second is read anew.
        compileall.compile_dir(
            self.root, quiet=2, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH
        )
        command = [sys.executable, "-c", "import zoo, inference; print(zoo.__file__, inference.__file__)"]
        with started(command, cwd=self.root, env=self.environment) as process:
            where = process.communicate()[0]
        if process.returncode or where.count(str(self.root)) != 2:
            raise RuntimeError(f"the copy in {self.root} is not what Python imports there: {where}")

    def __enter__(self) -> "Copy":
        """Use it in a ``with`` statement."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the folder."""
        self.stop()
        self._started.close()
        self._folder.cleanup()

    def stop(self) -> None:
        """End the process that runs in the copy, with what it started, and no other: it has no outcome."""
        self.is_stopped = True
        self._end()

    def _end(self) -> None:
        with self._lock:
            if self._running is None:
                return
            try:
                os.killpg(self._running, signal.SIGKILL)
            except ProcessLookupError:  # it has just been forked and leads no group yet
                os.kill(self._running, signal.SIGKILL)

    def _call(self, arguments: list[str], seconds: float) -> tuple[int, str, float]:
        """Exit status, output and processor seconds of a pytest in the copy."""
        if self._warm is None:
            command = [sys.executable, "-m", "tests.tools.mutants.warm"]
            options = {"cwd": self.root, "env": self.environment, "stdin": subprocess.PIPE, "stderr": None}
            self._warm = self._started.enter_context(started(command, **options))
        asked = {"arguments": arguments, "seconds": max(int(seconds), 1), "output": str(self._output)}
        print(json.dumps(asked), file=self._warm.stdin, flush=True)
        with self._lock:
            self._running = json.loads(self._warm.stdout.readline())["pid"]
        late = threading.Timer(WALL_SECONDS, self._end)
        late.start()
        try:
            answer = json.loads(self._warm.stdout.readline())
        finally:
            late.cancel()
            with self._lock:
                self._running = None
        output = self._output.read_text(encoding="utf-8", errors="replace")
        return answer["status"], output, answer["seconds"]

    def outcome(self, mutant: Mutant, likely: list[str], own_only: bool, slow: bool) -> Outcome:
        """Plant the mistake, run the likely tests, its own and those of its room, and take it out again."""
        with self.planted(mutant):
            return self._judged(mutant, likely, own_only, slow)

    @contextmanager
    def planted(self, mutant: Mutant) -> Iterator[None]:
        """The copy has the mistake inside the block."""
        file = self.root / mutant.path
        text = file.read_text(encoding="utf-8")
        file.write_text(mutant.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(text, encoding="utf-8")

    def first_failure(self, stage: str, arguments: list[str], seconds: float) -> Outcome:
        """What comes of a pytest in the copy that ends at the first test that fails."""
        whole = [*IN_ORDER, "-n", "0", "-x", "-q", "--tb=no", *arguments]
        status, output, spent = self._call(whole, seconds)
        return Outcome(*_read(status, output), stage, round(spent, 1))

    def _judged(self, mutant: Mutant, likely: list[str], own_only: bool, slow: bool) -> Outcome:
        own = tuple(dict.fromkeys([*(test for test in mutant.tests if "::" in test), *likely, *mutant.tests]))
        stages = [("own", own, ())]
        if not own_only:
            stages.append(("room", mutant.room_tests, mutant.tests))
        if slow:
            stages.append(("slow", (*mutant.tests, *mutant.room_tests), ()))
        spent, found = 0.0, Outcome(SURVIVED, "", "own", 0.0)
        for stage, tests, left_out in stages:
            arguments = [*tests, *(f"--ignore={path}" for path in left_out if "::" not in path)]
            arguments += ["-m", "slow and not needs_data and not needs_peer"] if stage == "slow" else []
            allowed = CPU_SECONDS * (10 if stage == "slow" else 1)
            found = self.first_failure(stage, arguments, allowed - (spent if stage == "room" else 0.0))
            spent += found.seconds
            found.seconds = round(spent, 1)
            if found.status in (KILLED, BROKEN) or (found.status == STOPPED and not slow):
                break
        return found


def _read(status: int, output: str) -> tuple[str, str]:
    """What an exit status of pytest means here, and the test or the line that tells why."""
    last = output.strip().splitlines()[-1] if output.strip() else ""
    if status in (0, 5):  # 5: the room has no other tests
        return SURVIVED, ""
    if status == 1:
        failed = re.search(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - .*)?$", output, re.MULTILINE)
        return KILLED, failed[1] if failed else last
    # what a fit without a single step raises, and a test that sends itself Ctrl-C: it ends pytest too
    if status == 2 and (interrupt := re.search(r"^!+ (.*KeyboardInterrupt.*?) !+$", output, re.MULTILINE)):
        return KILLED, interrupt[1]
    if status < 0:
        return STOPPED, f"signal {-status}"
    return BROKEN, last
