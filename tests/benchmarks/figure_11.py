"""Figure 11 of Virtanen (2010): HMC badly and well scaled, GiBECCA printed and corrected, and an early PSRF.

Run ``python -m tests.benchmarks.figure_11``; it writes tests/reference/figure_11.json.

The thesis finds that the potential scale reduction factor (PSRF) of GiBECCA falls below 1.1 about twenty
times as soon as that of HMC, and remarks that, monitored too early, HMC's is below 1.1 because the sampler
moves slowly in the beginning. Its HMC is algorithm 1: ten leapfrog steps, unit masses, a step size drawn from
an exponential distribution for each trajectory, nothing adapted. Unit masses have a meaning only in a scale,
and only the product of the variances of U and V decides what Theta is. The thesis prints variances only for
another experiment (section 7.2: 0.001 and 100), whose ratio is 100 000.

Protocol, fixed before the runs were looked at:

* Data of Figure 10 (`figure_10_data`, binary), the joint prior with beta 0.5, lam 0.1, nu 0.2, product of
  variances 1, the low-rank program. Four chains. Followed: 60 cells of Theta_S.
* HMC in three scales: ratio of the variances of V and U 1 (balanced), 100 and 100 000. The print's gradient
  of the density is read as that of the log density. The mean step of each scale is the one with the largest
  median effective sample size among the pilot runs of six, so that no scale is spoilt by its step.
* Two starts: U and V drawn from their prior, and drawn small (deviation 0.1), as optimisers begin.
* GiBECCA of the full-covariance program: as printed (a precision that is read for a covariance is mended,
  since it would not run), which does not leave the posterior invariant, and corrected.
* PSRF as in Gelman et al. (2004): at n draws that of the second half of the first n, chains not split,
  warm-up included. Which of many quantities the thesis follows is not said: converged at n means here that
  the median (in a second reading the largest) PSRF of the cells is below 1.1 from n on.
* An early PSRF misleads at n if the median PSRF of all draws so far is below 1.1 while the mean square of the
  cells, over the second half of these draws, is below half of what balanced HMC has in the end.

Costs are sweeps and CPU seconds, compilation excluded; a trajectory is one sweep. A sampler that has not
converged when its run ends counts with the length of the run, so that its ratio is a lower bound.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn

import zoo
from inference.convergence import effective_sample_size
from inference.methods.nuts_hmc import program
from inference.methods.paired import gibbs
from inference.precision import in_precision
from tests.benchmarks.paired_mixing import CELLS, CHAINS, FEATURES, FIELDS, ROWS, figure_10_data
from tests.tools.recording import write_record
from zoo.answers import start_of
from zoo.model import in_current_precision

RATIOS = {"balanced": 1.0, "ratio 100": 100.0, "ratio 100 000": 1e5}
ENDS = ("balanced", "ratio 100 000")
STARTS = {"prior": 1.0, "small": 0.1}
MEAN_STEPS = (0.02, 0.04, 0.08, 0.16, 0.32, 0.64)  # in units of the prior deviation of U
NUM_LEAPFROG, PILOT, BOUND = 10, 1000, 1.1
PICKED = np.random.default_rng(7).choice(ROWS * 2 * FEATURES, CELLS, replace=False)


def cells_of(values):
    """Sixty cells of Theta_S."""
    loadings = jnp.concatenate([values["loadings_0"], values["loadings_1"]])[:, :1]
    return (values["latents"][:, :1] @ loadings.T).ravel()[PICKED]


# Algorithm 1


def scales_of(name, deviation):
    """By which a site is multiplied so that U has this prior deviation and V its reciprocal."""
    return deviation if name == "latents" else 1 / deviation if name.startswith("loadings") else 1.0


def start_with(deviation, key, model, data):
    """Values of all sites, U and V normal with this deviation."""
    values = start_of(model, key, *data)
    for place, name in enumerate(sorted(values)):
        if not name.startswith("loc"):
            drawn = jax.random.normal(jax.random.fold_in(key, place), values[name].shape)
            values[name] = jnp.where(values[name] == 0, 0.0, deviation * drawn)  # zeros of other views stay
    return values


def chains_of_hmc(keys, model, data, deviation, start, mean_step, length):
    """Cells of shape (chain, draw, cell), and whether each trajectory was accepted.

    Args:
        keys: of the chains.
        model: the low-rank program.
        data: the views.
        deviation: of U in its prior; the product of those of U and V is 1.
        start: deviation of the U and V that the chains begin with, in the balanced scale.
        mean_step: of the exponential distribution.
        length: number of trajectories.
    """

    def energy(scaled):
        plain = {name: own / scales_of(name, deviation) for name, own in scaled.items()}
        return potential_energy(program, (model, *data), {}, plain)

    def trajectory(position, key):
        first, second, third = jax.random.split(key, 3)
        step = mean_step * jax.random.exponential(first)
        flat, shape = ravel_pytree(position)
        begin = jax.random.normal(second, flat.shape)
        slope = jax.grad(lambda place: energy(shape(place)))

        def leap(_, state):
            place, momentum = state
            place = place + step * momentum
            return place, momentum - step * slope(place)

        place, momentum = jax.lax.fori_loop(0, NUM_LEAPFROG, leap, (flat, begin - step / 2 * slope(flat)))
        momentum = momentum + step / 2 * slope(place)  # the last leap took a whole step of it
        gain = energy(position) - energy(shape(place)) + (begin @ begin - momentum @ momentum) / 2
        accepted = gain > -jax.random.exponential(third)  # a NaN is no gain
        position = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), shape(place), position)
        plain = {name: own / scales_of(name, deviation) for name, own in position.items()}
        return position, (cells_of(constrain_fn(program, (model, *data), {}, plain)), accepted)

    def chain(key):
        values = start_with(start, jax.random.fold_in(key, 1), model, data)
        plain = unconstrain_fn(program, (model, *data), {}, values)
        scaled = {name: scales_of(name, deviation) * own for name, own in plain.items()}
        return jax.lax.scan(trajectory, scaled, jax.random.split(key, length))[1]

    return jax.vmap(chain)(keys)


# GiBECCA


def drawn(key, block, values, model, *data):
    """Values with those of one block drawn from their conditionals."""
    found = block(values, model, *data)
    keys = jax.random.split(key, len(found))
    return values | {name: own.sample(k) for k, (name, own) in zip(keys, found.items(), strict=True)}


def normal(key, precision, linear):
    """A draw of N(precision^-1 linear, precision^-1)."""
    factor = jnp.linalg.cholesky(precision)
    mean = jax.scipy.linalg.cho_solve((factor, True), linear)
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    return mean + jax.scipy.linalg.solve_triangular(factor.T, noise, lower=False)


def printed(key, values, model, *data):
    """A sweep of algorithm 2, the covariance of v_k mended, order and acceptance as printed."""
    keys = jax.random.split(key, 5)
    values = drawn(keys[0], gibbs.relevance, values, model, *data)
    values = drawn(keys[1], gibbs.precisions, values, model, *data)
    u = values["latents"][:, 0]
    for v, own in enumerate(jax.random.split(keys[2], len(data))):
        first, second = jax.random.split(own)
        theta, w, identity = values[f"natural_params_{v}"], values[f"loadings_{v}"], jnp.eye(FEATURES)
        marginal = jnp.linalg.inv(model.specific_covariance(v, values) + w @ w.T)
        mean_precision = ROWS * marginal + identity / model.loc_variance
        values[f"loc_{v}"] = normal(first, mean_precision, marginal @ theta.sum(0))
        precision = (u @ u) * values[f"specific_precision_{v}"] + values["loading_precision"] * identity
        linear = values[f"specific_precision_{v}"] @ ((theta - values[f"loc_{v}"]).T @ u)
        values[f"loadings_{v}"] = normal(second, precision, linear)[:, None]
    values = drawn(keys[3], gibbs.latents, values, model, *data)
    for v, (own, y) in enumerate(zip(jax.random.split(keys[4], len(data)), data, strict=True)):
        first, second = jax.random.split(own)
        theta, mean = values[f"natural_params_{v}"], model.mean_theta(v, values).whole()
        factor = jnp.linalg.cholesky(model.specific_covariance(v, values))
        proposed = mean + jax.random.normal(first, mean.shape, mean.dtype) @ factor.T
        gain = model.families[v].log_density(proposed, y) - model.families[v].log_density(theta, y)
        accepted = gain > -jax.random.exponential(second, gain.shape, gain.dtype)
        values[f"natural_params_{v}"] = jnp.where(accepted, proposed, theta)
    return values


def corrected(*arguments):
    """A sweep of ours."""
    return gibbs.sweep_once(*arguments)[0]


def chains_of_gibecca(keys, model, data, sweep, length, look=cells_of):
    """Cells of shape (chain, draw, cell) by a sweep of the full-covariance program; ``look`` picks them."""

    def one(values, key):
        values = sweep(key, values, model, *data)
        return values, look(values)

    def chain(key):
        values = start_of(model, jax.random.fold_in(key, 1), *data)
        return jax.lax.scan(one, values, jax.random.split(key, length))[1]

    return jax.vmap(chain)(keys)


# What is read off


def psrf(draws):
    """Of each cell, chains not split; draws of shape (chain, draw, cell)."""
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(within > 0, np.sqrt((length - 1) / length + between / within), np.inf)


def paths(draws):
    """At ends up to the length of the run: PSRFs of the second half and of all, and a second moment."""
    ends = np.unique(np.geomspace(10, draws.shape[1], 60).astype(int))
    late = np.array([psrf(draws[:, end // 2 : end]) for end in ends])
    whole = np.array([psrf(draws[:, :end]) for end in ends])
    moment = np.array([np.mean(draws[:, end // 2 : end] ** 2) for end in ends])
    return ends, late, whole, moment


def converged_at(ends, factor):
    """The first end from which the factor stays below the bound; None if it is above in the end."""
    above = np.flatnonzero(~(factor < BOUND))
    first = above[-1] + 1 if above.size else 0
    return int(ends[first]) if first < len(ends) else None


def described(draws, seconds, truth):
    """What is recorded of a run; ``truth`` is the mean square of the cells in the end, None where unknown."""
    ends, late, whole, moment = paths(draws)
    half = draws[:, draws.shape[1] // 2 :]
    ess = float(np.median([effective_sample_size(half[..., i], "bulk") for i in range(CELLS)]))
    found = {
        "sweeps": draws.shape[1],
        "cpu_seconds": round(seconds, 1),
        "sweeps_until_median_converged": converged_at(ends, np.median(late, axis=1)),
        "sweeps_until_all_converged": converged_at(ends, late.max(axis=1)),
        "largest_psrf_in_the_end": round(float(late[-1].max()), 3),
        "median_psrf_in_the_end": round(float(np.median(late[-1])), 3),
        "ess_of_second_half_per_cpu_second": round(2 * ess / seconds, 2),
        "mean_square_of_second_half": round(float(moment[-1]), 3),
    }
    if truth is None:
        return found
    median = np.median(whole, axis=1)
    misled = (median < BOUND) & (moment < truth / 2)
    looked = [int(np.argmin(np.abs(ends - n))) for n in (20, 50, 100, 500, 2000)]
    return found | {
        "sweeps_at_which_an_early_psrf_misleads": ends[misled].tolist(),
        "largest_median_psrf_after_these": round(float(median[np.argmax(misled) :].max()), 3)
        if misled.any()
        else None,
        "median_psrf_of_all_draws_so_far": {str(ends[i]): round(float(median[i]), 3) for i in looked},
        "mean_square_over_that_in_the_end": {
            str(ends[i]): round(float(moment[i] / truth), 3) for i in looked
        },
    }


class Timed:
    """A function compiled once for each of its static arguments, and the CPU seconds of a call of it."""

    def __init__(self, function, static):
        self.function, self.static, self.compiled = jax.jit(function, static_argnums=static), static, {}

    def __call__(self, *arguments):
        static = tuple(arguments[i] for i in self.static)
        if static not in self.compiled:
            self.compiled[static] = self.function.lower(*arguments).compile()
        traced = [own for i, own in enumerate(arguments) if i not in self.static]
        began = time.process_time()
        found = jax.block_until_ready(self.compiled[static](*traced))
        return found, time.process_time() - began


def one_data_set(seed, length, gibecca_length, by_hmc, by_gibecca):
    """All samplers on one data set."""
    views = tuple(map(jnp.asarray, figure_10_data(seed)[0]))
    keys = jax.random.split(jax.random.key(seed), CHAINS)
    pilot_keys = jax.random.split(jax.random.key(1000 + seed), CHAINS)
    sizes = {"num_features": (FEATURES,) * 2}
    low_rank = in_current_precision(zoo.Paired(("bernoulli",) * 2, **FIELDS, **sizes))
    runs, seconds, rows = {}, {}, {}
    for name, ratio in RATIOS.items():
        deviation, pilots = ratio**-0.25, {}
        for multiple in MEAN_STEPS:
            mean_step = multiple * deviation
            (cells, _), _ = by_hmc(pilot_keys, low_rank, views, deviation, 1.0, mean_step, PILOT)
            half = np.asarray(cells)[:, PILOT // 2 :]
            own = [effective_sample_size(half[..., i], "bulk") for i in range(CELLS)]
            pilots[mean_step] = float(np.median(np.nan_to_num(own)))
        best = max(pilots, key=pilots.get)
        for kind in STARTS if name in ENDS else ("prior",):
            (cells, accepted), took = by_hmc(keys, low_rank, views, deviation, STARTS[kind], best, length)
            label = f"HMC, {name}, start {kind}"
            runs[label], seconds[label] = np.asarray(cells), took
            rows[label] = {"mean_step": round(best, 5), "accepted": round(float(jnp.mean(accepted)), 3)}
    truth = float(np.mean(runs["HMC, balanced, start prior"][:, length // 2 :] ** 2))
    rows = {name: own | described(runs[name], seconds[name], truth) for name, own in rows.items()}
    full = zoo.Paired(("bernoulli",) * 2, num_shared=1, specific="full_covariance", ard=True, **sizes)
    full = in_current_precision(full)
    for name, sweep in (("printed", printed), ("corrected", corrected)):
        cells, took = by_gibecca(keys, full, views, sweep, gibecca_length)
        rows[f"GiBECCA, {name}"] = described(np.asarray(cells), took, None)
    for name, own in rows.items():
        print(seed, name, own, flush=True)
    return rows


def ratio_of(rows, slow, fast, criterion):
    """Of sweeps and of CPU seconds until convergence; data sets on which the fast one does not are left out.

    Returns:
        Geometric means over data sets, how many these are, and of how many the ratio is a lower bound.
    """
    sweeps, seconds, bounds = [], [], 0
    for own in rows:
        if own[fast][criterion] is None:
            continue
        bounds += own[slow][criterion] is None
        pair = [(own[slow][criterion] or own[slow]["sweeps"], own[slow]), (own[fast][criterion], own[fast])]
        sweeps.append(pair[0][0] / pair[1][0])
        took = [count / run["sweeps"] * run["cpu_seconds"] for count, run in pair]
        seconds.append(took[0] / took[1])
    means = [round(float(np.exp(np.mean(np.log(own)))), 2) if own else None for own in (sweeps, seconds)]
    return {"sweeps": means[0], "cpu_seconds": means[1], "data_sets": len(sweeps), "lower_bounds": bounds}


def main():
    """Run, print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-sets", type=int, default=2)
    parser.add_argument("--length", type=int, default=6000)
    parser.add_argument("--gibecca", type=int, default=4000)
    asked = parser.parse_args()
    began = time.process_time()
    by_hmc, by_gibecca = Timed(chains_of_hmc, (6,)), Timed(chains_of_gibecca, (3, 4))
    rows = []
    for seed in range(asked.data_sets):
        with in_precision():
            rows.append(one_data_set(seed, asked.length, asked.gibecca, by_hmc, by_gibecca))
        figures = figures_of(rows) | {"cpu_seconds": round(time.process_time() - began)}
        command = f"python -m tests.benchmarks.figure_11 --data-sets {len(rows)}"
        write_record("figure_11", command, "arviz-stats", **figures)
    print({name: own for name, own in figures.items() if name != "runs"})


def figures_of(rows):
    """What is recorded of the data sets so far."""
    ends = [f"HMC, {name}, start prior" for name in ENDS]
    pairs = [tuple(reversed(ends)), *((own, "GiBECCA, printed") for own in ends)]
    pairs.append(("GiBECCA, corrected", "GiBECCA, printed"))
    sizes = [[own[name]["ess_of_second_half_per_cpu_second"] for own in rows] for name in ends]
    return {
        "data_sets": len(rows),
        "until_convergence": {
            f"{slow} over {fast}": {
                kind: ratio_of(rows, slow, fast, f"sweeps_until_{kind}_converged")
                for kind in ("median", "all")
            }
            for slow, fast in pairs
        },
        "ess_per_cpu_second, balanced over ratio 100 000": round(
            float(np.exp(np.mean(np.log(sizes[0]) - np.log(sizes[1])))), 1
        ),
        "data_sets_on_which_an_early_psrf_misleads": {
            name: sum(bool(own[name]["sweeps_at_which_an_early_psrf_misleads"]) for own in rows)
            for name in rows[0]
            if name.startswith("HMC")
        },
        "runs": rows,
    }


if __name__ == "__main__":
    main()
