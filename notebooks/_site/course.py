"""The course: every notebook with its outputs, taken from a folder or executed at small size."""

import re
from pathlib import Path

__all__ = ["write"]

LINK = re.compile(r"\((\w+)\.py\)")
RECORD = re.compile(r"\[(tests/reference/[\w.]+)\]\(\.\./tests/reference/[\w.]+\)")


def write(notebooks, folder, outputs=None):
    """Write the notebooks with their outputs, and the page that lists them.

    Args:
        notebooks: the folder of the text files and their list, ``README.md``.
        folder: where to; it is made if missing.
        outputs: a folder that holds all notebooks executed, as ``tests.benchmarks.notebooks --keep`` leaves
            them; None executes at small size what is not in ``folder`` already and has not changed since.

    Raises:
        FileNotFoundError: ``outputs`` lacks a notebook.
    """
    folder.mkdir(parents=True, exist_ok=True)
    listed = (notebooks / "README.md").read_text(encoding="utf-8")
    names = LINK.findall(listed)
    for name in names:
        target = folder / f"{name}.ipynb"
        if outputs is not None:
            made = outputs / f"{name}.ipynb"
            if not made.exists():
                raise FileNotFoundError(
                    f"ZOO_SITE_OUTPUTS names {outputs}, which has no {name}.ipynb: make it by "
                    f"python -m tests.benchmarks.notebooks full {name} --keep {outputs}"
                )
            target.write_text(LINK.sub(r"(\1.ipynb)", made.read_text(encoding="utf-8")), encoding="utf-8")
        elif not _is_newer(target, notebooks / f"{name}.py"):
            from tests.benchmarks.notebooks import run_notebook

            print(f"executing {name} at small size", flush=True)
            run_notebook(notebooks / f"{name}.py", "small", keep=folder)
            made = target.read_text(encoding="utf-8")
            target.write_text(LINK.sub(r"(\1.ipynb)", made), encoding="utf-8")
    page = LINK.sub(r"(\1.ipynb)", RECORD.sub(r"`\1`", listed))
    page = re.sub(r"^(\d+)\. ", r"\1. ", page, flags=re.MULTILINE)
    entries = "\n".join(names)
    page += f"\n```{{toctree}}\n:hidden:\n\n{entries}\n```\n"
    (folder / "index.md").write_text(page, encoding="utf-8")


def _is_newer(made: Path, source: Path) -> bool:
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime
