"""Fits made by hand, with a known truth: independent draws around three Gaussian clusters, and around a
rank-two projection.

The draws of the mixture are independent, so every R-hat is near 1 by construction, until ``switch_labels``
permutes the components of each draw at random: what diagnostics must not notice, and ``relabel`` must undo
exactly.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpyro.distributions as dist
import xarray as xr

import zoo
from zoo.answers import Answers
from zoo.fields import static
from zoo.model import Model, Roles

CENTRES = np.array([[0.0, 0.0], [4.0, 0.5], [1.0, 5.0]])
SHARES = np.array([0.5, 0.3, 0.2])


class PlantedAnswers(Answers):
    """Densities of Gaussian clusters."""

    def log_density_by_cluster(self, model, values, x):
        """Log densities of rows in each cluster, (num_observations, num_components)."""
        normal = dist.MultivariateNormal(values["locs"], values["covariances"])
        return normal.log_prob(x[:, None, :])


@dataclass(frozen=True, eq=False)
class PlantedMixture(Model):
    """A mixture without a program: its fits are made by hand."""

    num_components: int = static(default=5)

    dims = {
        "weights": ("component",),
        "locs": ("component", "feature"),
        "covariances": ("component", "feature", "feature_2"),
        "assignments": ("observation",),
        "responsibilities": ("observation", "component"),
        "x": ("observation", "feature"),
    }
    symmetries = ("labels",)
    methods = ("nuts", "svi", "map")
    roles = Roles(cluster="assignments", weight="weights", gaussian=("weights", "locs", "covariances"))
    answers = PlantedAnswers


@dataclass(frozen=True, eq=False)
class PlantedProjection(Model):
    """A projection without a program."""

    dims = {
        "loadings": ("feature", "latent"),
        "latents": ("observation", "latent"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation", "sign")
    methods = ("nuts", "svi", "map")
    roles = Roles(
        latent="latents",
        loadings={"loadings": "", "loadings_y": "_y", "loadings_0": "_0", "loadings_1": "_1"},
    )


@dataclass(frozen=True, eq=False)
class PlantedRegression(Model):
    """A model without a symmetry and without a program."""

    dims = {"slope": ("feature",), "x": ("observation", "feature")}
    methods = ("nuts", "svi", "map")


@contextmanager
def planted_zoo():
    """The zoo with the planted models in it."""
    models = (PlantedMixture, PlantedProjection, PlantedRegression)
    for model in models:
        zoo.register(model, methods={})
    try:
        yield
    finally:
        for model in models:
            zoo.unregister(model)


def log_normal(x, locs, covariances):
    """log N(x_n | loc_k, covariance_k), (..., num_observations, num_components)."""
    difference = x[:, None, :] - locs[..., None, :, :]
    solved = np.einsum("...kij,...nkj->...nki", np.linalg.inv(covariances), difference)
    quadratic = np.einsum("...nki,...nki->...nk", difference, solved)
    logdet = np.linalg.slogdet(covariances)[1]
    return -0.5 * (quadratic + logdet[..., None, :] + x.shape[-1] * np.log(2 * np.pi))


def planted_mixture(seed=0, num_chains=4, num_draws=100, num_rows=60, num_components=5, stick=False):
    """A fit whose first three components hold all rows; the others are draws from a wide prior."""
    rng = np.random.default_rng(seed)
    label = np.repeat([0, 1, 2], (SHARES * num_rows).astype(int))
    x = CENTRES[label] + rng.normal(size=(len(label), 2))
    shape = (num_chains, num_draws)
    alpha = np.full(num_components, 0.2)
    alpha[:3] += np.bincount(label)
    weights = rng.dirichlet(alpha, size=shape)
    locs = 10.0 * rng.normal(size=(*shape, num_components, 2))
    spread = np.ones((*shape, num_components)) * rng.uniform(0.9, 1.1, size=(*shape, num_components))
    locs[:, :, :3] = CENTRES + rng.normal(size=(*shape, 3, 2)) / np.sqrt(np.bincount(label))[:, None]
    covariances = spread[..., None, None] * np.eye(2)
    joint = np.log(weights[..., None, :]) + log_normal(x, locs, covariances)
    log_likelihood = np.logaddexp.reduce(joint, axis=-1)
    shares = np.exp(joint - log_likelihood[..., None])
    assignments = (
        (shares.cumsum(-1) < rng.uniform(size=(*shape, len(label), 1))).sum(-1).clip(0, num_components - 1)
    )
    occupied = np.array([[len(np.unique(z)) for z in chain] for chain in assignments])
    variables = {
        "weights": (("chain", "draw", "component"), weights),
        "locs": (("chain", "draw", "component", "feature"), locs),
        "covariances": (("chain", "draw", "component", "feature", "feature_2"), covariances),
        "precisions": (("chain", "draw", "component", "feature", "feature_2"), np.linalg.inv(covariances)),
        "concentration": (("chain", "draw"), rng.gamma(2.0, 1.0, size=shape)),
        "assignments": (("chain", "draw", "observation"), assignments.astype(np.int16)),
        "num_occupied": (("chain", "draw"), occupied),
    }
    if stick:
        variables["stick_fractions"] = (
            ("chain", "draw", "stick"),
            rng.uniform(size=(*shape, num_components - 1)),
        )
    lp = log_likelihood.sum(-1) + rng.normal(size=shape)
    iterations = 30 + num_draws
    climb = (
        -400.0 * np.exp(-np.arange(iterations) / 5.0) + rng.normal(size=(num_chains, iterations)) + lp.mean()
    )
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(
                attrs={
                    "model": "plantedmixture",
                    "model_fields": "{}",
                    "method": "gibbs",
                    "seed": seed,
                    "converged": 1,
                }
            ),
            "posterior": xr.Dataset(variables, coords={"feature": ["width", "height"]}),
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), lp)}),
            "log_likelihood": xr.Dataset(
                {"log_likelihood": (("chain", "draw", "observation"), log_likelihood)}
            ),
            "observed_data": xr.Dataset(
                {"x": (("observation", "feature"), x)}, coords={"feature": ["width", "height"]}
            ),
            "trace": xr.Dataset(
                {
                    "objective": (("chain", "iteration"), climb),
                    "num_occupied": (("chain", "iteration"), np.full((num_chains, iterations), 3)),
                },
                attrs={"num_warmup": 30},
            ),
        }
    )


def switch_labels(tree, seed=1):
    """The same fit with the components of every draw permuted at random, and what tells their numbers."""
    rng = np.random.default_rng(seed)
    posterior, stats = tree["posterior"].to_dataset(), tree["sample_stats"].to_dataset()
    order = np.argsort(rng.uniform(size=posterior["weights"].shape), axis=-1)  # new component j was order[j]

    def moved(name, variable):
        if "component" in variable.dims:
            index = order.reshape(*order.shape, *(1,) * (variable.ndim - 3))
            return variable.copy(data=np.take_along_axis(variable.values, index, axis=2))
        if name == "assignments":
            inverse = np.argsort(order, axis=-1)
            found = np.take_along_axis(inverse, variable.values.astype(int), axis=-1)
            return variable.copy(data=found.astype(np.int16))
        return variable

    groups = {"posterior": posterior, "sample_stats": stats}
    return replaced(tree, **{name: own.map(lambda v: moved(v.name, v)) for name, own in groups.items()})


def variational_mixture(seed=0, num_draws=200, **options):
    """A fit as VB leaves it: independent draws from q and responsibilities, not ordered by size."""
    tree = planted_mixture(seed, num_chains=1, num_draws=num_draws, **options)
    posterior = tree["posterior"].to_dataset()
    order = np.arange(posterior.sizes["component"])[::-1]
    posterior = posterior.isel(component=order)
    posterior["assignments"] = (posterior.sizes["component"] - 1 - posterior["assignments"]).astype(np.int16)
    x = tree["observed_data"]["x"].values
    locs = posterior["locs"].mean(("chain", "draw")).values
    logits = log_normal(x, locs, np.broadcast_to(np.eye(2), (len(locs), 2, 2)))
    logits += np.log(posterior["weights"].mean(("chain", "draw")).values + 1e-12)
    soft = np.exp(logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True))
    variational = xr.Dataset(
        {
            "responsibilities": (("observation", "component"), soft),
            "locs_loc": (("component", "feature"), locs),
            "num_occupied": ((), int((soft.sum(0) > 0.5).sum())),
        }
    )
    objective = np.full((3, 12), np.nan)
    for restart, length in enumerate((12, 9, 7)):
        objective[restart, :length] = -300.0 - 5.0 * restart - 50.0 * np.exp(-np.arange(length))
    occupied = np.where(np.isnan(objective), np.nan, 3.0)
    trace = xr.Dataset({"objective": ("iteration", objective[0]), "num_occupied": ("iteration", occupied[0])})
    for name, value in (("objective", objective), ("num_occupied", occupied)):
        trace[f"{name}_by_restart"] = (("restart_iteration", "restart"), value.T)
        trace[f"{name}_at_end"] = ("restart", value[np.arange(3), [11, 8, 6]])
    tree = replaced(tree, posterior=posterior, variational=variational, trace=trace)
    tree.attrs |= {"method": "vb", "best_restart": 0}
    return tree


def planted_projection(seed=0, num_chains=4, num_draws=150, num_rows=8, views=("",)):
    """A projection with axes turned at random in every draw, and the draws before they were turned."""
    rng = np.random.default_rng(seed)
    truth = {
        "": np.array([[3.0, 0.1], [2.5, -0.4], [0.2, 1.5], [-0.3, 1.2]]),
        "_y": np.array([[1.0, 1.0], [0.5, -1.0]]),
    }
    latents = rng.normal(size=(num_rows, 2))
    angle = rng.uniform(0, 2 * np.pi, size=(num_chains, num_draws))
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1).reshape(
        num_chains, num_draws, 2, 2
    )
    turn[..., 1] *= rng.choice([-1.0, 1.0], size=(num_chains, num_draws, 1))
    variables, straight = {}, {}
    for view in views:
        straight[f"loadings{view}"] = truth[view] + 0.02 * rng.normal(
            size=(num_chains, num_draws, *truth[view].shape)
        )
        feature = "feature" if not view else "output"
        variables[f"loadings{view}"] = (
            ("chain", "draw", feature, "latent"),
            straight[f"loadings{view}"] @ turn,
        )
        variables[f"noise_variance{view}"] = (
            ("chain", "draw"),
            rng.uniform(0.1, 0.2, size=(num_chains, num_draws)),
        )
    straight["latents"] = latents + 0.02 * rng.normal(size=(num_chains, num_draws, num_rows, 2))
    covariance = np.broadcast_to(np.diag([0.2, 0.1]), (num_chains, num_draws, 2, 2))
    variables["latents"] = (("chain", "draw", "observation", "latent"), straight["latents"] @ turn)
    variables["latents_covariance"] = (
        ("chain", "draw", "latent", "latent_2"),
        np.swapaxes(turn, -1, -2) @ covariance @ turn,
    )
    variables["latent_scales"] = (
        ("chain", "draw", "latent"),
        rng.gamma(2.0, size=(num_chains, num_draws, 2)),
    )
    tree = xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs={"model": "plantedprojection", "model_fields": "{}", "method": "nuts"}),
            "posterior": xr.Dataset(variables),
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(num_chains, num_draws)))}),
        }
    )
    return tree, straight


def planted_regression(seed=0, num_chains=4, num_draws=200, shift=0.0):
    """A fit without a symmetry; the last chain is ``shift`` standard deviations away from the others."""
    rng = np.random.default_rng(seed)
    slope = rng.normal(size=(num_chains, num_draws, 2))
    slope[-1] += shift
    return xr.DataTree.from_dict(
        {
            "/": xr.Dataset(attrs={"model": "plantedregression", "model_fields": "{}", "method": "nuts"}),
            "posterior": xr.Dataset(
                {"slope": (("chain", "draw", "feature"), slope)}, coords={"feature": ["a", "b"]}
            ),
            "sample_stats": xr.Dataset({"lp": (("chain", "draw"), rng.normal(size=(num_chains, num_draws)))}),
        }
    )


def replaced(tree, **groups):
    """A new tree with some groups replaced (None: left out)."""
    all_groups = {name: child.to_dataset() for name, child in tree.children.items()} | groups
    kept = {name: group for name, group in all_groups.items() if group is not None}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=dict(tree.attrs))} | kept)


def planted_extend(tree, group, seed=0):
    """Stands in for ``inference.extend``: posterior predictive draws of the three planted clusters."""
    if group != "posterior_predictive":
        raise ValueError("a planted model has no program")
    x, sizes = tree["observed_data"]["x"], tree["posterior"].sizes
    rng = np.random.default_rng(9)
    label = rng.choice(3, p=SHARES, size=(sizes["chain"], sizes["draw"], len(x)))
    drawn = CENTRES[label] + rng.normal(size=(*label.shape, 2))
    dims = ("chain", "draw", "observation", "feature")
    return replaced(
        tree, **{group: xr.Dataset({"x": (dims, drawn)}, coords={"feature": x["feature"].values})}
    )
