"""Samplers of mixtures on ordinary data: do they converge, from dispersed starts, and at what cost?

``python -m tests.benchmarks.mixture_samplers [--record] [SET ...]`` fits each set with Dirichlet and with
stick-breaking weights (K = 20, concentration Gamma(2, 1), four chains from labels that are uniform over a
random number of components), by the blocked sampler with its split-merge moves and ``until="converged"``, for
600 seconds at most, and writes verdict, largest R-hat, smallest bulk ESS (each with its invariant) and CPU
seconds, compilation included, to ``tests/reference/benchmark_mixture_samplers.json``, set by set.

``default`` is the call without settings (Dirichlet weights), cold: R-hat below 1.01, ESS of 400 and 60 CPU
seconds are wanted. ``readme`` is the sampler line of the guide to the command line (once the README's) with
five seeds. ``rate`` is the smallest bulk ESS per CPU second on Old Faithful, with the moves, warm-up included
and compilation not;
``--peer FOLDER``, a checkout of d4579d2, gives that of its sampler beside it and the ratio of geometric means
over seeds, wanted: 5. ``sizes`` is the same rate with
four moves and with none on several sets (Dirichlet weights): what the default of ``split_merge`` goes by.
``attempts`` is what was tried on olive, which resists, with Dirichlet weights: the collapsed sampler from
labels that were annealed, the likelihood raised to a power that rises from 0.15 to 1; the collapsed sampler
with twenty moves a sweep (sequentially allocated when it was recorded); and ten times as many moves of the
blocked sampler. Each has a limit in sweeps, so that a busy
machine decides nothing; the cost stands beside the verdict, and each is recorded as soon as it is known.

Drawn sets, 300 rows in two columns: ``separated`` (four Gaussians eight deviations apart), ``overlapping``
(three, two deviations apart), ``heavy_tailed`` (three Student t with three degrees of freedom).
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

NAME = "benchmark_mixture_samplers"
WEIGHTS = ("dirichlet", "stick_breaking")
SETS = ("faithful", "toy_gaussians", "olive", "separated", "overlapping", "heavy_tailed")
LIMIT = 600.0
MOVES = {"split_merge": 4}
UNTIL = MOVES | {"until": "converged", "num_warmup": 1000, "num_samples": 1000, "thinning": 5}
ATTEMPTS = {
    "collapsed, from annealed labels": {
        "method": "collapsed_gibbs",
        "split_merge": 0,
        "num_warmup": 0,
        "num_samples": 500,
        "thinning": 8,
        "max_sweeps": 8000,
        "init": "annealed",
    },
    "collapsed, 20 moves": {
        "method": "collapsed_gibbs",
        "split_merge": 20,
        "num_warmup": 300,
        "num_samples": 200,
        "thinning": 2,
        "max_sweeps": 1100,
    },
    "blocked, 40 moves": {
        "split_merge": 40,
        "num_warmup": 500,
        "num_samples": 250,
        "thinning": 5,
        "max_sweeps": 3000,
    },
}
DEFAULT_SETS = ("faithful", "toy_gaussians", "iris", "separated", "overlapping", "heavy_tailed")
CHAINS, ANNEALED_SWEEPS, FIRST_POWER = 4, 10_000, 0.15
GUIDE = MOVES | {"num_samples": 4000, "thinning": 4}
SIZES = (
    ("faithful", 272),
    ("overlapping", 300),
    ("separated", 300),
    ("heavy_tailed", 300),
    ("overlapping", 500),
    ("heavy_tailed", 1000),
)
LONG = {"num_warmup": 1000, "num_samples": 4000, "thinning": 2}
LONGER = LONG | {"thinning": 5}  # else the effective sample size of chains that mix slowly is a guess


def rows_of(name, num_rows=300):
    """The rows of a set, shape (num_observations, num_features); of a drawn one as many as asked for."""
    from zoo.datasets import load

    rng = np.random.default_rng(0)
    if name == "iris":
        from sklearn.datasets import load_iris

        return load_iris().data
    if name == "separated":
        centres = np.array([[0, 0], [8, 0], [0, 8], [8, 8]])
        return centres[rng.integers(0, 4, num_rows)] + rng.normal(size=(num_rows, 2))
    if name == "overlapping":
        centres = np.array([[0, 0], [2, 0], [1, np.sqrt(3)]])
        return centres[rng.integers(0, 3, num_rows)] + rng.normal(size=(num_rows, 2))
    if name == "heavy_tailed":
        centres = np.array([[0, 0], [8, 0], [0, 8]])
        return centres[rng.integers(0, 3, num_rows)] + rng.standard_t(3, size=(num_rows, 2))
    return np.asarray(load(name)["x"], float)


def model_on(x, weight_prior):
    """The mixture that is fitted to rows."""
    import numpyro.distributions as dist

    import zoo

    return zoo.Mixture.from_data(
        x, num_components=20, concentration=dist.Gamma(2.0, 1.0), weight_prior=weight_prior
    )


def fitted(x, weight_prior, seed, method="gibbs", **options):
    """A fit by the blocked sampler or another one, and its CPU seconds."""
    import inference

    model = model_on(x, weight_prior)
    begun = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = inference.fit(model, x, method=method, seed=seed, progress=False, **options)
    return tree, time.process_time() - begun


def judged(tree):
    """Largest R-hat and smallest bulk ESS over the invariants that vary, each with its name."""
    from arviz_stats.base import array_stats

    from inference.diagnostics import invariants

    drawn = {}
    for name, variable in invariants(tree).data_vars.items():
        values = variable.transpose("chain", "draw", ...)
        flat = values.values.reshape(*values.shape[:2], -1).astype(float)
        drawn |= {f"{name}[{i}]": flat[..., i] for i in range(flat.shape[2]) if np.ptp(flat[..., i]) > 0}
    axes = {"chain_axis": 0, "draw_axis": 1}
    r_hat = {name: float(array_stats.rhat(own, **axes)) for name, own in drawn.items()}
    ess = {name: float(array_stats.ess(own, **axes)) for name, own in drawn.items()}
    worst, least = max(r_hat, key=r_hat.get), min(ess, key=ess.get)
    return {
        "converged": int(tree.attrs["converged"]),
        "largest R-hat": [round(r_hat[worst], 4), worst],
        "smallest bulk ESS": [round(ess[least]), least],
        "invariants": len(drawn),
    }


def of_set(name, seed=1):
    """Both weight priors on one set."""
    x, found = rows_of(name), {}
    for weight_prior in WEIGHTS:
        tree, seconds = fitted(x, weight_prior, seed, max_seconds=LIMIT, **UNTIL)
        looks = {"look": int(tree.attrs["look"]), "draws per chain": int(tree["posterior"].sizes["draw"])}
        found[weight_prior] = judged(tree) | looks | {"CPU seconds": round(seconds, 1)}
        print(name, weight_prior, found[weight_prior], flush=True)
    return found


def annealed_starts(x, num_sweeps):
    """A fit of one draw whose chains hold labels that collapsed sweeps led to, from dispersed ones.

    The target of a sweep is the prior of the partition times a power of the evidences, which rises by the
    same factor from each sweep to the next; at the end it is one.
    """
    import jax
    import jax.numpy as jnp

    from inference.methods.mixture import collapsed_gibbs as urn
    from inference.methods.mixture import tempered

    tree, _ = fitted(x, "dirichlet", 1, num_warmup=0, num_samples=1, num_chains=CHAINS)
    model = model_on(x, "dirichlet")

    def swept(states, item):
        power, keys = item

        def one(key, state):
            return tempered.urn_scan(key, power, state, model, rows)[0]

        return jax.vmap(one)(keys, states), None

    with jax.enable_x64(True):
        rows, keys = jnp.asarray(x), jax.random.split(jax.random.key(1), (num_sweeps + 1, CHAINS))
        states = jax.vmap(lambda key: urn.init(key, model, rows))(keys[0])
        powers = jnp.geomspace(FIRST_POWER, 1.0, num_sweeps)
        states, _ = jax.jit(partial(jax.lax.scan, swept))(states, (powers, keys[1:]))
    held = tree["posterior"]["assignments"]
    tree["posterior"]["assignments"] = held.copy(data=np.asarray(states.labels)[:, None].astype(held.dtype))
    return tree


def attempts(record=lambda **found: None):
    """Each attempt on olive: the verdict, and what differs between the chains."""
    from inference.diagnostics import invariants

    x, found = rows_of("olive"), {}
    for name, own in ATTEMPTS.items():
        options, before = {"until": "converged"} | own, 0.0
        if options.get("init") == "annealed":
            begun = time.process_time()
            options["init"] = annealed_starts(x, ANNEALED_SWEEPS)
            before = time.process_time() - begun
        tree, seconds = fitted(x, "dirichlet", 1, **options)
        log_joint = tree["sample_stats"]["lp"].transpose("chain", "draw")
        clusters = invariants(tree)["num_occupied"].transpose("chain", "draw")
        found[name] = judged(tree) | {
            "look": int(tree.attrs["look"]),
            "looks": tree.attrs["looks"],
            "draws per chain": int(tree["posterior"].sizes["draw"]),
            "CPU seconds": round(before + seconds, 1),
            "mean log joint by chain": np.round(log_joint.mean("draw").values, 1).tolist(),
            "mean number of clusters by chain": np.round(clusters.mean("draw").values, 2).tolist(),
        }
        if before:
            found[name]["CPU seconds of annealing"] = round(before, 1)
        print(name, found[name], flush=True)
        record(attempts=found)
    return found


def readme_line():
    """The sampler line of the guide to the command line with five seeds; the first of them compiles."""
    found = []
    for seed in range(1, 6):
        tree, seconds = fitted(rows_of("faithful"), "dirichlet", seed, **GUIDE)
        found.append({"seed": seed} | judged(tree) | {"CPU seconds": round(seconds, 1)})
        print(found[-1], flush=True)
    return found


def default_call(name, seed):
    """A fit whose call says neither how long nor by which moves."""
    tree, seconds = fitted(rows_of(name), "dirichlet", seed)
    sizes = {"draws per chain": int(tree["posterior"].sizes["draw"]), "CPU seconds": round(seconds, 1)}
    return judged(tree) | sizes


def default_calls(record=lambda **found: None):
    """Default calls with two seeds, each in a process of its own that compiles all that it runs."""
    found, kept = {}, {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    for seed, name in product((1, 2), DEFAULT_SETS):
        script = f"import json; from {__spec__.name} import default_call as call; "
        script += f"print(json.dumps(call({name!r}, {seed})))"
        command = [sys.executable, "-c", script]
        run = subprocess.run(command, env=kept, capture_output=True, text=True, check=True)
        found[f"{name}, seed {seed}"] = json.loads(run.stdout.splitlines()[-1])
        print(name, seed, found[f"{name}, seed {seed}"], flush=True)
        record(default=found)
    return found


def rates(seeds=(1, 2), **options):
    """Smallest bulk ESS per CPU second of compiled fits."""
    x, found = rows_of("faithful"), {}
    for weight_prior in WEIGHTS:
        fitted(x, weight_prior, 0, **LONG | {"num_warmup": 0, "thinning": 1}, **options)  # compiles
        found[weight_prior] = []
        for seed in seeds:
            tree, seconds = fitted(x, weight_prior, seed, **LONG, **options)
            found[weight_prior].append(round(judged(tree)["smallest bulk ESS"][0] / seconds, 2))
    return found


def rate(peer):
    """The rates of this checkout and of another one, each in its own process."""
    found = {"here": rates(**MOVES)}
    if peer:  # the other checkout's packages, this one's benchmark
        script = (
            f"import json, runpy, sys; sys.path.insert(0, {str(peer)!r}); import inference; "
            f"print(json.dumps(runpy.run_path({__file__!r})['rates']()))"
        )
        run = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(peer)},
            capture_output=True,
            text=True,
            check=True,
            cwd=peer,
        )
        found["d4579d2"] = json.loads(run.stdout.splitlines()[-1])
        for weight_prior in WEIGHTS:
            logs = [np.log(found[side][weight_prior]) for side in ("here", "d4579d2")]
            found[f"times d4579d2's, {weight_prior}"] = round(
                float(np.exp(np.subtract(*map(np.mean, logs)))), 2
            )
    print(found, flush=True)
    return found


def sizes():
    """Smallest bulk ESS per CPU second of compiled fits, and the cost of a sweep, by set and moves."""
    found = {}
    for name, num_rows in SIZES:
        x = rows_of(name, num_rows)
        own = found[f"{name}, {num_rows} rows"] = {}
        for moves in (0, 4):
            shape = LONGER | {"split_merge": moves}
            fitted(x, "dirichlet", 0, **shape | {"num_warmup": 0, "thinning": 1})  # compiles
            rates = []
            for seed in (1, 2):
                tree, seconds = fitted(x, "dirichlet", seed, **shape)
                found_here = judged(tree)
                rates.append(found_here["smallest bulk ESS"][0] / seconds)
                own[f"{moves} moves, seed {seed}"] = {
                    "smallest bulk ESS": found_here["smallest bulk ESS"],
                    "largest R-hat": found_here["largest R-hat"],
                    "CPU seconds": round(seconds, 1),
                }
            own[f"{moves} moves"] = round(float(np.sqrt(np.prod(rates))), 2)
        own["with to without"] = round(own["4 moves"] / own["0 moves"], 2)
        print(name, num_rows, own, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=[*SETS, "default", "readme", "rate", "sizes", "attempts"])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--peer", type=Path)
    given = parser.parse_args()

    def record(**found):
        if given.record:
            from tests.tools.recording import add_to_record

            command = "python -m tests.benchmarks.mixture_samplers --record --peer FOLDER"
            add_to_record(NAME, command, "arviz", **found)

    special = {
        "default": lambda: default_calls(record),
        "readme": readme_line,
        "rate": lambda: rate(given.peer),
        "sizes": sizes,
    }
    special["attempts"] = lambda: attempts(record)
    for name in given.sets:
        record(**{name: special[name]() if name in special else of_set(name)})


if __name__ == "__main__":
    main()
