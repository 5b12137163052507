"""Models that declare the units of their sites and fields, and how the log densities of these change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.conjugate.cellwise import ObservedCells
from zoo.coordinates import Unit
from zoo.model import Model, in_current_precision, static

PLACE, SIZE = Unit(1, (-1,), is_location=True), Unit(1, (-1,))


class _Rows(Model):
    """Independent rows; a subclass has the distribution of one, and the prior of what it depends on."""

    methods = ("map", "nuts", "hmc", "svi")
    weighs_rows = True

    @classmethod
    def from_data(cls, x: Any, **fields: Any) -> "_Rows":
        return cls(**({"num_features": int(np.shape(x)[1])} | fields))

    def __call__(self, x: Any = None, *, num_observations: int | None = None) -> Any:
        row = self.row(in_current_precision(self).parameters())
        with numpyro.plate("observations", num_observations if x is None else x.shape[0]):
            return numpyro.sample("x", row, obs=x)

    def log_likelihood(self, values: Any, x: Array) -> Array:
        return self.row(values).log_prob(x)


@dataclass(frozen=True, eq=False)
class RobustRows(_Rows):
    """Student-t cells about a centre; every quantity has an axis over the columns."""

    centre: Array = None
    deviation: Array = None
    spread: Array = None
    num_features: int | None = static(default=None)

    dims = {"loc": ("feature",), "scale": ("feature",), "x": ("observation", "feature")}
    units_of_sites = {"x": PLACE, "loc": PLACE, "scale": SIZE}
    units_of_fields = {"centre": PLACE, "deviation": SIZE, "spread": SIZE}
    methods = ("map", "nuts", "hmc", "svi")

    def parameters(self):
        loc = numpyro.sample("loc", dist.Normal(self.centre, self.deviation).to_event(1))
        return {"loc": loc, "scale": numpyro.sample("scale", dist.HalfNormal(self.spread).to_event(1))}

    def row(self, values):
        return ObservedCells(dist.StudentT(4.0, values["loc"], values["scale"]))


@dataclass(frozen=True, eq=False)
class EvenRows(_Rows):
    """Normal cells with one noise precision, whose hyperprior is a field, about a flat centre."""

    noise: Any = dist.Gamma(3.0, 2.0)
    num_features: int | None = static(default=None)

    dims = {"loc": ("feature",), "noise_precision": (), "x": ("observation", "feature")}
    units_of_sites = {"x": PLACE, "loc": PLACE, "noise_precision": Unit(-2)}
    units_of_fields = {"noise": Unit(-2)}
    methods = ("map", "nuts", "hmc", "svi")
    prior = "improper"

    def parameters(self):
        flat = dist.ImproperUniform(dist.constraints.real, (), (self.num_features,))
        loc = numpyro.sample("loc", flat)
        return {"loc": loc, "noise_precision": numpyro.sample("noise_precision", self.noise)}

    def row(self, values):
        return ObservedCells(dist.Normal(values["loc"], values["noise_precision"] ** -0.5))


@dataclass(frozen=True, eq=False)
class CorrelatedRows(_Rows):
    """Multivariate normal rows with a Wishart prior of the precision."""

    centre: Any = None
    precision: Any = None
    num_features: int | None = static(default=None)

    dims = {"loc": ("feature",), "precision": ("feature", "feature_2"), "x": ("observation", "feature")}
    units_of_sites = {"x": PLACE, "loc": PLACE, "precision": Unit(-1, (-2, -1))}
    units_of_fields = {"centre": PLACE, "precision": Unit(-1, (-2, -1))}
    methods = ("map", "nuts", "hmc", "svi")

    def parameters(self):
        loc = numpyro.sample("loc", self.centre)
        return {"loc": loc, "precision": numpyro.sample("precision", self.precision)}

    def row(self, values):
        return dist.MultivariateNormal(values["loc"], precision_matrix=values["precision"])


class Case(NamedTuple):
    """A model and what its sites lose, by hand.

    Attributes:
        model: of columns of these means and deviations.
        values: a point, by a generator.
        lost: log scales of the sites' free entries in all, of scales by column (or a common one).
        scale: of a coordinate: ``"columns"`` or ``"common"``.
    """

    model: Callable
    values: Callable
    lost: Callable
    scale: str


def _robust(means, deviations):
    return RobustRows(means, 3.0 * deviations, 2.0 * deviations, num_features=means.size)


def _even(means, deviations):
    return EvenRows(dist.Gamma(3.0, 2.0 * np.mean(deviations**2)), num_features=means.size)


def _correlated(means, deviations):
    scatter = np.outer(deviations, deviations) * (0.8 * np.eye(means.size) + 0.2)
    centre = dist.MultivariateNormal(means, covariance_matrix=4.0 * scatter)
    wishart = dist.Wishart(means.size + 2.0, scale_matrix=np.linalg.inv(scatter) / means.size)
    return CorrelatedRows(centre, wishart, num_features=means.size)


def _precision(rng, size):
    root = rng.normal(size=(size, size))
    return root @ root.T + np.eye(size)


CASES = {
    "robust": Case(
        _robust,
        lambda rng, size: {"loc": rng.normal(size=size), "scale": rng.gamma(3.0, size=size)},
        lambda log_scale: 2 * log_scale.sum(),
        "columns",
    ),
    "even": Case(
        _even,
        lambda rng, size: {"loc": rng.normal(size=size), "noise_precision": rng.gamma(3.0)},
        lambda log_scale: -2 * log_scale[0],
        "common",
    ),
    "correlated": Case(
        _correlated,
        lambda rng, size: {"loc": rng.normal(size=size), "precision": _precision(rng, size)},
        lambda log_scale: -log_scale.size * log_scale.sum(),
        "columns",
    ),
}
