"""Questions to a NumPyro program: its sites, their log densities, draws from it, functions of every draw.

The program is the definition of the model. Every check in `inference.calibration` compares something (a
bound, a conditional, a sampler) with the program; where a formula and the program disagree, the program is
right.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers
from numpyro.distributions import CategoricalLogits, CategoricalProbs, constraints
from numpyro.infer import init_to_uniform
from numpyro.infer.util import compute_log_probs
from numpyro.primitives import Messenger

from inference.numerics.compiled import compiled, for_work, is_work_told
from inference.numerics.host_keys import key_from_seed
from zoo.answers import answer_of
from zoo.in_blocks import map_in_blocks
from zoo.intake.tables import is_of_rows
from zoo.model import Model
from zoo.shapes import Values
from zoo.sparse import Observed

ROWS = "observations"  # the plate of the rows
BLOCK_CELLS = 2**17  # of data and draws, that `over_draws` passes over at once
_DATA_NAMES = re.compile(r"x|y|y_\d+|counts")
_KINDS = {
    "real": constraints.real,
    "positive": constraints.positive,
    "simplex": constraints.simplex,
    "positive_definite": constraints.positive_definite,
    "unit_interval": constraints.unit_interval,
}


class Site(NamedTuple):
    """A random variable of a program.

    Attributes:
        shape: shape of its value.
        kind: ``"label"`` (categorical), ``"count"`` (any other discrete variable), ``"real"``,
            ``"positive"``, ``"unit_interval"``, ``"simplex"``, ``"positive_definite"`` or ``"other"``: the
            assumption that a summary of it may make.
        observed: whether its value was given.
        enumerated: whether the program asks for it to be summed out, by ``infer={"enumerate": "parallel"}``.
        plates: names of the plates it is in, leftmost dim first.
    """

    shape: tuple[int, ...]
    kind: str
    observed: bool
    enumerated: bool
    plates: tuple[str, ...]


def explicit_form(model: Callable) -> Callable:
    """The program in which every latent is a site: ``model.explicit`` if there is one, else itself."""
    return getattr(model, "explicit", model)


def sites_of(program: Callable, *data: Observed, **sizes: int) -> dict[str, Site]:
    """The random variables of ``program(*data, **sizes)``, in order, found by tracing shapes only."""
    found: dict[str, Site] = {}

    def run() -> None:
        trace = handlers.trace(handlers.seed(program, jax.random.key(0))).get_trace(*data, **sizes)
        for name, site in trace.items():
            if site["type"] == "sample" and not site["infer"].get("is_auxiliary", False):
                frames = sorted(site["cond_indep_stack"], key=lambda frame: frame.dim)
                found[name] = Site(
                    shape=jnp.shape(site["value"]),
                    kind=_kind(site["fn"]),
                    observed=site["is_observed"],
                    enumerated=site["infer"].get("enumerate") == "parallel" and not site["is_observed"],
                    plates=tuple(frame.name for frame in frames),
                )

    jax.eval_shape(run)
    return found


def latent_sites(program: Callable, *data: Observed) -> dict[str, Site]:
    """The sites of ``program(*data)`` that the data leave unknown."""
    return {name: site for name, site in sites_of(program, *data).items() if not site.observed}


def data_sites(sites: Iterable[str]) -> tuple[str, ...]:
    """Names of the data among the sites of a program run without data, in the order of its arguments.

    Raises:
        ValueError: no site has a name that data have in the zoo.
    """
    names = tuple(sorted(filter(_DATA_NAMES.fullmatch, sites), key=lambda name: (name[:1], len(name), name)))
    if not names:
        raise ValueError(
            f"a program's data sites are called x, y, y_0, y_1, ... or counts; this one has {sorted(sites)}"
        )
    return names


class weighing_rows(Messenger):
    """Multiply the log density of observed rows by weights; a context around a call of a program.

    Args:
        weight: of each row, shape (num_observations,), at least 0.
    """

    def __init__(self, weight: Array) -> None:
        """Take the weights."""
        super().__init__()
        self.weight = weight

    def process_message(self, msg: dict[str, Any]) -> None:
        """Scale a site of the plate of the rows.

        Raises:
            ValueError: the site is a latent of each row: a power of the row's density has it summed out.
        """
        if msg["type"] != "sample" or ROWS not in {frame.name for frame in msg["cond_indep_stack"]}:
            return
        if not msg["is_observed"]:
            raise ValueError(f"rows take no weights: the program draws {msg['name']} of each of them")
        msg["scale"] = self.weight if msg["scale"] is None else self.weight * msg["scale"]


def check_latents(shapes: Mapping[str, tuple[int, ...]], latents: Mapping[str, Site], what: str) -> None:
    """Raise ValueError unless ``shapes`` are those of the latent sites; ``what`` names their owner."""
    missing, unknown = [n for n in latents if n not in shapes], [n for n in shapes if n not in latents]
    if missing or unknown:
        raise ValueError(
            f"{what} must have exactly the latent sites of the program {sorted(latents)}; "
            f"missing: {missing}, not a site of it: {unknown}"
        )
    for name, site in latents.items():
        if tuple(shapes[name]) != site.shape:
            raise ValueError(
                f"{what}: {name} must have shape {site.shape}, as in the program; got {tuple(shapes[name])}"
            )


def check_arguments(data: tuple) -> None:
    """Raise TypeError unless the data are a tuple, the arguments of a program."""
    if not isinstance(data, tuple):
        raise TypeError(
            f"data must be a tuple, the arguments of the program, e.g. (x,); got {type(data).__name__}"
        )


def log_densities(program: Callable, data: tuple, values: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Log density in nats of each site given its parents, at constrained values; the sum is the log joint."""
    return compute_log_probs(program, data, {}, dict(values))[0]


