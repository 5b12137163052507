"""Effective draws of Theta_S per second: Polya-Gamma Gibbs against NUTS on the same program, four chains.

``python -m tests.benchmarks.paired_mixing`` draws binary data as in Figure 10 of Virtanen (2010): 50 rows,
two views of 20 columns, one shared latent and two of each view, loadings of deviation 1.5, and fits them with
the joint prior of that figure (beta 0.5, lam 0.1, nu 0.2). Compilation is excluded, warm-up included (the
figures without it stand beside them). NUTS runs its chains one after another, which was the faster way (side
by side each waits for the longest tree), Gibbs side by side. The score is the median bulk ESS over 60 cells
of Theta_S per CPU second: both use one core, and the machine was shared. It records what it finds in
``tests/reference/paired_mixing.json``.

``--attempts`` measures the Gibbs sampler with one thing changed beside the sampler as it is, on the same
draws of data, and records effective draws a second, without warm-up, over those of the latter.
"""

import argparse
import json
import time

import numpy as np

from tests.tools.recording import add_to_record

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


def samplers(lengths, gibbs=None):
    """Of each sampler ``run(key, views)``: draws of the cells, all seconds and those of draws.

    Given ``gibbs`` that algorithm alone.
    """
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

    if gibbs is not None:
        return {"gibbs": build(gibbs, lambda state, data: state.values, jax.vmap, lengths["gibbs"])}
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


def with_blocks(*, turns=1, fresh=False):
    """The sampler that draws rows and columns ``turns`` times for each draw of the Polya-Gamma variables.

    With ``fresh`` these are drawn again between rows and columns.
    """
    import jax
    import jax.numpy as jnp

    from inference.algorithm import Algorithm
    from inference.methods.epca import gibbs
    from inference.methods.epca.quadratic_cells import draw_precisions, log_lacking

    def step(key, state, model, *data):
        values, keys = dict(state.values), jax.random.split(key, 4 * turns + 2)
        cells = gibbs.cells_of(values, model, *data)

        def augmented(key, values):
            theta = gibbs.theta_of(values, model)
            return values | {"cell_precisions": draw_precisions(key, cells, theta)}, log_lacking(cells, theta)

        values, lacking = augmented(keys[0], values)
        for turn in range(turns):
            first, second, third = keys[4 * turn + 1 : 4 * turn + 4]
            rest = cells, model, data
            values, lacking, _ = gibbs._draw_block(first, gibbs._draw_latents, values, lacking, *rest, axis=1)
            if fresh:
                values, lacking = augmented(third, values)
            values, lacking, _ = gibbs._draw_block(
                second, gibbs._draw_columns, values, lacking, *rest, axis=0
            )
        del values["cell_precisions"]
        values = gibbs.flat_moves(keys[-2:], values, model, gibbs._loading_precision(values, model))
        return gibbs.GibbsState(values, jnp.ones(())), gibbs.GibbsInfo(jnp.zeros(()))

    return Algorithm(gibbs.init, step)


def with_one_piece():
    """Sets the Levy proposal of the Polya-Gamma variables back to one piece, tilted at zero."""
    from inference.numerics import polya_gamma

    polya_gamma.EDGES, polya_gamma.TAILS = polya_gamma.EDGES[[0, -1]], polya_gamma.TAILS[[0, -1]]


def attempts(lengths, draws):
    """Ratios of effective draws a second to the sampler as it is, by attempt, one for each draw of data."""
    import jax
    import jax.numpy as jnp

    from inference.methods.paired import gibbs as paired
    from inference.numerics import polya_gamma

    names = {
        "as it is": lambda: paired.ALGORITHM,
        "proposals of Polya-Gamma variables in one piece": lambda: (with_one_piece(), paired.ALGORITHM)[1],
        "rows and columns once for each draw of them": with_blocks,
        "twice": lambda: with_blocks(turns=2),
        "four times": lambda: with_blocks(turns=4),
        "drawn anew between rows and columns": lambda: with_blocks(fresh=True),
        "no moves along flat directions": lambda: paired.algorithm_of(False),
    }
    running, found, kept = {}, {name: [] for name in names}, (polya_gamma.EDGES, polya_gamma.TAILS)
    for number in range(-1, draws):  # the first one compiles
        views = tuple(map(jnp.asarray, figure_10_data(max(number, 0))[0]))
        for name, algorithm in names.items():
            if number < 0:
                running[name] = samplers(lengths, algorithm())["gibbs"]
            drawn, _, alone = running[name](jax.random.key(number + 1), views)
            polya_gamma.EDGES, polya_gamma.TAILS = kept
            if number >= 0:
                found[name].append((score(drawn)[0], alone))
    table = {}
    for name, own in found.items():
        rates, of_first = ([ess / seconds for ess, seconds in runs] for runs in (own, found["as it is"]))
        table[name] = {
            "ess": [round(ess) for ess, _ in own],
            "seconds": [round(seconds, 2) for _, seconds in own],
            "ess_per_second_over_as_it_is": round(
                float(np.exp(np.mean(np.log(rates) - np.log(of_first)))), 2
            ),
        }
        print(name, table[name], flush=True)
    return table


def main():
    """Run, print, record."""
    import jax
    import jax.numpy as jnp

    from inference.precision import in_precision

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--gibbs", type=int, nargs=2, default=(500, 3000))
    parser.add_argument("--nuts", type=int, nargs=2, default=(500, 500))
    parser.add_argument("--attempts", action="store_true")
    arguments = parser.parse_args()
    lengths = {"gibbs": tuple(arguments.gibbs), "nuts": tuple(arguments.nuts)}
    rows, command = [], "python -m tests.benchmarks.paired_mixing"
    if arguments.attempts:
        with in_precision():
            found = attempts(lengths, arguments.draws)
        add_to_record("paired_mixing", f"{command} --attempts", "arviz-stats", attempts=found)
        return
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
    add_to_record(
        "paired_mixing",
        command,
        "arviz-stats",
        program="zoo.Paired, " + json.dumps(FIELDS),
        lengths=lengths,
        runs=rows,
        ratios=ratios,
        geometric_means=means,
    )


if __name__ == "__main__":
    main()
