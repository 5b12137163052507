"""What a table of exponential-family cells has of its own beside loadings: mean, cut points, noise variance.

Sites, with the suffix of the view: ``loc`` (D,), zero where a column has cut points; ``cut_points`` of
`zoo.exponential_family.Ordinal` columns; ``noise_variance`` of a Gaussian of unknown variance. With
`Categorical` cells the mean has an entry for each natural parameter.
"""

from collections.abc import Mapping

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.exponential_family import Family
from zoo.exponential_family.cells import FamilyCells
from zoo.exponential_family.natural_params import LowRank
from zoo.exponential_family.zero_padding import padded

__all__ = ["cells_of", "params_with_mean", "sample_view_parameters", "starting_view_parameters"]

CUT_POINT_SCALE = 5.0  # standard deviation of cut points before they are put in order
LEAST_NOISE = 1e-6  # of a start


def params_with_mean(family: Family, num_features: int) -> tuple[int, ...]:
    """Places of the natural parameters of a row that have a mean: not those of ordinal columns.

    Args:
        family: of the cells.
        num_features: D.

    Returns:
        Places among the natural parameters of a row.
    """
    without = set(family.level_columns(num_features))
    return tuple(p for p, column in enumerate(family.param_columns(num_features)) if column not in without)


def sample_view_parameters(
    family: Family, num_features: int, loc_variance: Array, suffix: str = "", noise: bool = True
) -> dict[str, Array]:
    """The sites, drawn from their priors.

    Args:
        family: of the cells.
        num_features: D.
        loc_variance: prior variance of the mean.
        suffix: of the sites' names.
        noise: whether a Gaussian of unknown variance has a noise variance.

    Returns:
        Value of each site by name, in the shapes that the program gives them.
    """
    values, levels = {}, family.level_columns(num_features)
    if levels:
        base = dist.Normal(0.0, CUT_POINT_SCALE).expand([len(levels), family.num_cut_points]).to_event(1)
        ordered = dist.TransformedDistribution(base, dist.transforms.OrderedTransform())
        values["cut_points"] = numpyro.sample(f"cut_points{suffix}", ordered.to_event(1))
    places = params_with_mean(family, num_features)
    if places:
        mean = dist.Normal(0.0, jnp.sqrt(loc_variance)).expand([len(places)]).to_event(1)
        own = padded(mean, places, family.num_params(num_features))
        values["loc"] = numpyro.sample(f"loc{suffix}", own)
    if noise and family.learns_noise:
        values["noise_variance"] = numpyro.sample(f"noise_variance{suffix}", dist.InverseGamma(1.0, 1.0))
    return {f"{name}{suffix}": value for name, value in values.items()}


def starting_view_parameters(
    family: Family, x: Array, suffix: str = "", noise: bool = True
) -> dict[str, Array]:
    """Values of those sites to start from: columns' smoothed means, evenly spread levels, the variance.

    Args:
        family: of the cells.
        x: the view, shape (num_observations, num_features).
        suffix: of the sites' names.
        noise: whether a Gaussian of unknown variance has a noise variance.

    Returns:
        Value of each site by name, in the shapes that the program gives them.
    """
    values, levels = {}, family.level_columns(x.shape[1])
    if levels:
        shares = jnp.arange(1, family.num_cut_points + 1) / (family.num_cut_points + 1)
        values["cut_points"] = jnp.tile(jnp.log(shares) - jnp.log1p(-shares), (len(levels), 1))
    if params_with_mean(family, x.shape[1]):
        values["loc"] = family.natural_of_columns(x)
    if noise and family.learns_noise:
        values["noise_variance"] = jnp.maximum(jnp.mean(jnp.nanvar(x, axis=0)), LEAST_NOISE)
    return {f"{name}{suffix}": value for name, value in values.items()}


def cells_of(
    family: Family, theta: Array | LowRank, values: Mapping[str, Array], suffix: str = ""
) -> FamilyCells:
    """The distribution of rows at flat natural parameters and given values of the sites.

    Args:
        family: of the cells.
        theta: flat natural parameters, shape (num_observations, num_params), whole or by their factors.
        values: of the sites.
        suffix: of the sites' names.

    Returns:
        Distribution with batch shape (num_observations,) and event shape (num_features,).
    """
    if isinstance(theta, LowRank) and (family.is_mixed or family.params_per_cell > 1):
        theta = theta.whole()
    if f"noise_variance{suffix}" in values:
        family = family.with_noise(values[f"noise_variance{suffix}"])
    shaped = theta if isinstance(theta, LowRank) else family.shaped(theta)
    return FamilyCells(family, shaped, values.get(f"cut_points{suffix}"))
