"""Simulation-based calibration of a fit, from data to tree.

Fit data drawn with known latents, and rank these among the posterior draws: the ranks are uniform if the
draws come from the posterior (Talts et al. 2018; Modrak et al. 2023 for quantities that depend on the data,
such as the likelihood). The summaries of `inference.calibration.joint_distribution` are ranked; their
uniformity is tested with Bonferroni's correction for their number.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from inference.calibration.joint_distribution import summarise
from inference.calibration.verdicts import SBCVerdict, rank_uniformity
from inference.convergence.identifiable import hidden_variables, kind_of
from inference.fitting.front_door import fit
from inference.numerics.programs import (
    Site,
    call_compiled,
    check_proper,
    data_sites,
    explicit_form,
    joint_draws,
    latent_sites,
)
from inference.precision import double_precision, to_numpy


@double_precision
def sbc(
    model: Callable,
    method: str,
    num_observations: int,
    *,
    key: jax.Array,
    num_replicates: int,
    num_ranked: int = 63,
    functionals: Callable | None = None,
    false_alarm_rate: float = 0.01,
    **fit_options: Any,
) -> SBCVerdict:
    """Whether ``fit(model, data, method=method)`` returns draws that are calibrated under the prior.

    A variational method fails it where its variances are too small: that is a finding, not a false alarm. Its
    q has loadings and latents of one sign or rotation, which the prior draws at random: of these only squares
    and densities are ranked, while a sampler is asked for both signs. A
    sampler must return nearly independent draws: choose ``num_samples`` and ``thinning`` so that
    ``num_ranked`` evenly spaced ones are.

    Args:
        model: a model of the zoo with a proper prior and its sizes filled.
        method: a method of the model.
        num_observations: rows of each data set.
        key: a JAX key.
        num_replicates: data sets drawn and fitted.
        num_ranked: posterior draws ranked, evenly spaced over all chains (all of them, if there are fewer).
        functionals: ``functionals(values) -> dict`` of scalars of one joint draw, instead of the
            default ones of `inference.calibration.joint_distribution`.
        false_alarm_rate: probability that a calibrated method fails, at most; shared by all p-values
            (Bonferroni).
        **fit_options: passed to `inference.fit`.

    Returns:
        The verdict, with the ranks of every functional and the number of fits that had not converged.

    Raises:
        ValueError: the prior is not proper; fewer than 20 replicates; the posterior of the fit lacks sites of
            the program.
    """
    if num_replicates < 20:
        raise ValueError(f"num_replicates must be at least 20, to see a distribution; got {num_replicates}")
    check_proper(model, "it has no draws to calibrate by")
    key, prior_key, rank_key = jax.random.split(key, 3)
    explicit = explicit_form(model)
    arguments = (explicit, num_observations, num_replicates)
    truths = to_numpy(call_compiled(joint_draws, jax.random.split(prior_key, num_replicates), *arguments))
    names = data_sites(truths)
    seeds = np.asarray(jax.random.bits(key, (num_replicates,), np.uint32))
    scalars, num_unconverged = [], 0
    for replicate, seed in enumerate(seeds):
        truth = {name: value[replicate] for name, value in truths.items()}
        data = tuple(truth[name] for name in names)
        with warnings.catch_warnings(record=True):  # fits that did not converge are counted below
            warnings.simplefilter("always")
            tree = fit(model, *data, method=method, seed=int(seed), **{"progress": False, **fit_options})
        num_unconverged += int(not tree.attrs["converged"])
        program, latents = _sampled_form(model, data, tree["posterior"])
        draws = _ranked_draws(tree["posterior"], latents, num_ranked)
        stacked = {name: jnp.concatenate([truth[name][None], draws[name]]) for name in latents}
        number = len(next(iter(stacked.values())))
        repeated = {name: jnp.broadcast_to(truth[name], (number, *truth[name].shape)) for name in names}
        joint = stacked | repeated
        found = to_numpy(call_compiled(summarise, joint, functionals, program, names, num_ranked + 1))
        if functionals is None and kind_of(tree) != "sampling":
            turned = [name for name, why in hidden_variables(tree).items() if why == "rotation"]
            found = {name: value for name, value in found.items() if not _turns(name, turned)}
        scalars.append(found)
    values = {name: np.stack([s[name] for s in scalars]).astype(float) for name in scalars[0]}
    rng = np.random.default_rng(np.asarray(jax.random.bits(rank_key, (4,))))
    ranks, p_values = rank_uniformity(values, rng)
    return SBCVerdict.of(
        p_values,
        false_alarm_rate,
        ranks=ranks,
        num_ranked=next(iter(values.values())).shape[1] - 1,
        num_unconverged=num_unconverged,
    )


def _turns(functional: str, turned: Sequence[str]) -> bool:
    """Whether a sign or rotation changes a functional of sites that it turns: squares and densities stay."""
    of_site, _, summary = functional.partition(": ")
    return of_site.partition(" x ")[0] in turned and summary not in ("mean square", "log density")


def _sampled_form(model: Callable, data: tuple, posterior: Any) -> tuple[Callable, dict[str, Site]]:
    """The form of the model whose latent sites the posterior has, the explicit one first."""
    for program in (explicit_form(model), model):
        latents = latent_sites(program, *data)
        missing = [name for name in latents if name not in posterior]
        if not missing:
            return program, latents
    raise ValueError(
        f"the posterior of the fit lacks sites of the program: {missing}; it has {sorted(posterior)}"
    )


def _ranked_draws(posterior: Any, latents: Mapping[str, Site], num_ranked: int) -> dict[str, np.ndarray]:
    """Evenly spaced draws of each latent site over all chains, shape (num_ranked, ...)."""
    size = posterior.sizes["chain"] * posterior.sizes["draw"]
    kept = np.linspace(0, size, num=min(num_ranked, size), endpoint=False).astype(int)
    return {
        name: np.asarray(posterior[name]).reshape(size, *site.shape)[kept] for name, site in latents.items()
    }
