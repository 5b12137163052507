"""The set-up of the course's notebooks in one import, as ``from inference.course import np, plt, zoo``.

It gives NumPy, pandas, Matplotlib's pyplot, the two packages and what of them most notebooks use under the
usual names. Pictures have the style ``inference.plots.course`` and stand below their cells. No bars are
shown: set ``TQDM_DISABLE=0`` before Python starts to see them.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

os.environ.setdefault("TQDM_DISABLE", "1")  # read when tqdm is imported
warnings.filterwarnings("ignore", message="IProgress not found")  # bars need no widgets

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from IPython import get_ipython  # noqa: E402
from IPython.display import HTML  # noqa: E402

import inference  # noqa: E402
import zoo  # noqa: E402
from inference import plots  # noqa: E402
from inference.plots import COLOURS  # noqa: E402
from zoo.datasets import catalogue, load  # noqa: E402

__all__ = [
    "COLOURS",
    "SIZE",
    "at_size",
    "inference",
    "is_held",
    "load",
    "np",
    "pd",
    "plots",
    "plt",
    "quiet",
    "show_page",
    "zoo",
]

#: ``"full"``, or ``"small"`` where notebooks are only to be checked.
SIZE = os.environ.get("ZOO_NOTEBOOK_SIZE", "full")

plt.style.use("inference.plots.course")
if shell := get_ipython():
    shell.run_line_magic("matplotlib", "inline")


def at_size(full: Any, small: Any) -> Any:
    """Return ``full``, or ``small`` where the environment has ``ZOO_NOTEBOOK_SIZE=small``."""
    return {"full": full, "small": small}[SIZE]


def is_held(name: str) -> bool:
    """Whether the folder that ``ZOO_DATA`` names has a data set that may not be passed on."""
    folder = os.environ.get("ZOO_DATA")
    return bool(folder) and os.path.isfile(os.path.join(folder, catalogue()[name]["file"]))


def show_page(path: str | os.PathLike, title: str, height: int = 640) -> HTML:
    """Show a page that stands alone, such as a report, below the cell.

    Args:
        path: of the HTML file; the notebook holds its text and does not need it afterwards.
        title: what it is, for who cannot see it.
        height: of the frame in pixels.
    """
    page = escape(Path(path).read_text(encoding="utf-8"))
    frame = f'<iframe title="{escape(title)}" width="100%" height="{height}" srcdoc="{page}"></iframe>'
    return HTML(f"<div>{frame}</div>")  # a bare frame is warned of


@contextmanager
def quiet(*messages: str) -> Iterator[None]:
    """Do not show warnings that the text speaks of: a context, or a decorator.

    Args:
        messages: regular expressions of what they say; without any, that a run has not converged.
    """
    with warnings.catch_warnings():
        for message in messages or ("has not converged",):
            warnings.filterwarnings("ignore", message=f".*({message})")
        yield
