"""Whether a fit has converged, from what its run recorded: nothing is fitted here."""

from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import zoo
from inference.convergence.r_hat import Agreement
from inference.fitting import verdict
from inference.fitting.verdict import has_converged
from inference.methods import method_of


@pytest.mark.parametrize(
    ("chain", "sweep", "believed"), [(0, 0, True), (1, 2, True), (0, 3, False), (1, 6, False)]
)
def test_a_state_of_probability_zero_is_no_fault_in_warm_up_alone(chain, sweep, believed, monkeypatch):
    """Two chains, three sweeps of warm-up and four draws, of which one sweep has no finite log joint."""
    right = Agreement(True, "", 1.0)
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
