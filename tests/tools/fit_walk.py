"""The walk of the data through `fit`: every file of ours that ``fit(Mixture, x)`` runs before its first step.

``python -m tests.tools.fit_walk`` fits a mixture to a small table in a fresh process, follows every function
call by `sys.setprofile`, and stops where the driver compiles its first chunk of steps. It prints the files of
`zoo` and `inference` whose functions ran, in the order in which they were entered, under the phases of `fit`
(request, plan, drive; the phase build comes after the first step, so it is named and empty).

A file counts if a function of it ran, be it on the data or, while JAX traces the start, on tracers. Imports
count for nothing: neither the bodies of modules and classes that run because a file is imported at first use,
nor the functions that the import system calls meanwhile.

The command fails if more than `MOST_FILES` files ran, or if `fit` goes back to a room: a room is a folder of
`inference`, it is entered where a function of the fitting room calls into it, and it must not be entered in
two phases. Exempt are the words that every room uses (`zoo`, `inference.numerics`, the files of `inference`
itself) and the folder of the method, whose functions are handed over as arguments.
"""

import inspect
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import inference
import zoo

__all__ = ["main", "walk"]

ROOT = Path(inference.__file__).parents[1]
MOST_FILES = 25
PHASES = {"read_call": "request", "plan": "plan", "drive": "drive", "build_tree": "build"}
FIRST_CHUNK = "_ascend_chunk"  # of the driver: it runs once, while JAX traces it
FITTING, WORDS = "inference/fitting", ("zoo", "inference", "inference/numerics")


def walk() -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """The files that ran by phase, in order of their first function call, and the phases of each room."""
    files: dict[str, list[str]] = {phase: [] for phase in PHASES.values()}
    rooms: dict[str, set[str]] = {}
    phase, at_end = "request", False

    def follow(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal phase, at_end
        if event != "call" or at_end or not frame.f_code.co_flags & inspect.CO_NEWLOCALS:
            return
        file = _file_of(frame)
        if file is None or _is_importing(frame):
            return
        if frame.f_code.co_name == FIRST_CHUNK:
            at_end = True
            return
        caller = frame.f_back and _file_of(frame.f_back)
        if caller is not None and _room(caller) == FITTING:
            phase = PHASES.get(frame.f_code.co_name, phase)
            if _room(file) not in (FITTING, *WORDS) and not file.startswith(("zoo/", "inference/methods/")):
                rooms.setdefault(_room(file), set()).add(phase)
        if not any(file in entered for entered in files.values()):
            files[phase].append(file)

    x = np.random.default_rng(0).normal(size=(60, 3))
    model = zoo.Mixture(num_components=4, concentration=1.0)
    fit = inference.fit
    sys.setprofile(follow)
    try:
        fit(model, x, max_iterations=2, num_samples=2, progress=False)
    finally:
        sys.setprofile(None)
    if not at_end:
        raise RuntimeError(f"no function {FIRST_CHUNK} was called: the walk has no end")
    return files, rooms


def main() -> int:
    """Print the walk.

    Returns:
        1 if it is too long or goes back to a room.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # two steps do not converge
        files, rooms = walk()
    for phase, entered in files.items():
        print(f"{phase}: {len(entered)} files")
        for file in entered:
            print(f"    {file}")
    total = sum(map(len, files.values()))
    again = {room: sorted(phases) for room, phases in rooms.items() if len(phases) > 1}
    print(f"{total} files (at most {MOST_FILES}); rooms: {', '.join(rooms)}")
    for room, phases in again.items():
        print(f"{room} is entered in {' and in '.join(phases)}")
    return int(total > MOST_FILES or bool(again))


def _file_of(frame: FrameType) -> str | None:
    """The file of a function of ours, relative to the root; None for any other."""
    path = Path(frame.f_code.co_filename)
    if not path.is_relative_to(ROOT):
        return None
    file = path.relative_to(ROOT)
    return file.as_posix() if file.parts[0] in ("zoo", "inference") else None


def _is_importing(frame: FrameType | None) -> bool:
    """Whether the import system is among the callers of a frame."""
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _room(file: str) -> str:
    return Path(file).parent.as_posix()


if __name__ == "__main__":
    sys.exit(main())