def check_proper(model: Callable, advice: str) -> None:
    """Raise ValueError, with advice, if the prior of the model is not proper."""
    prior = getattr(model, "prior", "proper")
    if prior != "proper":
        raise ValueError(
            f"the prior of {type(model).__name__} is {prior}, so its program cannot draw from it: {advice}"
        )


def joint_draws(
    keys: jax.Array, program: Callable, num_observations: int, block_size: int
) -> dict[str, jax.Array]:
    """One draw per key of every site, latent and data, from ``program(num_observations=...)``, stacked."""

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        trace = handlers.trace(handlers.seed(program, key)).get_trace(num_observations=num_observations)
        return {name: site["value"] for name, site in trace.items() if site["type"] == "sample"}

    return map_in_blocks(draw, keys, block_size)


def redraw_data(
    key: jax.Array, program: Callable, values: Mapping[str, Any], data: tuple, names: tuple[str, ...]
) -> tuple[jax.Array, ...]:
    """New data drawn from the program given all latent values; ``data`` serve for their shapes only."""
    given = handlers.substitute(handlers.uncondition(program), data=dict(values))
    trace = handlers.trace(handlers.seed(given, key)).get_trace(*data)
    return tuple(trace[name]["value"] for name in names)


def call_compiled(function: Callable, *arguments: Any) -> Any:
    """``function(*arguments)`` under ``jit``: arrays and numbers are traced, all other leaves are static.

    So a model of the zoo, a pytree, is an argument of the compiled code and another one of the same sizes
    compiles nothing, while a plain function may be a program too.
    """
    leaves, structure = jax.tree.flatten(arguments)
    traced = [isinstance(leaf, (np.ndarray, np.generic, jax.Array, float, complex)) for leaf in leaves]
    fixed = tuple(None if dynamic else leaf for leaf, dynamic in zip(leaves, traced, strict=True))
    arrays = [leaf for leaf, dynamic in zip(leaves, traced, strict=True) if dynamic]
    return _call(function, structure, tuple(traced), fixed, arrays)


@partial(compiled, static_argnums=(0, 1, 2, 3))
def _call(function: Callable, structure: Any, traced: tuple, fixed: tuple, arrays: list) -> Any:
    remaining = iter(arrays)
    leaves = [next(remaining) if dynamic else leaf for dynamic, leaf in zip(traced, fixed, strict=True)]
    return function(*jax.tree.unflatten(structure, leaves))


