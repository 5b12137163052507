r"""A closed-form bound against the Monte Carlo ELBO of a program and a guide.

The estimate averages :math:`\log p(x, \theta) - \log q(\theta)` over particles :math:`\theta \sim q`, both
densities evaluated by the programs. Discrete sites of the guide that are marked ``infer={"enumerate":
"parallel"}`` are summed out: with the rows independent given the other sites,

.. math:: E_{q(z)}[\log p - \log q] = g(\theta) + \sum_{n,k} q(z_n = k) \{\ell_n(k) - \log q(z_n = k)\},

where :math:`\ell_n` collects the terms of row n. One replay of the programs with every row in category k
gives all :math:`\ell_n(k)` at once. Most of the variance is the labels', so the standard error shrinks
tenfold where the rest of the guide is narrow.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.infer.util import compute_log_probs
from scipy import stats

from inference.calibration.verdicts import ELBOVerdict
from inference.numerics.programs import (
    call_compiled,
    check_arguments,
    check_latents,
    explicit_form,
    latent_sites,
    log_densities,
    sites_of,
)
from inference.precision import double_precision
from zoo.in_blocks import map_in_blocks

_ROUNDING = 1e-12  # relative error allowed to sums of a few thousand float64 terms


@double_precision
def elbo_check(
    model: Callable,
    guide: Callable,
    bound: float,
    data: tuple,
    *,
    key: jax.Array,
    num_particles: int,
    threshold: float = 4.0,
    block_size: int = 100,
) -> ELBOVerdict:
    """Whether a closed-form bound equals the Monte Carlo ELBO of a program and a guide.

    Args:
        model: a NumPyro program, called as ``model(*data)``; of a zoo model, the form whose latent sites the
            guide has is taken.
        guide: a NumPyro program called as ``guide(*data)``, its parameters fixed, with exactly the latent
            sites of the model. A discrete site marked ``infer={"enumerate": "parallel"}``, in the same plates
            in both programs, is summed out.
        bound: the closed-form bound, whole, in nats.
        data: the arguments of both programs.
        key: a JAX key.
        num_particles: draws from the guide, at least 2.
        threshold: standard errors that bound and estimate may differ by; the false alarm rate follows from it
            (Student's t).
        block_size: particles evaluated at once; memory grows with it.

    Returns:
        The verdict, with the estimate and its standard error in nats.

    Raises:
        TypeError: ``data`` is not a tuple.
        ValueError: the guide has other sites than the model, or other shapes; ``num_particles`` below 2;
            labels that cannot be summed out row by row, because another site of the guide, or a site of the
            model outside their plates, depends on them.
    """
    check_arguments(data)
    if num_particles < 2:
        raise ValueError(f"num_particles must be at least 2, to estimate the error; got {num_particles}")
    program = _matching_form(model, guide, data)
    keys = jax.random.split(key, num_particles)
    log_p, log_q, spread = map(np.asarray, call_compiled(_particles, keys, program, guide, data, block_size))
    size = np.max(np.abs(log_p) + np.abs(log_q))
    if np.max(spread) > 1e-9 * max(size, 1.0):
        raise ValueError(
            "the enumerated labels cannot be summed out row by row: a site of the model outside their "
            f"plates, or another site of the guide, depends on them (by {np.max(spread):.3g} nats)"
        )
    elbo = log_p - log_q
    estimate, error = float(elbo.mean()), float(elbo.std(ddof=1) / np.sqrt(num_particles))
    bound = float(np.asarray(bound))
    statistic = abs(estimate - bound) / float(np.hypot(error, _ROUNDING * max(size, 1.0)))
    return ELBOVerdict(
        statistic=statistic,
        threshold=float(threshold),
        false_alarm_rate=float(2 * stats.t.sf(threshold, num_particles - 1)),
        passed=bool(statistic <= threshold),
        estimate=estimate,
        standard_error=error,
        bound=bound,
    )


def _matching_form(model: Callable, guide: Callable, data: tuple) -> Callable:
    """The form of the model whose latent sites the guide has; else ValueError naming the difference."""
    forms = (explicit_form(model), model)
    latents = [latent_sites(form, *data) for form in forms]
    drawn = {name: site for name, site in sites_of(guide, *data).items() if not site.observed}
    program, expected = min(
        zip(forms, latents, strict=True), key=lambda pair: len(pair[1].keys() ^ drawn.keys())
    )
    check_latents({name: site.shape for name, site in drawn.items()}, expected, "the guide")
    for name, site in drawn.items():
        if site.enumerated and (not site.plates or set(site.plates) != set(expected[name].plates)):
            raise ValueError(
                f"the enumerated site {name} must be in the same plates in guide and model; "
                f"got {site.plates} and {expected[name].plates}"
            )
    if len({site.plates for site in drawn.values() if site.enumerated}) > 1:
        raise ValueError("all enumerated sites of a guide must be in the same plates")
    return program


def _particles(keys: jax.Array, program: Callable, guide: Callable, data: tuple, block_size: int) -> tuple:
    return map_in_blocks(lambda key: _particle(key, program, guide, data), keys, block_size)


def _particle(key: jax.Array, program: Callable, guide: Callable, data: tuple) -> tuple:
    """Log p and log q averaged over the labels, and by how much terms vary with these that must not."""
    trace = handlers.trace(handlers.seed(guide, key)).get_trace(*data).items()
    sampled = [(name, site) for name, site in trace if site["type"] == "sample"]
    sites = {name: site for name, site in sampled if not site["infer"].get("is_auxiliary", False)}
    values = {name: site["value"] for name, site in sites.items() if not site["is_observed"]}
    labels = [name for name in values if sites[name]["infer"].get("enumerate") == "parallel"]
    if not labels:
        log_q, _ = compute_log_probs(handlers.seed(guide, key), data, {}, values)
        return sum(log_densities(program, data, values).values()), sum(log_q.values()), jnp.zeros(())
    frames = sorted(sites[labels[0]]["cond_indep_stack"], key=lambda frame: frame.dim)
    plates = [frame.name for frame in frames]
    supports = [sites[name]["fn"].enumerate_support(expand=False).ravel() for name in labels]
    categories = [grid.ravel() for grid in jnp.meshgrid(*supports, indexing="ij")]

    def replay(*category: jax.Array) -> tuple:
        chosen = {name: jnp.full_like(values[name], c) for name, c in zip(labels, category, strict=True)}
        drawn = {**values, **chosen}
        p_terms, p_trace = compute_log_probs(program, data, {}, drawn, sum_log_prob=False)
        q_terms, _ = compute_log_probs(handlers.seed(guide, key), data, {}, drawn, sum_log_prob=False)
        around = {name: {frame.name for frame in p_trace[name]["cond_indep_stack"]} for name in p_terms}
        inside = [name for name in p_terms if set(plates) <= around[name]]
        rows_p = sum(_by_row(p_terms[name], p_trace[name], plates) for name in inside)
        rows_q = sum(_by_row(q_terms[name], sites[name], plates) for name in labels)
        rest_p = sum((jnp.sum(p_terms[name]) for name in p_terms if name not in inside), start=jnp.zeros(()))
        rest_q = sum((jnp.sum(q_terms[name]) for name in q_terms if name not in labels), start=jnp.zeros(()))
        return rows_p, rows_q, rest_p, rest_q

    rows_p, rows_q, rest_p, rest_q = jax.vmap(replay)(*categories)
    weights = jnp.exp(rows_q)
    log_p = rest_p[0] + jnp.sum(jnp.where(weights > 0, weights * rows_p, 0.0))
    log_q = rest_q[0] + jnp.sum(jnp.where(weights > 0, weights * rows_q, 0.0))
    return log_p, log_q, jnp.maximum(jnp.ptp(rest_p), jnp.ptp(rest_q))


def _by_row(log_prob: jax.Array, site: Mapping[str, Any], plates: list[str]) -> jax.Array:
    """Log density summed over all dims but those of the plates."""
    dims = {frame.name: frame.dim for frame in site["cond_indep_stack"]}
    rows = jnp.moveaxis(log_prob, [dims[name] for name in plates], range(len(plates)))
    return jnp.sum(rows, axis=tuple(range(len(plates), rows.ndim)))
