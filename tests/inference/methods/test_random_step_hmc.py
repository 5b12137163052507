"""HMC with a random step size (Virtanen 2010, algorithm 1): its draws, its steps, what it refuses."""

import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import zoo
from inference import fit
from inference.methods import nuts_hmc
from tests.tools.recording import add_part_to_record


def rows(num_rows=20):
    rng = np.random.default_rng(0)
    return (rng.random((num_rows, 6)) < 1 / (1 + np.exp(-2 * rng.normal(size=(num_rows, 1))))).astype(float)


MODEL = {"num_latents": 1, "beta": 0.4}


def draws(method, x, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a few draws are enough here
        return fit(zoo.EPCA.from_data(x, **MODEL), x, method=method, **settings)


@pytest.mark.slow
def test_steps_vary_about_an_adapted_mean():
    """A fixed step gives one trajectory length, a random one many: the distances moved spread far more."""
    settings = {"num_chains": 1, "num_warmup": 100, "num_samples": 150, "num_steps": 2, "seed": 1}
    x = rows(8)
    tree = draws("hmc", x, random_step=True, **settings)
    stats = tree["sample_stats"]
    assert np.ptp(stats["step_size"].to_numpy()) == 0.0  # the mean, no longer adapted
    assert np.all(stats["n_steps"] == 2)
    assert 0.5 < float(stats["acceptance_rate"].mean()) < 0.98
    quantiles = np.quantile(stats["acceptance_rate"], [0.1, 0.9])
    assert quantiles[1] > 0.99 and quantiles[0] < 0.9  # tiny steps are kept, long ones often not


@pytest.mark.slow
def test_agrees_with_nuts_on_natural_parameters():
    """E[Theta] of 20 cells within 4 standard errors: false alarm rate about 0.1 %."""
    x = rows()
    found = []
    for method, own in (("hmc", {"random_step": True, "num_steps": 10}), ("nuts", {})):
        tree = draws(method, x, num_chains=4, num_warmup=500, num_samples=4000, seed=3, **own)
        u, v, loc = (tree["posterior"][name].to_numpy() for name in ("latents", "loadings", "loc"))
        theta = (u @ np.swapaxes(v, -1, -2) + loc[:, :, None]).reshape(4, 4000, -1)[:, :, :20]
        batches = theta.reshape(4, 20, 200, -1).mean(2).reshape(80, -1)  # batch means
        found.append((batches.mean(0), batches.std(0, ddof=1) / np.sqrt(80)))
    (first, first_error), (second, second_error) = found
    z = np.abs(first - second) / np.hypot(first_error, second_error)
    command = "python -m pytest -m slow tests/inference/methods/test_random_step_hmc.py"
    found = {"largest_z_of_20_cells": round(float(z.max()), 2), "bar": 4}
    add_part_to_record("geweke_epca", "HMC of random steps against NUTS", command, **found)
    assert z.max() < 4


def test_what_does_not_go_together_is_refused():
    with pytest.raises(ValueError, match="random_step=True draws the step size"):
        draws("hmc", rows(), random_step=True, trajectory_length=1.0)
    with pytest.raises(TypeError, match="random_step must be True or False; got 'exponential'"):
        draws("hmc", rows(), random_step="exponential")
    with pytest.raises(TypeError, match="random_step"):
        draws("nuts", rows(), random_step=True)


class _Adapted(NamedTuple):
    step_size: Any


class _State(NamedTuple):
    i: Any
    rng_key: Any
    adapt_state: _Adapted
    used: Any
    potential_energy: Any


@pytest.mark.parametrize("random_step", [True, False])
@pytest.mark.parametrize(("i", "adapts"), [(0, True), (9, True), (10, False), (30, False)])
def test_each_trajectory_has_a_drawn_multiple_of_the_mean_step_that_warm_up_alone_adapts(
    random_step, i, adapts, monkeypatch
):
    """A kernel that adapts any step to 7. The factors are exponential with mean one (false alarms: 1e-5)."""

    def sample(state, data, keywords):
        adapted = jnp.where(state.i < 10, 7.0, state.adapt_state.step_size)
        return state._replace(used=state.adapt_state.step_size, adapt_state=_Adapted(adapted))

    kernel = SimpleNamespace(init=lambda *data: None, sample=sample)
    monkeypatch.setattr(nuts_hmc, "_kernel", lambda kind, options: kernel)
    monkeypatch.setattr(nuts_hmc, "log_joint_of", lambda state, model, data: -state.potential_energy)
    options = (("num_steps", 2), ("random_step", random_step))

    def step(key):
        state = _State(jnp.asarray(i), key, _Adapted(jnp.asarray(0.5)), jnp.asarray(0.0), jnp.asarray(4.0))
        return nuts_hmc._step(key, state, None, kind="hmc", options=options, num_warmup=10)

    state, info = jax.vmap(step)(jax.random.split(jax.random.key(0), 400))
    np.testing.assert_array_equal(state.adapt_state.step_size, 7.0 if adapts else 0.5)
    np.testing.assert_array_equal(info.objective, -4.0)
    if random_step:
        assert stats.kstest(np.asarray(state.used) / 0.5, "expon").pvalue > 1e-5
    else:
        np.testing.assert_array_equal(state.used, 0.5)
