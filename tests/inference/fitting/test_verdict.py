"""Whether a fit has converged, from what its run recorded: nothing is fitted here."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import zoo
from inference import fit
from inference.convergence.r_hat import Judgement
from inference.fitting import in_memory, verdict
from inference.fitting.verdict import has_converged
from inference.methods import method_of


@pytest.mark.parametrize(
    ("chain", "sweep", "believed"), [(0, 0, True), (1, 2, True), (0, 3, False), (1, 6, False)]
)
def test_a_state_of_probability_zero_is_no_fault_in_warm_up_alone(chain, sweep, believed, monkeypatch):
    """Two chains, three sweeps of warm-up and four draws, of which one sweep has no finite log joint."""
    right = Judgement(True, "", 1.0)
    monkeypatch.setattr(verdict, "judgement", lambda tree: right)
    objective = np.zeros((2, 7))
    objective[chain, sweep] = -np.inf
    request = SimpleNamespace(
        method=method_of(zoo.PPCA(num_latents=1), "nuts"), settings=SimpleNamespace(num_warmup=3)
    )
    run = SimpleNamespace(stop_reason="completed", trace={"objective": objective})
    converged, reasons = has_converged(request, run, xr.DataTree())
    assert converged is believed
    assert believed or "not finite at 1 of 8 kept sweeps" in reasons


@pytest.mark.parametrize("weight", [None, np.array([0.5, 0, 2, 3.5, 1, 0])])
def test_the_tolerance_is_per_row_and_a_row_of_weight_w_counts_w_times(weight, monkeypatch):
    """What the loop is told of the number of rows, before anything is compiled."""
    told = []

    def stop(*arguments, num_rows, **settings):
        told.append(num_rows)
        raise InterruptedError

    monkeypatch.setattr(in_memory, "ascend", stop)
    x = np.random.default_rng(0).normal(size=(6, 2))
    with pytest.raises(InterruptedError):
        fit(zoo.Mixture(num_components=2), x, method="vb", sample_weight=weight)
    assert told == [6 if weight is None else 7.0]
