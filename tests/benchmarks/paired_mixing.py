"""Effective draws of Theta_S per second: Polya-Gamma Gibbs against NUTS on the same program, four chains.

``python -m tests.benchmarks.paired_mixing`` draws binary data as in Figure 10 of Virtanen (2010): 50 rows,
two views of 20 columns, one shared latent and two of each view, loadings of deviation 1.5, and fits them with
the joint prior of that figure (beta 0.5, lam 0.1, nu 0.2). Compilation is excluded, warm-up included (the
figures without it stand beside them). NUTS runs its chains one after another, which was the faster way (side
by side each waits for the longest tree), Gibbs side by side. The score is the median bulk ESS over 60 cells
of Theta_S per CPU second: both use one core, and the machine was shared. It records what it finds in
``tests/reference/paired_mixing.json``.
"""

import argparse
import json
import os
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

REFERENCE = Path(__file__).parents[1] / "reference" / "paired_mixing.json"
ROWS, FEATURES, CHAINS, CELLS = 50, 20, 4, 60
FIELDS = {"num_shared": 1, "num_specific": (2, 2), "beta": 0.5, "conjugate": (0.1, 0.2)}


def figure_10_data(seed, family="bernoulli", scale=1.5):
    """Two views, and the shared latent that made them."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(ROWS, 1))
    views = []
    for _ in range(2):
        u = np.concatenate([shared, rng.normal(size=(ROWS, 2))], axis=1)
        theta = u @ (scale * rng.normal(size=(3, FEATURES)))
        if family == "bernoulli":
            views.append((rng.random(theta.shape) < 1 / (1 + np.exp(-theta))).astype(float))
        else:
            views.append(rng.poisson(np.exp(theta)).astype(float))
    return views, shared[:, 0]


def samplers(lengths):
    """Of each sampler ``run(key, views)``: draws of the cells, all seconds and those of draws."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer.util import constrain_fn

    import zoo
    from inference.methods.nuts_hmc import METHODS, program
    from inference.methods.paired import gibbs as paired
    from zoo.model import in_current_precision

    model = in_current_precision(zoo.Paired(("bernoulli",) * 2, num_features=(FEATURES,) * 2, **FIELDS))
    cells = jnp.asarray(np.random.default_rng(7).choice(ROWS * 2 * FEATURES, CELLS, replace=False))
    nuts = METHODS["nuts"].build("uniform", num_warmup=lengths["nuts"][0], **METHODS["nuts"].options)

    def theta_s(values):
        loadings = jnp.concatenate([values["loadings_0"], values["loadings_1"]])[:, :1]
        return (values["latents"][:, :1] @ loadings.T).ravel()[cells]

    def one_after_another(function):
        return lambda *arguments: jax.lax.map(lambda own: function(*own), arguments)

    def build(algorithm, values_of, over, lengths):
        def begin(keys, data):
            return over(lambda key: algorithm.init(key, model, *data))(keys)

        def advance(keys, states, data, length):
            def chain(key, state):
                def one(carry, number):
                    state, _ = algorithm.step(jax.random.fold_in(key, number), carry, model, *data)
                    return state, theta_s(values_of(state, data))

                return jax.lax.scan(one, state, jnp.arange(length))

            return over(chain)(keys, states)

        begin, advance = jax.jit(begin), jax.jit(advance, static_argnums=3)

        def run(key, data):
            keys, seconds = jax.random.split(key, CHAINS), []
            state = jax.block_until_ready(begin(keys, data))
            for part, length in enumerate(lengths):
                fresh = jax.vmap(lambda own, part=part: jax.random.fold_in(own, part))(keys)
                start = time.process_time()
                state, drawn = jax.block_until_ready(advance(fresh, state, data, length))
                seconds.append(time.process_time() - start)
            return np.asarray(drawn), sum(seconds), seconds[1]

        return run

    def constrained(state, data):
        return constrain_fn(program, (model, *data), {}, state.z)

    return {
        "gibbs": build(paired.ALGORITHM, lambda state, data: state.values, jax.vmap, lengths["gibbs"]),
        "nuts": build(nuts, constrained, one_after_another, lengths["nuts"]),
    }


def score(drawn):
    """Median bulk ESS and largest R-hat of the cells; draws have shape (chain, draw, cell)."""
    import arviz_stats as azs
    import xarray as xr

    table = xr.Dataset({"theta": (("chain", "draw", "cell"), drawn)})
    return float(azs.ess(table, method="bulk")["theta"].median()), float(azs.rhat(table)["theta"].max())


def main():
    """Run, print, record."""
    import jax
    import jax.numpy as jnp

    from inference.precision import in_precision

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--gibbs", type=int, nargs=2, default=(500, 3000))
    parser.add_argument("--nuts", type=int, nargs=2, default=(500, 500))
    arguments = parser.parse_args()
    lengths = {"gibbs": tuple(arguments.gibbs), "nuts": tuple(arguments.nuts)}
    rows = []
    with in_precision():
        running = samplers(lengths)
        for number in range(-1, arguments.draws):  # the first one compiles
            views = tuple(map(jnp.asarray, figure_10_data(max(number, 0))[0]))
            own = {}
            for name, run in running.items():
                drawn, seconds, alone = run(jax.random.key(number + 1), views)
                ess, rhat = score(drawn)
                own[name] = {
                    "ess": round(ess),
                    "largest_rhat": round(rhat, 3),
                    "ess_per_second": round(ess / seconds, 1),
                    "ess_per_second_without_warmup": round(ess / alone, 1),
                }
            rows += [own] if number >= 0 else []
            print(number, json.dumps(own), flush=True)

    def ratio(row, what):
        return row["gibbs"][what] / row["nuts"][what]

    ratios = {
        what: [round(ratio(row, what), 2) for row in rows]
        for what in ("ess_per_second", "ess_per_second_without_warmup")
    }
    means = {what: round(float(np.exp(np.mean(np.log(own)))), 2) for what, own in ratios.items()}
    print(ratios, means)
    record = {
        "command": "python -m tests.benchmarks.paired_mixing",
        "program": "zoo.Paired, " + json.dumps(FIELDS),
        "lengths": lengths,
        "runs": rows,
        "ratios": ratios,
        "geometric_means": means,
        "machine": f"{os.cpu_count()} cores, shared; load {os.getloadavg()[0]:.1f}",
        "versions": {name: version(name) for name in ("jax", "numpyro", "numpy", "arviz-stats")},
    }
    REFERENCE.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
