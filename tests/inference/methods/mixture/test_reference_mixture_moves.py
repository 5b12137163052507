"""Slow runs of what raises the bound of VB for mixtures: sorted sticks, moves, learnt hyperparameters.

Recorded in tests/reference/mixture_moves.json and mixture_learnt.json. Run with
``pytest -m slow tests/inference/methods/mixture/test_reference_mixture_moves.py``. Data are the twenty draws
of the toy of Yu (2006, section 2.2.4), 250 rows of five Gaussians.
"""

import json
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from inference import fit, model_of
from inference.driver.ascent import ascend
from inference.driver.checkpoint import Checkpoint
from inference.fitting.in_memory import progress_line
from inference.fitting.verdict import five_small_gains
from inference.methods.mixture.vb import METHOD
from tests.tools.recording import write_record
from zoo.datasets import load
from zoo.mixture import Mixture
from zoo.model import in_current_precision

REFERENCE = Path(__file__).parents[3] / "reference"
DRAWS, STARTS = 20, 3
MOVES = ("merge", "birth")


def record(name, **figures):
    command = "python -m pytest -m slow tests/inference/methods/mixture/test_reference_mixture_moves.py"
    write_record(f"mixture_{name}", command, **figures)


def summary(gains):
    return {
        "mean": float(np.mean(gains)),
        "standard_error": float(np.std(gains, ddof=1) / np.sqrt(len(gains))),
        "by_draw": [round(float(gain), 3) for gain in gains],
    }


def climb(algorithm, model, x, seed):
    """The last bound of one start and the CPU seconds it took, compiled before."""
    begin = time.process_time()
    result = ascend(
        algorithm.step,
        lambda key, variables, *args: algorithm.init(key, *args),
        model,
        (x,),
        keys=jax.random.key(seed)[None],
        variables={},
        num_rows=x.shape[0],
        num_restarts=1,
        max_iterations=1000,
        tolerance=1e-6,
        must_rise=True,
        checkpoint=Checkpoint(None, {}),
        rule=five_small_gains,
        open_bar=progress_line(False),
        improve=algorithm.improve,
    )
    return result.trace["objective"][0, -1], time.process_time() - begin


@pytest.mark.slow
@pytest.mark.parametrize("weight_prior", ["stick_breaking", "dirichlet"])
def test_paired_gain_at_equal_cpu_time(weight_prior):
    """K = 20, alpha = 1: sorted sticks with moves, against as many plain starts as the same CPU time buys.

    At least as many: plain VB has the last start that began within the time.
    """
    forms = {
        "plain": {"sort_sticks": False, "moves": ()},
        "sorted": {"sort_sticks": True, "moves": ()},
        "sorted and moved": {"sort_sticks": True, "moves": MOVES},
    }
    with jax.enable_x64(True):
        algorithms = {name: METHOD.build("random", learn=(), **form) for name, form in forms.items()}
        table = {name: [] for name in forms}
        single = {name: [] for name in forms}
        for draw in range(DRAWS):
            x = in_current_precision(load("toy_gaussians", seed=draw)["x"])
            model = in_current_precision(
                Mixture.from_data(np.asarray(x), num_components=20, weight_prior=weight_prior)
            )
            if draw == 0:
                for algorithm in algorithms.values():
                    climb(algorithm, model, x, 0)
            runs = [climb(algorithms["sorted and moved"], model, x, seed) for seed in range(STARTS)]
            budget = sum(seconds for _, seconds in runs)
            table["sorted and moved"].append((max(b for b, _ in runs), budget, STARTS))
            for name in ("plain", "sorted"):
                spent, bounds = 0.0, []
                while spent < budget:
                    bound, seconds = climb(algorithms[name], model, x, len(bounds))
                    spent += seconds
                    bounds.append(bound)
                table[name].append((max(bounds), spent, len(bounds)))
                single[name].append(np.mean(bounds[:STARTS]))
            single["sorted and moved"].append(np.mean([b for b, _ in runs]))
    best = {name: np.array([row[0] for row in rows]) for name, rows in table.items()}
    figures = {
        "gain_of_sorting_and_moves_over_plain_nats": summary(best["sorted and moved"] - best["plain"]),
        "gain_of_sorting_over_plain_nats": summary(best["sorted"] - best["plain"]),
        "gain_per_start_nats": summary(np.array(single["sorted and moved"]) - np.array(single["plain"])),
        "mean_starts": {name: float(np.mean([row[2] for row in rows])) for name, rows in table.items()},
        "mean_cpu_seconds": {name: float(np.mean([row[1] for row in rows])) for name, rows in table.items()},
        "setting": f"toy_gaussians draws 0..{DRAWS - 1}, K=20, alpha=1, best of the starts",
    }
    path = REFERENCE / "mixture_moves.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = {name: known[name] for name in ("stick_breaking", "dirichlet") if name in known}
    record("moves", **kept | {weight_prior: figures})
    # at equal time under Dirichlet weights nothing is claimed: 5.9 +- 1.4 with poorer starts, 1.3 +- 1.1 now
    claimed = ("gain_per_start_nats", "gain_of_sorting_and_moves_over_plain_nats")
    for name in claimed[: 1 + (weight_prior == "stick_breaking")]:
        assert figures[name]["mean"] > 2 * figures[name]["standard_error"], name


@pytest.mark.slow
def test_the_gain_of_learnt_hyperparameters_on_the_thesis_toy():
    """m0, W0, beta0 and alpha learnt from the best of 20 fits, nu0 fixed: 25.5 +- 5.8 in the reference.

    The reference stopped after at most 60 M-steps; the gain here is also read off there. Over 20 draws the
    standard error of a difference is sqrt(5.8^2 / 12 + 5.8^2 / 20) = 2.1; the bar is 3 of them.
    """
    gains, early, stuck = [], [], []
    for draw in range(DRAWS):
        x = load("toy_gaussians", seed=draw)["x"]
        model = Mixture.from_data(x, num_components=5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # bounds are hit, and that is recorded
            fixed = fit(model, x, init="random", num_restarts=20, num_samples=1, tolerance=1e-8, seed=draw)
            learn = ("loc", "scale_matrix", "mean_precision", "concentration")
            tree = fit(model, x, init=fixed, learn=learn, num_samples=1, tolerance=1e-8)
        before, path = float(fixed["trace"]["objective"].max()), tree["trace"]["objective"].to_numpy()
        gains.append(path[-1] - before)
        early.append(path[min(2, len(path) - 1)] - before)
        stuck.append(tree.attrs["hyperparameters_at_bound"])
        assert np.min(np.diff(path) / np.abs(path[:-1])) > -1e-8
        assert float(model_of(tree).components.mean_precision) > float(model.components.mean_precision)
    record(
        "learnt",
        reference="25.5 +- 5.8 over 12 draws (reading D, nu0 fixed); the thesis: 27.6 on its own sample",
        gain_nats=summary(gains),
        gain_after_three_steps_nats=summary(early),
        at_bound=stuck,
    )
    assert abs(np.mean(gains) - 25.5) < 6.3