def _kind(distribution: Any) -> str:
    base = distribution
    while hasattr(base, "base_dist"):
        base = base.base_dist
    if isinstance(base, (CategoricalProbs, CategoricalLogits)):
        return "label"
    support = distribution.support
    while hasattr(support, "base_constraint"):
        support = support.base_constraint
    if support.is_discrete:
        return "count"
    kinds = (kind for kind, constraint in _KINDS.items() if isinstance(support, type(constraint)))
    return next(kinds, "other")


def log_prior(model: Model, values: Values, *data: Observed) -> Array:
    """Log density of the latent sites (and factors) in constrained space, in nats.

    The likelihood is left out, and with it the local latents that the program keeps because they cannot be
    summed out exactly: `log_likelihood` of the model has them integrated out. So are, in a mixture, the
    parameters and weights of components without rows: draws from the prior that say nothing, and whose
    densities would drown the rest (`zoo.answers.Answers.prior_of_occupied`); the labels among ``values`` tell
    which.

    Args:
        model: a zoo model.
        values: value of every latent site of the program when called with ``data``.
        *data: the data; only their shapes matter.
    """
    return _log_prior(model, values, data, _sites(model, values, *data))


def log_prior_of_parameters(model: Model, values: Values, *data: Observed) -> Array:
    """`log_prior` without latents of single rows, those that the program draws."""
    sites = _sites(model, values, *data)
    kept = {name: site for name, site in sites.items() if not is_of_rows(model, name)}
    return _log_prior(model, values, data, kept)


def _log_prior(model: Model, values: Values, data: tuple, sites: Mapping[str, Any]) -> Array:
    total, of_site = jnp.zeros(()), answer_of(model, "prior_of_occupied", values, *data)
    for name, site in sites.items():
        if name in answer_of(model, "kept_locals"):
            continue
        is_factor = site["type"] == "sample" and isinstance(_base(site["fn"]), dist.Unit)
        if site["type"] == "sample" and (is_factor or not site["is_observed"]):
            log_prob = site["fn"].log_prob(site["value"])
            log_prob = log_prob if site["scale"] is None else site["scale"] * log_prob
            total = total + (jnp.sum(log_prob) if of_site is None else of_site(name, log_prob))
    return total


def deterministics(model: Model, values: Values, *data: Observed) -> dict[str, Array]:
    """The deterministic sites of the program at given values of its latent sites."""
    return _deterministics(_sites(model, values, *data))


def deterministics_and_log_prior(
    model: Model, values: Values, *data: Observed
) -> tuple[dict[str, Array], Array]:
    """`deterministics` and `log_prior` from one run of the program, which is most of either's tracing."""
    sites = _sites(model, values, *data)
    found = _deterministics(sites)
    return found, _log_prior(model, {**values, **found}, data, sites)


def _deterministics(sites: Mapping[str, Any]) -> dict[str, Array]:
    return {name: site["value"] for name, site in sites.items() if site["type"] == "deterministic"}


def latent_names(model: Model, *data: Observed) -> tuple[str, ...]:
    """Names of the latent sites of the program, in its order."""
    names: list[str] = []

    def note(key: Array) -> None:  # only shapes are computed; a flat prior has no draws but a starting point
        program = handlers.substitute(handlers.seed(model, key), substitute_fn=init_to_uniform)
        sites = handlers.trace(program).get_trace(*data).items()
        names.extend(name for name, site in sites if site["type"] == "sample" and not site["is_observed"])

    jax.eval_shape(note, key_from_seed(0))
    return tuple(names)


def _sites(model: Model, values: Values, *data: Observed) -> dict[str, Any]:
    """The program's sites; local latents that it keeps are zero where no values of them are given."""

    def absent(site: Mapping[str, Any]) -> Array | None:
        name = site["name"]
        if name in values or name not in (*answer_of(model, "kept_locals"), model.roles.document_topic):
            return None
        return jnp.zeros(site["fn"].shape())

    program = handlers.substitute(model, substitute_fn=absent)
    return handlers.trace(handlers.substitute(program, data=dict(values))).get_trace(*data)


