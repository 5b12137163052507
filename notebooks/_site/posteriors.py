"""What every method finds of the reference posteriors: the table and the picture of the records."""

import shutil
from pathlib import Path

__all__ = ["write"]

REFERENCE = Path(__file__).parents[2] / "tests" / "reference"


def write(path):
    """Copy the page and its picture (``python -m tests.support.posterior_table --draw`` makes both).

    Args:
        path: of the page; the picture comes to stand beside it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(REFERENCE / "posteriors.md", path)
    shutil.copyfile(REFERENCE / "posteriors.svg", path.with_suffix(".svg"))
