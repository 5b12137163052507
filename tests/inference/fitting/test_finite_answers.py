"""No fit says that it has converged where its objective is not a finite number."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import inference
import zoo
from inference.algorithm import AscentRun, ChainsRun
from inference.fitting.verdict import has_converged
from inference.methods import method_of

X = np.random.default_rng(0).normal(size=(12, 3))
CALLS = {
    "ppca": (zoo.PPCA(num_latents=1), "closed_form"),
    "kernelpca": (zoo.KernelPCA(num_latents=1), "closed_form"),
    "morp": (zoo.SPPCA(num_latents=1), "morp"),
    "kernel_cca": (zoo.SPPCA(num_latents=1), "kernel_cca"),
}


@pytest.mark.filterwarnings("ignore:the noise variance is held at noise_floor")
@pytest.mark.parametrize("scale", [1e-200, 1e200])
@pytest.mark.parametrize("name", CALLS)
def test_a_direct_method_without_a_finite_answer_is_refused(name, scale):
    """At 1e-200 squares vanish, at 1e200 they overflow."""
    model, method = CALLS[name]
    data = (scale * X,) if model.data_names == ("x",) else (scale * X, scale * X[:, :1])
    with pytest.raises((FloatingPointError, ValueError)):
        inference.fit(model, *data, method=method)


@pytest.mark.parametrize("objective", [np.nan, np.inf, -np.inf])
def test_the_objective_of_every_direct_method_is_looked_at(objective, monkeypatch):
    model = zoo.PPCA(num_latents=1)
    method = method_of(model, "closed_form")
    found = method.solve(None, model, (X,))[0]
    wrong = replace(method, solve=lambda *arguments, **options: (found, objective))
    monkeypatch.setattr("inference.fitting.arguments.method_of", lambda *arguments: wrong)
    with pytest.raises(FloatingPointError, match="closed_form has no finite answer: its objective is"):
        inference.fit(model, X, method="closed_form")


def test_an_estimate_that_is_not_finite_is_refused(monkeypatch):
    model = zoo.PPCA(num_latents=1)
    method = method_of(model, "closed_form")
    found = method.solve(None, model, (X,))[0]
    bad = found._replace(posterior=dict(found.posterior) | {"loc": np.full((1, 1, 3), np.nan)})
    wrong = replace(method, solve=lambda *arguments, **options: (bad, 1.0))
    monkeypatch.setattr("inference.fitting.arguments.method_of", lambda *arguments: wrong)
    with pytest.raises(FloatingPointError, match="its estimate of loc is not finite"):
        inference.fit(model, X, method="closed_form")


@pytest.mark.parametrize("last", [np.nan, np.inf])
def test_no_ascent_converges_at_an_objective_that_is_not_finite(last):
    trace = {"objective": np.array([[-3.0, -2.0, last]])}
    run = AscentRun(None, trace, 0, True, "converged", 3, 0)
    request = SimpleNamespace(method=method_of(zoo.PPCA(), "em"), settings=SimpleNamespace(tolerance=1e-6))
    assert has_converged(request, run, xr.DataTree())[0] is False
    trace["objective"][0, 2] = -1.9
    assert has_converged(request, run, xr.DataTree())[0] is True


def test_no_sampler_converges_at_a_log_joint_that_is_not_finite():
    trace = {"objective": np.array([[-3.0, -2.0, np.inf, -2.5]])}
    run = ChainsRun({}, trace, "completed", 4)
    request = SimpleNamespace(
        method=method_of(zoo.PPCA(), "nuts"), settings=SimpleNamespace(num_warmup=1, tolerance=0)
    )
    converged, advice = has_converged(request, run, xr.DataTree())
    assert not converged and "not finite at 1 of 3 kept sweeps" in advice