def _base(distribution: dist.Distribution) -> dist.Distribution:
    """The distribution inside expansions and masks."""
    while isinstance(distribution, dist.ExpandedDistribution | dist.MaskedDistribution):
        distribution = distribution.base_dist
    return distribution


def over_draws(function: Callable, draws: Mapping[str, Any], model: Model, data: tuple) -> Any:
    """``function(model, values, *data)`` of every draw; outside `fit` optimised for what it passes over.

    Args:
        function: of a model, one draw's values and the data; a module-level function, since it keys the
            compile cache.
        draws: name to draws, leading dims (chain, draw).
        model: the model.
        data: the data.

    Returns:
        Its results, with leading dims (chain, draw).
    """
    chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    cells = sum(np.size(leaf) for leaf in jax.tree.leaves(draws))
    cells += chains * num_draws * sum(np.size(leaf) for leaf in jax.tree.leaves(data))
    with for_work(cells, cells) if not is_work_told() else nullcontext():
        return _over_draws(function, draws, model, data)


@partial(compiled, once=True, static_argnums=0)
def _over_draws(function: Callable, draws: Mapping[str, Any], model: Model, data: tuple) -> Any:
    def one(values: Any) -> Any:
        return function(model, values, *data)

    cells = sum(leaf[0, 0].size for leaf in jax.tree.leaves(draws)) + sum(map(np.size, jax.tree.leaves(data)))
    block = int(np.clip(BLOCK_CELLS // max(cells, 1), 8, 64))
    return _by_draw(lambda flat: map_in_blocks(one, flat, block), draws)


def _by_draw(run: Callable, draws: Mapping[str, Any]) -> Any:
    """``run`` on the draws of all chains in one axis; the results with dims (chain, draw) again."""
    chains, num_draws = jax.tree.leaves(draws)[0].shape[:2]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), draws)
    return jax.tree.map(lambda leaf: leaf.reshape(chains, num_draws, *leaf.shape[1:]), run(flat))


def map_draws(function: Callable, key: jax.Array, draws: Mapping[str, Any]) -> Any:
    """``function((key, values))`` of every draw, each with its key.

    Args:
        function: of a key and one draw's values, traced.
        key: a JAX key.
        draws: name to draws, leading dims (chain, draw).

    Returns:
        Its results, with leading dims (chain, draw).
    """
    number = np.prod(jax.tree.leaves(draws)[0].shape[:2], dtype=int)
    return _by_draw(lambda flat: jax.lax.map(function, (jax.random.split(key, number), flat)), draws)


def sample_locals(model: Model, values: Values, *data: Observed) -> dict[str, Array]:
    """The local latents given everything else, as NumPyro statements."""
    with numpyro.plate("observations", data[0].shape[0]):
        local, known = {}, dict(values)
        while len(offered := answer_of(model, "conditionals", known, *data)) > len(local):
            site = list(offered)[len(local)]
            own = offered[site]
            local[site] = numpyro.sample(
                site, own, infer={"enumerate": "parallel"} if own.is_discrete else None
            )
            if not own.is_discrete:  # a label that is summed out has no value to be given
                known[site] = local[site]
        return local


@partial(compiled, once=True, static_argnames="keep_rows")
def draw_locals(
    key: Array, draws: dict[str, Array], model: Model, data: tuple, keep_rows: bool
) -> dict[str, Array]:
    """One draw of the local latents, and what follows from them, for every draw of the other sites.

    Args:
        key: random key.
        draws: site name to draws, leading dims (chain, draw).
        model: the model.
        data: the data.
        keep_rows: whether values per row are returned, or only the summaries of
            `zoo.answers.Answers.derived`.
    """

    def one(args: tuple) -> dict[str, Array]:
        (key, values), local = args, {}
        while len(offered := answer_of(model, "conditionals", values | local, *data)) > len(local):
            site = list(offered)[len(local)]  # which may depend on those before it
            local[site] = offered[site].sample(jax.random.fold_in(key, len(local)))
        derived, dims = answer_of(model, "derived", values | local), model.variable_dims
        rows = dims[model.data_names[0]][0]
        return {name: value for name, value in derived.items() if keep_rows or rows not in dims.get(name, ())}

    return map_draws(one, key, draws)
