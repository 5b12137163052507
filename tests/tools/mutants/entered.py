"""A plugin of pytest that writes down the functions of the project that each test enters.

``pytest -p tests.tools.mutants.entered --entered FILE``: a line of JSON for each test, with the path and the
first line of each function. What importing the file enters, and what setting up a fixture enters, counts for
each of its tests; what earlier tests have traced or kept is forgotten, so that each enters all that it needs.
Processes that a test starts are not looked into: that it starts one is told.
"""

import inspect
import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOMS = ("zoo", "inference")
TOOL, EVENT = sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START
STARTS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}


class Entered:
    """What is entered between two tests."""

    def __init__(self, root: Path, file: Path) -> None:
        """Look from now on."""
        self._root, self._file = root, file
        self._rooms = tuple(f"{root / room}/" for room in ROOMS)
        self._now: set = set()
        self._by_import: set = set()
        self._by_fixture: dict = defaultdict(set)
        self._starts = False
        sys.monitoring.use_tool_id(TOOL, "entered")
        sys.monitoring.register_callback(TOOL, EVENT, self._enter)
        sys.monitoring.set_events(TOOL, EVENT)
        sys.addaudithook(self._notice)

    def _enter(self, code, offset):
        if code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(self._rooms):
            self._now.add((str(Path(code.co_filename).relative_to(self._root)), code.co_firstlineno))
        return sys.monitoring.DISABLE

    def _notice(self, event, arguments):
        self._starts = self._starts or event in STARTS

    def pytest_collection_finish(self):
        """Set apart what importing the files has entered."""
        self._by_import = self._now

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Keep what a fixture enters, with those that it needs, for the tests that find it set up."""
        before, self._now = self._now, set()
        sys.monitoring.restart_events()
        yield
        self._by_fixture[fixturedef.argname] |= self._now
        self._now |= before

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item):
        """Write down what a test enters."""
        _forget(item.module)
        self._now, self._starts = set(), False
        sys.monitoring.restart_events()
        yield
        entered = self._now.union(self._by_import, *map(self._by_fixture.__getitem__, item.fixturenames))
        with self._file.open("a", encoding="utf-8") as file:
            print(json.dumps([item.nodeid, sorted(entered), self._starts]), file=file)


def _forget(module):
    """Traced programs, and what functions of the project and of the test's file keep."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    own = [other for name, other in sys.modules.items() if name.partition(".")[0] in (*ROOMS, "tests")]
    for value in [value for each in (module, *own) for value in vars(each).values()]:
        if type(value).__name__ == "_lru_cache_wrapper":
            value.cache_clear()


def pytest_addoption(parser):
    """The file to write to."""
    parser.addoption("--entered", type=Path, required=True)


def pytest_configure(config):
    """Look at what this process enters."""
    config.pluginmanager.register(Entered(config.rootpath, config.option.entered))
