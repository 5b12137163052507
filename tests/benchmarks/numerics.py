"""The hand-written numerics against those of JAX, and L-BFGS against optax.

Run ``python -m tests.benchmarks.numerics`` in an environment with the extra ``bench``; it takes minutes.
Ratios are the seconds of the library over ours: above 1, ours is faster. One core, float64, CPU seconds; runs
of the two alternate and the smallest of each counts, so that a busy machine decides little.

Digamma, log-gamma and log-gamma draws (also by NumPy): 100 000 positive numbers, compiled. L-BFGS: calls of
``inference.fit(model, x, method="map")`` with a fixed number of iterations, ours, and with `optax.lbfgs` (its
default line search) put in its place; the first call, which compiles, in a process that compiled nothing yet,
and a later one. The value and gradient that optax's line search ends with are handed to its next iteration by
hand: `optax.value_and_grad_from_state` computes them again under ``vmap``. Both objectives are recorded,
with the iterations that optax needs for the objective that ours ends with (null: it does not come so far).
Ours stays while optax takes more than 1.5 times as long in the first or in later calls. Written to
tests/reference/benchmark_numerics.json.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from tests.benchmarks.kernel_pca import pin, seconds
from tests.tools.recording import write_record

NUMBERS, REPEATS, ROUNDS = 100_000, 15, 2
BAR = 1.5
PROBLEMS = {  # model, rows, columns, latents, components, iterations
    "EPCA, 200 x 30": ("epca", 200, 30, 3, 0, 100),
    "EPCA, 2000 x 100": ("epca", 2000, 100, 5, 0, 50),
    "DEPCAM, 200 x 30": ("depcam", 200, 30, 2, 3, 100),
    "DEPCAM, 2000 x 100": ("depcam", 2000, 100, 3, 4, 50),
    "EPCA, 20000 x 500": ("epca", 20_000, 500, 10, 0, 10),
}


def special_functions():
    """Best CPU milliseconds of ours and of JAX, and their ratio, by function."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from inference.numerics.gamma_draws import draw_log_gamma
    from inference.numerics.host_draws import log_gamma_draws
    from inference.precision import in_precision
    from zoo.gamma_functions import digamma, gammaln

    pairs = {
        "digamma": (digamma, jax.scipy.special.digamma),
        "log-gamma": (gammaln, jax.scipy.special.gammaln),
        "log-gamma draws": (
            lambda x: draw_log_gamma(jax.random.key(0), x),
            lambda x: jax.random.loggamma(jax.random.key(0), x),
        ),
    }
    found = {}
    with in_precision():
        x = jnp.asarray(np.random.default_rng(0).gamma(0.5, 20.0, NUMBERS) + 0.01)
        for name, functions in pairs.items():
            compiled = [jax.jit(function) for function in functions]
            times = [[], []]
            for _ in range(REPEATS + 1):
                for kept, function in zip(times, compiled, strict=True):
                    kept.append(seconds(lambda function=function: function(x).block_until_ready())[1])
            ours, theirs = (1e3 * min(kept[1:]) for kept in times)
            found[name] = {"ours_ms": ours, "jax_ms": theirs, "ratio": theirs / ours}
        on_host, rng = np.asarray(x), np.random.default_rng(0)
        kept = [seconds(lambda: log_gamma_draws(rng, on_host, 1))[1] for _ in range(REPEATS)]
        found["log-gamma draws"]["numpy_ms"] = 1e3 * min(kept)
    return found


