"""What words stand for: a data set of the catalogue, a file, files read in batches; a model of one's own."""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

from zoo import MODELS, model_class, register
from zoo.datasets import catalogue, shipped_folder
from zoo.naming import did_you_mean

_ENDINGS = (".csv", ".tsv", ".txt", ".dat", ".xlsx", ".parquet", ".npz", ".nc")
_ALWAYS = (".npy", ".zarr")  # kinds of files that are read in batches alone
_PATTERN = re.compile(r"[*?\[]")


def check_source(source: str) -> None:
    """ValueError or FileNotFoundError unless a word is a data set of the catalogue or the path of a file."""
    path, names = Path(source), catalogue()
    if source in names:
        return
    if not path.suffix or (path.suffix.lower() not in _ENDINGS and not path.exists()):
        raise ValueError(
            f"no data set is called {source!r}, and it is no path to a file ending in {', '.join(_ENDINGS)}; "
            f"the catalogue has: {', '.join(names)}"
        )
    if not path.exists():
        raise FileNotFoundError(f"there is no file {source}")


def files_of(source: str) -> tuple[Path, ...]:
    """The file that is read for a name of the catalogue or a path; none for a data set without one."""
    entry = catalogue().get(source)
    if entry is None:
        return (Path(source),)
    folders = {"shipped": shipped_folder(), "user": os.environ.get("ZOO_DATA")}
    folder = folders.get(entry["kind"])
    return (Path(folder, entry["file"]),) if folder else ()


def is_read_in_batches(options: SimpleNamespace) -> bool:
    """Whether the data are read in batches, as they are or as told; ValueError for what goes with none."""
    given, asked = options.files, options.batch_size
    if len(given) > 1 and asked is None and getattr(options, "id", None):
        return False  # tables of the same people, a part each
    many = len(given) > 1 or any(_stands_for_many(name) for name in given)
    if not many and not (asked is not None and Path(given[0]).suffix.lower() == ".parquet"):
        return False
    for name in given:
        if name in catalogue():
            raise ValueError(f"{name} is a data set of the catalogue; several data sets are several files")
    for option in ("y", "views", "read"):
        if getattr(options, option):
            raise ValueError(f"--{option} goes with one table in memory; these data are read in batches")
    if asked is None and options.command == "fit" and "topic" not in sum(options.card.dims.values(), ()):
        parts = "; tables of the same rows, each with columns of its own, go by --id COLUMN"
        raise ValueError(
            f"{' '.join(given[:2])}{' ...' if len(given) > 2 else ''} is read in batches: say how many rows "
            f"each has, such as --batch-size 100000{parts if len(given) > 1 else ''}"
        )
    return True


def _stands_for_many(name: str) -> bool:
    path = Path(name)
    if name in catalogue():
        return False
    return path.is_dir() or path.suffix.lower() in _ALWAYS or _is_pattern(name)


def _is_pattern(name: str) -> bool:
    return bool(_PATTERN.search(name)) and not Path(name).exists()


def files_read(given: Sequence[str]) -> tuple[Path, ...]:
    """The files that paths, folders and patterns stand for, which no command must write, and the folders."""
    found: list[Path] = []
    for name in given:
        path = Path(name)
        here = Path(path.anchor).glob(str(path.relative_to(path.anchor))) if _is_pattern(name) else [path]
        for held in sorted(here):
            found += [held, *held.rglob("*")] if held.is_dir() else [held]
    return tuple(found)


def name_of(given: Sequence[str]) -> str:
    """A short name for the data: the stem of the first file, or of the folder that a pattern is in."""
    path = Path(given[0])
    return path.parent.resolve().name or "rows" if _is_pattern(given[0]) else path.stem


def own_model(name: str) -> str:
    """The key of a model that is called ``FILE.py:CLASS`` or ``MODULE:CLASS``; other names as they are.

    The module is imported as it would be in Python, and the class is registered unless the module does so.

    Args:
        name: as the command line has it; never what a file says, for this runs code.

    Returns:
        A key of `zoo.MODELS`.

    Raises:
        TypeError: the class is no model.
        ValueError: a module that cannot be imported or has no such class, or one that cannot be registered.
    """
    place, colon, class_name = name.rpartition(":")
    if not colon:
        return name
    file = Path(place)
    is_file = file.suffix == ".py"
    sys.path.append(str(file.parent.resolve()) if is_file else os.getcwd())
    try:
        module = _module_of(file) if is_file else importlib.import_module(place)
    except Exception as error:  # another author's code raises anything
        raise ValueError(f"{place} cannot be imported: {type(error).__name__}: {error}") from error
    found, key = getattr(module, class_name, None), class_name.lower()
    if found is None:
        raise ValueError(f"{place} has no {class_name!r}{did_you_mean(class_name, dir(module))}")
    if key not in MODELS or model_class(key) is not found:
        register(found, methods={})
    return key


def _module_of(file: Path) -> ModuleType:
    """The module in a file, imported once."""
    held = sys.modules.get(file.stem)
    if held is not None and Path(getattr(held, "__file__", None) or "").resolve() == file.resolve():
        return held
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if held is not None or spec is None or spec.loader is None:
        raise ImportError(f"{file.stem} is the name of another module: rename the file")
    module = sys.modules[file.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
