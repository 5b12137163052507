"""Compiled programs on disk: two processes, folders that are not ours, a bound, and no setting unasked."""

import os
import stat
import subprocess
import sys
import threading
import time
import zlib
from contextlib import ExitStack
from pathlib import Path

import jax
import numpy as np
import pytest

import inference
import zoo
from inference import program_cache
from tests.support.processes import LIMIT, started

FIT = """
import warnings
import numpy as np
import inference, zoo
from jax import monitoring
missed = []
monitoring.register_event_listener(lambda name, **_: missed.append(name) if "misses" in name else None)
warnings.filterwarnings("error", message=".*persistent compilation.*")
x = np.random.default_rng(0).normal(size=(12, 3))
inference.compile_cache()
print("has its folder", flush=True)
input()
tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
print(len(missed), float(tree["trace"]["objective"][-1]))
"""
SETTINGS = ("JAX_COMPILATION_CACHE_DIR", "ZOO_COMPILE_CACHE", "XDG_CACHE_HOME")


def ran(count, **environment):
    """What processes print that fit at once, without the settings of this one.

    None begins its fit before all have their folders, and so before any can publish what it compiled.
    """
    kept = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    command, options = [sys.executable, "-c", FIT], {"env": kept | environment, "stdin": subprocess.PIPE}
    with ExitStack() as open_processes:
        running = [open_processes.enter_context(started(command, **options)) for _ in range(count)]
        for process in running:
            assert process.stdout.readline() == "has its folder\n", process.stderr.read()[-2000:]
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
        printed = [process.communicate(timeout=LIMIT) for process in running]
    assert [process.returncode for process in running] == [0] * count, printed
    return [out.split() for out, _ in printed]


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_two_at_once_are_safe(tmp_path):
    environment = {"ZOO_COMPILE_CACHE": str(tmp_path / "programs")}
    first = ran(2, **environment)
    (common,) = (tmp_path / "programs").iterdir()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (common.parent, common)} == {0o700}
    entries = list(common.iterdir())
    assert entries and all(path.is_file() for path in entries)  # the processes' own folders are gone
    ((missed, objective),) = ran(1, **environment)
    assert int(missed) == 0
    assert [int(number) > 0 for number, _ in first] == [True, True]
    assert {value for _, value in first} == {objective}


def test_what_is_published(tmp_path):
    """Whole entries, the newest up to the bound; planted: an entry cut in the middle, as by a full disk."""
    for _ in range(2):  # the second process finds what the first has added
        mine = program_cache.own_folder(tmp_path / "programs")
    whole = zlib.compress(os.urandom(100))
    for age, name in enumerate(("new", "middle", "old")):
        (mine / name).write_bytes(whole)
        os.utime(mine / name, (time.time() - age, time.time() - age))
    (mine / "half").write_bytes(whole[:-4])
    program_cache.publish(mine, 10**6, os.getpid() + 1)  # a fork does nothing
    assert mine.is_dir()
    program_cache.publish(mine, 2 * len(whole), os.getpid())
    common = mine.parent
    assert sorted(path.name for path in common.iterdir() if path.is_file()) == ["middle", "new"]
    assert not mine.exists()
    abandoned = next(path for path in common.iterdir() if path.is_dir())
    os.utime(abandoned, (0, 0))
    mine = program_cache.own_folder(tmp_path / "programs")
    assert sorted(path.name for path in mine.iterdir()) == ["middle", "new"] and not abandoned.exists()


def test_folders_that_cannot_be_used(tmp_path, monkeypatch):
    """Under a file; written to by others; switched off: as without a cache, and no error."""
    monkeypatch.setattr(jax.config, "update", pytest.fail)
    file, shared = tmp_path / "file", tmp_path / "shared"
    file.write_text("")
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(OSError, match="others may write"):
        program_cache.own_folder(shared)
    with pytest.raises(OSError):
        program_cache.own_folder(file / "programs")
    monkeypatch.setenv("ZOO_COMPILE_CACHE", "off")
    assert inference.compile_cache(tmp_path / "own") is None and not (tmp_path / "own").exists()
    with pytest.raises(ValueError, match="max_bytes must be at least 0"):
        inference.compile_cache(tmp_path, max_bytes=-1)


def test_a_folder_that_the_user_gave_jax_stays(monkeypatch):
    monkeypatch.delenv("ZOO_COMPILE_CACHE", raising=False)
    given = jax.config.jax_compilation_cache_dir
    assert given and inference.compile_cache() == Path(given)


@pytest.mark.filterwarnings("ignore:ppca by em has not converged")
def test_a_fit_changes_no_setting_that_another_thread_sees():
    """Why the cache is not on by default in Python: its settings are those of the whole process."""
    names = [name for name in jax.config.values if "cache" in name or "x64" in name]
    seen = []

    def watch(stop):
        while not stop.wait(0.002):
            seen.append({name: jax.config.values[name] for name in names})

    before, stop = {name: jax.config.values[name] for name in names}, threading.Event()
    watcher = threading.Thread(target=watch, args=(stop,))
    watcher.start()
    x = np.random.default_rng(0).normal(size=(12, 3))
    inference.fit(zoo.PPCA(num_latents=1), x, method="em", max_iterations=3)
    stop.set()
    watcher.join()
    assert seen and all(values == before for values in seen)