def put_optax_in_place():
    """MAP by `optax.lbfgs` from here on in this process."""
    from typing import Any, NamedTuple

    import jax
    import jax.numpy as jnp
    import optax

    from inference.methods import map as maximum_a_posteriori

    class State(NamedTuple):
        point: Any
        value: Any
        optimiser: Any

    def init(point, memory_size):
        return State(point, jnp.array(jnp.inf), optax.lbfgs(memory_size=memory_size).init(point))

    def step(state, loss):
        memory_size = optax.tree.get(state.optimiser, "diff_params_memory")
        memory_size = jax.tree.leaves(memory_size)[0].shape[0]
        evaluate = optax.value_and_grad_from_state(loss)  # of the start, later taken from the state
        value, gradient = evaluate(state.point, state=state.optimiser)
        updates, optimiser = optax.lbfgs(memory_size=memory_size).update(
            gradient, state.optimiser, state.point, value=value, grad=gradient, value_fn=loss
        )
        value = optax.tree.get(optimiser, "value")
        return State(optax.apply_updates(state.point, updates), value, optimiser)

    maximum_a_posteriori.lbfgs_init, maximum_a_posteriori.lbfgs_step = init, step
    maximum_a_posteriori.settling_steps = lambda states: 0


def map_seconds(problem, solver):
    """CPU seconds of the first and of the best later call, and the objective after each iteration."""
    import warnings

    import zoo
    from inference import fit
    from tests.benchmarks.epca_map import table

    if solver == "optax":
        put_optax_in_place()
    kind, rows, columns, latents, components, iterations = PROBLEMS[problem]
    x = table(rows, columns, latents, 0.3 if kind == "epca" else 0.0)
    if kind == "epca":
        model = zoo.EPCA.from_data(x, family="bernoulli", num_latents=latents)
    else:
        model = zoo.DEPCAM(num_components=components, num_latents=latents, family="bernoulli")
    trees = []

    def call():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is stopped before it converges
            options = {"max_iterations": iterations, "tolerance": 0, "progress": False}
            trees.append(fit(model, x, method="map", **options))

    first = seconds(call)[1]
    later = min(seconds(call)[1] for _ in range(3 if rows < 20_000 else 1))
    return {
        "first": first,
        "later": later,
        "objective": trees[-1]["trace"]["objective"].values.ravel().tolist(),
    }


def lbfgs(problem):
    """Seconds, ratios and objectives of both solvers."""
    found = {"ours": [], "optax": []}
    for _ in range(ROUNDS):
        for solver, runs in found.items():
            command = [sys.executable, "-m", "tests.benchmarks.numerics", "--inside", problem, solver]
            run = subprocess.run(
                command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]
            )
            runs.append(json.loads(run.stdout.splitlines()[-1]))
    best = {
        solver: {part: min(run[part] for run in runs) for part in ("first", "later")}
        for solver, runs in found.items()
    }
    ours, theirs = (found[solver][0]["objective"] for solver in ("ours", "optax"))
    reached = next((i for i, value in enumerate(theirs) if value >= ours[-1]), None)
    return {
        "iterations": PROBLEMS[problem][-1],
        "seconds": best,
        "ratio_first": best["optax"]["first"] / best["ours"]["first"],
        "ratio_later": best["optax"]["later"] / best["ours"]["later"],
        "objective": {"ours": ours[-1], "optax": theirs[-1]},
        "iterations_of_optax_to_reach_ours": reached,
    }


def main():
    """Time, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inside", nargs=2, metavar=("PROBLEM", "SOLVER"), help=argparse.SUPPRESS)
    inside = parser.parse_args().inside
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    pin()
    if inside:
        print(json.dumps(map_seconds(*inside)))
        return
    functions = special_functions()
    for name, figures in functions.items():
        print(f"{name:<20}{figures['ours_ms']:>10.2f} ms, JAX {figures['ratio']:.1f} times")
    problems = {}
    for problem in PROBLEMS:
        figures = problems[problem] = lbfgs(problem)
        print(
            f"{problem:<20}optax takes {figures['ratio_first']:.2f} times (first call), "
            f"{figures['ratio_later']:.2f} times (later); {json.dumps(figures['objective'])}"
        )
    ratios = [figures[part] for figures in problems.values() for part in ("ratio_first", "ratio_later")]
    write_record(
        "benchmark_numerics",
        "python -m tests.benchmarks.numerics",
        "optax",
        numbers=NUMBERS,
        against_jax=functions,
        lbfgs={"bar": BAR, "ours_is_kept": max(ratios) > BAR, "problems": problems},
    )


if __name__ == "__main__":
    main()
