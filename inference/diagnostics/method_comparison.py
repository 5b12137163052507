"""Every method of every model on one table: held-out log density, time, PSRF, memory.

The score of a row that was held out is its log posterior predictive density in nats
(`inference.log_density`), so it compares models and methods of the same data alike. Densities of numbers and
probabilities of counts are measured in different units: compare those of one kind.
"""

import resource
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from inference.diagnostics.comparison import heldout
from inference.diagnostics.tables import summary
from inference.fitting.front_door import fit
from zoo.model import Model

__all__ = ["MethodScore", "Refusal", "score_methods"]

# What a fit or a score can fail with; one method's failure must not cost the others' scores
_FAILURES = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class MethodScore(NamedTuple):
    """What came of one method of one model.

    Attributes:
        model: its name.
        method: its name.
        nats_per_row: mean log density of the rows held out.
        standard_error: of that mean, over the rows.
        seconds: of the fit, with compilation.
        converged: as the fit says.
        max_psrf: the largest PSRF of the invariants; NaN where there are no chains.
        mebibytes: by how much the fit raised the memory of the process at its height.
        interrupted: whether the fit was cut short by the user.
    """

    model: str
    method: str
    nats_per_row: float
    standard_error: float
    seconds: float
    converged: bool
    max_psrf: float
    mebibytes: float
    interrupted: bool


class Refusal(NamedTuple):
    """Why a method, or a model, does not take the data.

    Attributes:
        model: its name.
        method: its name; empty: the whole model.
        reason: the message.
    """

    model: str
    method: str
    reason: str


def score_methods(
    models: Mapping[str, Model],
    train: Sequence[Any],
    test: Sequence[Any],
    *,
    methods: Sequence[str] | None = None,
    **settings: Any,
) -> Iterator[MethodScore | Refusal]:
    """Fit each model by each of its methods and score rows that were held out, one after another.

    Args:
        models: name to (filled) model.
        train: what the models are fitted to, parts of data in the models' order.
        test: the rows held out, alike.
        methods: only these.
        **settings: further arguments of `inference.fit`.

    Yields:
        A score, or why there is none, as soon as it is known.
    """
    for name, model in models.items():
        for method in model.methods:
            if methods and method not in methods:
                continue
            try:
                yield _score(name, model, method, train, test, settings)
            except _FAILURES as error:
                reason = " ".join(str(error).split())
                yield Refusal(name, method, reason or type(error).__name__)


def _score(
    name: str, model: Model, method: str, train: Sequence, test: Sequence, settings: Mapping[str, Any]
) -> MethodScore:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what they say stands in the columns
        before, start = _forget_peak(), time.perf_counter()
        tree = fit(model, *train, method=method, **settings)
        seconds = time.perf_counter() - start
        more = _peak() - before
        held_out = heldout(tree, *test)
        psrf = _largest_r_hat(tree)
    return MethodScore(
        name,
        method,
        float(held_out["mean"]),
        float(held_out["standard_error"]),
        seconds,
        bool(tree.attrs["converged"]),
        psrf,
        max(more, 0.0),
        tree.attrs["stop_reason"].startswith("interrupted"),
    )


def _largest_r_hat(tree: xr.DataTree) -> float:
    """The largest R-hat of the summary; NaN where there is none."""
    table = summary(tree)
    if "r_hat" not in table:
        return np.nan
    numbers = [float(cell) for cell in table["r_hat"] if not isinstance(cell, str)]  # or "constant"
    return float(np.nanmax(numbers)) if numbers else np.nan


def _status(field: str) -> float | None:
    """A field of Linux's /proc/self/status, in MiB; None on another system."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
    except OSError:
        return None
    return float(lines[field].split()[0]) / 2**10 if field in lines else None


def _forget_peak() -> float:
    """What the process holds now, in MiB; from here on `_peak` is that of what follows, where it can be."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return _peak()
    held = _status("VmRSS")
    return _peak() if held is None else held


def _peak() -> float:
    """The most memory that the process has held, in MiB."""
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    raw = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return raw / 2**20 if sys.platform == "darwin" else raw / 2**10
