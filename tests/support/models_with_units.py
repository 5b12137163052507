"""Models that declare the units of their sites and fields, and how the log densities of these change.

The models of the zoo that do are among them, in every form.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

import zoo
from zoo.answers import Answers
from zoo.conjugate import (
    ExponentialGamma,
    GammaKnownShape,
    GaussianKnownCovariance,
    GaussianKnownMean,
    GaussianWishart,
    NormalGamma,
    Product,
    SharedGaussianWishart,
    SphericalNormalGamma,
)
from zoo.conjugate.cellwise import ObservedCells
from zoo.coordinates import Coordinates, Freedom, Unit
from zoo.exponential_family import Exponential, GammaWithShape, Gaussian
from zoo.fields import numbers, positive, size_of
from zoo.model import Model, in_current_precision

NUM_ROWS = 7  # of the tables of tests
PLACE, SIZE = Unit(1, (-1,), is_location=True), Unit(1, (-1,))
STATED = {"inside": None, "is_used": lambda model: model.unit is not None}


def of_unit(unit, default=None):
    """A field with a unit that is not checked."""
    return dataclasses.field(default=default, metadata={"unit": unit})


class _ByRows(Answers):
    """Those of every model, of rows that may have weights."""

    weighs_rows = True


class _Rows(Model):
    """Independent rows; a subclass has the distribution of one, and the prior of what it depends on."""

    methods = ("map", "nuts", "hmc", "svi")
    answers = _ByRows

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

    centre: Array = of_unit(PLACE)
    deviation: Array = of_unit(SIZE)
    spread: Array = of_unit(SIZE)
    num_features: int | None = size_of("x")

    dims = {"loc": ("feature",), "scale": ("feature",), "x": ("observation", "feature")}
    units = {"x": PLACE, "loc": PLACE, "scale": SIZE}
    methods = ("map", "nuts", "hmc", "svi")

    def parameters(self):
        loc = numpyro.sample("loc", dist.Normal(self.centre, self.deviation).to_event(1))
        return {"loc": loc, "scale": numpyro.sample("scale", dist.HalfNormal(self.spread).to_event(1))}

    def row(self, values):
        return ObservedCells(dist.StudentT(4.0, values["loc"], values["scale"]))


@dataclass(frozen=True, eq=False)
class EvenRows(_Rows):
    """Normal cells with one noise precision, whose hyperprior is a field, about a flat centre."""

    noise: Any = of_unit(Unit(-2), dist.Gamma(3.0, 2.0))
    num_features: int | None = size_of("x")

    dims = {"loc": ("feature",), "noise_precision": (), "x": ("observation", "feature")}
    units = {"x": PLACE, "loc": PLACE, "noise_precision": Unit(-2)}
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

    centre: Any = of_unit(PLACE)
    precision: Any = of_unit(Unit(-1, (-2, -1)))
    num_features: int | None = size_of("x")

    dims = {"loc": ("feature",), "precision": ("feature", "feature_2"), "x": ("observation", "feature")}
    units = {"x": PLACE, "loc": PLACE, "precision": Unit(-1, (-2, -1))}
    methods = ("map", "nuts", "hmc", "svi")

    def parameters(self):
        loc = numpyro.sample("loc", self.centre)
        return {"loc": loc, "precision": numpyro.sample("precision", self.precision)}

    def row(self, values):
        return dist.MultivariateNormal(values["loc"], precision_matrix=values["precision"])


@dataclass(frozen=True, eq=False)
class StatedRows(_Rows):
    """Normal rows whose prior is stated about a place, in a common unit or in one of each column."""

    place: Array | None = numbers(None, ("feature",), unit=PLACE, **STATED)
    unit: Array | None = positive(
        None, lambda model: {"each column": "any"}, or_one=True, unit=Unit(1, (-1,)), **STATED
    )
    centre: Array = of_unit(PLACE)
    breadth: Array = of_unit(Unit(0))
    noise_rate: Array = of_unit("noise_unit")
    num_features: int | None = size_of("x")

    dims = {"loc": ("feature",), "noise_variance": (), "x": ("observation", "feature")}
    __call__ = Model.__call__

    @property
    def units(self):
        return {"x": PLACE, "loc": PLACE, "noise_variance": self.noise_unit}

    @property
    def noise_unit(self):
        return Unit(0) if np.ndim(self.unit) else Unit(2)

    @property
    def own_coordinates(self):
        return Coordinates((self.place,), (self.unit,)) if self.unit is not None else None

    def program(self, x, rows):
        """The mean has a prior about the origin, whose breadth has no unit."""
        loc = numpyro.sample("loc", dist.Normal(self.centre, self.breadth).to_event(1))
        numpyro.factor("near_the_origin", -0.5 * (loc**2).sum())
        noise = numpyro.sample("noise_variance", dist.InverseGamma(2.0, self.noise_rate))
        with rows:
            return numpyro.sample("x", ObservedCells(dist.Normal(loc, noise**0.5)), obs=x)


class Case(NamedTuple):
    """A model and what its sites lose, by hand.

    Attributes:
        model: of columns of these means and deviations, of every part of the data in turn.
        values: a point, by a generator.
        lost: log scales of the free entries of all sites, of scales by column (or a common one) of each part.
        scale: of a coordinate of each part, a name of `FREEDOM`; None: the part keeps its own.
        locals: a point of what the explicit form draws beside, by a generator and a number of rows.
        takes_missing: whether a cell may be missing.
        cells: of the model, of real ones.
        outputs: rows of a part that keeps its coordinates, by their number; None: there is none.
        shift: whether the origin may change.
        groups: columns with a freedom of their own.
    """

    model: Callable
    values: Callable
    lost: Callable
    scale: str | tuple[str | None, ...]
    locals: Callable = lambda rng, num_rows: {}
    takes_missing: bool = True
    cells: Callable = lambda x: x
    outputs: Callable | None = None
    shift: bool = True
    groups: tuple = ()

    @property
    def freedoms(self) -> tuple[Freedom | None, ...]:
        """For each part of the data the coordinates in which the model can be written."""
        scales = self.scale if isinstance(self.scale, tuple) else (self.scale,)
        found = [FREEDOM[scale] for scale in scales]
        return tuple(
            own and own._replace(shift=own.shift and self.shift, groups=self.groups) for own in found
        )


#: Coordinates that models are free to be written in: with a shift, but for those of a scale alone.
FREEDOM = {
    "columns": Freedom("columns", True),
    "common": Freedom("common", True),
    "scale": Freedom("common", False),
    "shift": Freedom(None, True),
    "sizes": Freedom("columns", False),
    None: None,
}


def _robust(means, deviations):
    return RobustRows(means, 3.0 * deviations, 2.0 * deviations, num_features=means.size)


def _even(means, deviations):
    return EvenRows(dist.Gamma(3.0, 2.0 * np.mean(deviations**2)), num_features=means.size)


def _correlated(means, deviations):
    scatter = np.outer(deviations, deviations) * (0.8 * np.eye(means.size) + 0.2)
    centre = dist.MultivariateNormal(means, covariance_matrix=4.0 * scatter)
    wishart = dist.Wishart(means.size + 2.0, scale_matrix=np.linalg.inv(scatter) / means.size)
    return CorrelatedRows(centre, wishart, num_features=means.size)


def _stated(is_by_column):
    def model(means, deviations):
        unit = 0.6 * deviations if is_by_column else 0.6 * np.mean(deviations**2) ** 0.5
        rate = 1.7 if is_by_column else 1.7 * unit**2
        return StatedRows(means - unit, unit, means + unit, 2.0, rate, num_features=means.size)

    return model


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
        takes_missing=False,
    ),
    "stated in a unit": Case(
        _stated(False),
        lambda rng, size: {"loc": rng.normal(size=size), "noise_variance": rng.gamma(3.0)},
        lambda log_scale: log_scale.sum() + 2 * log_scale[0],
        "common",
    ),
    "stated by column": Case(
        _stated(True),
        lambda rng, size: {"loc": rng.normal(size=size), "noise_variance": rng.gamma(3.0)},
        lambda log_scale: log_scale.sum(),
        "columns",
    ),
}


def _ppca(prior, noise, standardize):
    """PPCA with fields of no round numbers, two latents."""
    by_column = noise == "diagonal"

    def model(means, deviations):
        unit = 1.0 if standardize else np.mean(deviations**2)
        fields = {"loading_variance": 0.7 * unit, "loc_mean": means, "loc_variance": 3.0 * unit}
        rate = (unit if standardize or not by_column else deviations**2) * np.full(means.size, 1.3)
        fields |= {"noise_rate": rate if by_column else rate[0], "noise_concentration": 2.0}
        fields |= {"ard_rate": 1.7 * unit, "ard_concentration": 2.5, "column_scale": 0.6 * deviations}
        names = {"loading_prior": prior, "noise": noise, "standardize": standardize}
        return zoo.PPCA(num_latents=2, num_features=means.size, **names, **fields)

    def values(rng, size):
        found = {"loadings": rng.normal(size=(size, 2)), "loc": rng.normal(size=size)}
        found["noise_variance"] = rng.gamma(3.0, size=size if by_column else ())
        return found | ({"loading_precision": rng.gamma(3.0, size=2)} if prior == "ard" else {})

    def lost(log_scale):
        if prior == "flat":
            return 0.0
        of_noise = 2 * (log_scale.sum() if by_column else log_scale[0])
        of_precisions = -4 * log_scale[0] if prior == "ard" else 0.0
        return 3 * log_scale.sum() + (0.0 if standardize else of_noise + of_precisions)

    scale = "columns" if standardize or (by_column and prior == "flat") else "common"
    return Case(model, values, lost, scale, lambda rng, num_rows: {"latents": rng.normal(size=(num_rows, 2))})


CASES |= {
    f"ppca {prior} {noise}{' standardize' * standardize}": _ppca(prior, noise, standardize)
    for prior in ("flat", "gaussian", "ard")
    for noise in ("isotropic", "diagonal")
    for standardize in (False, True)
}


def _mcfa(prior, noise, standardize):
    """A mixture of factor analysers, whose clusters have no unit: PPCA's fields, with sites of their own."""
    of_ppca = _ppca(prior, noise, standardize)

    def model(means, deviations):
        given = of_ppca.model(means, deviations)
        names = ("loading_variance", "loc_mean", "loc_variance", "noise_rate", "noise_concentration")
        names += ("ard_rate", "ard_concentration", "column_scale", "num_features", "num_latents")
        fields = {name: getattr(given, name) for name in names}
        kinds = {"loading_prior": prior, "noise": noise, "standardize": standardize}
        return zoo.MCFA(num_components=3, **kinds, **fields)

    def values(rng, size):
        found = of_ppca.values(rng, size)
        found = {f"raw_{name}" if name in ("loadings", "loc") else name: own for name, own in found.items()}
        clusters = {"precisions": np.stack([_precision(rng, 2) for _ in range(3)])}
        return found | clusters | {"locs": rng.normal(size=(3, 2)), "weights": rng.dirichlet(np.ones(3))}

    def locals_of(rng, num_rows):
        return {"raw_latents": rng.normal(size=(num_rows, 2)), "assignments": rng.integers(0, 3, num_rows)}

    return Case(model, values, of_ppca.lost, "columns" if standardize else "common", locals_of)


CASES |= {
    f"mcfa {prior} {noise}{' standardize' * standardize}": _mcfa(prior, noise, standardize)
    for prior, noise in (("gaussian", "diagonal"), ("ard", "isotropic"))
    for standardize in (False, True)
}


def _kernel_pca(means, deviations):
    """Kernel PCA of columns in their deviations; the score is no density of rows."""
    kernel = zoo.kernels.RBF(length_scale=1.7)
    fields = {"latent_variance": 1.3, "noise_variance": 0.4, "column_scale": 0.6 * deviations}
    return zoo.KernelPCA(num_latents=2, kernel=kernel, standardize=True, **fields)


CASES["kernelpca standardize"] = Case(
    _kernel_pca,
    lambda rng, size: {"latents": rng.normal(size=(7, 2))},
    lambda log_scale: 0.0,
    "columns",
    takes_missing=False,
)


def _depcam(family, form):
    """DEPCAM with fields of no round numbers, two components of two latents."""
    standardize, ard = form.get("standardize", False), form.get("scale_prior") == "ard"
    is_rate, has_offset = family.theta_is_negative, form.get("offset", True)

    def model(means, deviations):
        unit = np.mean(deviations**2) ** (-0.5 if is_rate else 0.5)
        unit = 1.0 if standardize or not (is_rate or family.learns_noise) else unit
        fields = {"sparsity": 1.3 / unit, "offset_variance": 3.0 * unit**2, "noise_rate": 1.7 * unit**2}
        fields |= {"offset_mean": -unit if is_rate else means + deviations, "ard_rate": 1.2 * unit**2}
        fields |= {"column_scale": 0.6 * deviations, "num_features": means.size} | form
        return zoo.DEPCAM(family=family, num_components=2, num_latents=2, **fields)

    def values(rng, size):
        found = {"carriers": rng.normal(size=(2, size, 2)), "weights": rng.dirichlet(np.ones(2))}
        if form.get("weight_prior") == "stick_breaking":
            found = {"carriers": found["carriers"], "stick_decays": rng.gamma(2.0, size=1)}
        found["scales"] = rng.normal(size=(2, 2)) * (1e-3 if is_rate else 1.0)
        offsets = rng.normal(size=(2, size))
        found |= {"offsets": -np.exp(offsets) if is_rate else offsets} if has_offset else {}
        found |= {"scales_precision": rng.gamma(3.0, size=(2, 2))} if ard else {}
        found |= {"noise_variance": rng.gamma(3.0)} if family.learns_noise else {}
        return found | (locals_of(rng, 7) if is_rate else {})

    def locals_of(rng, num_rows):
        shape = (num_rows, 2) if form.get("latents") == "shared" else (num_rows, 2, 2)
        return {"latents": rng.normal(size=shape), "assignments": rng.integers(0, 2, num_rows)}

    def lost(log_scale):
        of_offsets = 2 * has_offset * log_scale.sum()
        of_scales = (4 * (form.get("sparsity") != 0.0) - 8 * ard) * log_scale[0]
        own = of_offsets + (0.0 if standardize else of_scales)
        if is_rate:
            return -own
        return own + (2 * log_scale[0] if family.learns_noise and not standardize else 0.0)

    scale = "columns" if standardize else "common" if family.learns_noise else "shift"
    scale = "scale" if is_rate or not has_offset else scale
    return Case(model, values, lost, scale, locals_of, cells=np.abs if is_rate else lambda x: x)


_SUMMED = {"laplace": {}, "ard": {"scale_prior": "ard"}, "flat": {"sparsity": 0.0}}
_SHARED = {"latents": "shared", "kernel": "subspace", "weight_prior": "stick_breaking", "concentration": 2.0}
CASES |= {
    f"depcam {name} {prior}{' standardize' * standardize}": _depcam(
        family, _SUMMED[prior] | ({"standardize": True} if standardize else {})
    )
    for name, family in {"unknown": Gaussian(None), "known": Gaussian(0.7), "rates": Exponential()}.items()
    for prior in _SUMMED
    for standardize in ((False, True) if name == "unknown" and prior != "flat" else (False,))
}
CASES |= {
    "depcam shared": _depcam(Gaussian(None), _SHARED),
    "depcam without offsets": _depcam(Gaussian(None), {"offset": False}),
    "depcam shared rates": _depcam(GammaWithShape(2.5), _SHARED),
}


def _sppca(prior, outputs, standardize, given=False):
    """SPPCA of three inputs and as many outputs; one binary output or three classes with probit outputs."""
    by_output, is_probit = outputs == "per_output", outputs in ("binary", "classes")
    num_outputs, has_numbers = 1 if outputs == "binary" else 3, outputs in ("shared", "per_output")

    def model(means, deviations, y_means=None, y_deviations=None):
        names = {"loading_prior": prior, "standardize": standardize, "num_outputs": num_outputs}
        if y_means is None:
            y_means, y_deviations = np.zeros(num_outputs), np.ones(num_outputs)
            names["output_likelihood"] = "probit" if is_probit else "gaussian"
            names["classes"] = None if outputs == "binary" else ("a", "b", "c")
        else:
            names["output_noise"] = outputs
        unit = np.array([1.0, 1.0] if standardize else [np.mean(d**2) for d in (deviations, y_deviations)])
        of_y = (np.ones(num_outputs) if standardize else y_deviations**2) if by_output else unit[1:]
        fields = {"loading_variance": 0.7 * unit, "loc_variance": 3.0 * unit, "noise_concentration": 2.0}
        fields |= {"loc_mean": np.concatenate([means, y_means]), "noise_rate": 1.3 * np.append(unit[0], of_y)}
        if standardize:
            fields |= {"column_scale_x": 0.6 * deviations, "column_scale_y": 0.6 * y_deviations}
        if standardize and not has_numbers:
            fields["column_scale_y"] = np.ones(num_outputs)
        fields |= {"noise_variance_x": 0.4 * unit[0]} if given else {}
        return zoo.SPPCA(num_latents=2, num_features=means.size, **names, **fields)

    def values(rng, size):
        found = {"loadings_x": rng.normal(size=(size, 2)), "loc_x": rng.normal(size=size)}
        found |= {"loadings_y": rng.normal(size=(num_outputs, 2)), "loc_y": rng.normal(size=num_outputs)}
        found |= {} if given else {"noise_variance_x": rng.gamma(3.0)}
        size = num_outputs if by_output else ()
        return found | ({} if is_probit else {"noise_variance_y": rng.gamma(3.0, size=size)})

    def lost(of_x, of_y=None):
        if prior == "flat":
            return 0.0
        of_noise = 0.0 if standardize or given else 2 * of_x[0]
        if of_y is None:
            return 3 * of_x.sum() + of_noise
        of_noise += 0.0 if standardize else 2 * (of_y.sum() if by_output else of_y[0])
        return 3 * of_x.sum() + 3 * of_y.sum() + of_noise

    def decided(num_rows):
        return np.resize(np.eye(3)[:, :num_outputs], (num_rows, num_outputs))

    def drawn(rng, num_rows):
        found, y = {"latents": rng.normal(size=(num_rows, 2))}, decided(num_rows)
        return found | ({"utilities": np.abs(rng.normal(size=y.shape)) * (2 * y - 1)} if is_probit else {})

    of_x = "columns" if standardize else "common"
    of_y = "columns" if standardize or (by_output and prior == "flat") else "common"
    scale = (of_x, of_y if has_numbers else None)
    return Case(model, values, lost, scale, drawn, outputs=None if has_numbers else decided)


CASES |= {
    f"sppca {prior} {outputs}{' standardize' * standardize}": _sppca(prior, outputs, standardize)
    for prior in ("flat", "gaussian")
    for outputs in ("shared", "per_output", "labels", "binary", "classes")
    for standardize in (False, True)
}
CASES["sppca gaussian shared given"] = _sppca("gaussian", "shared", False, given=True)


def _epca(family, is_ard=False, standardize=False):
    """EPCA with fields of no round numbers, two latents; cells of unknown noise, or exponential ones."""
    is_inverse = not family.learns_noise

    def model(means, deviations):
        unit = 0.6 * deviations if standardize else 0.6 * np.mean(deviations**2) ** 0.5
        fields = (
            {"natural_unit": 1.3 / deviations} if is_inverse else {"unit": unit, "loc_mean": means - unit}
        )
        fields |= {"loading_variance": 0.7, "latent_variance": 0.9, "loc_variance": 3.0, "ard": is_ard}
        fields |= {"ard_concentration": 2.5, "ard_rate": 1.7, "standardize": standardize}
        return zoo.EPCA(family=family, num_latents=2, num_features=means.size, **fields)

    def values(rng, size):
        found = {"loadings": rng.normal(size=(size, 2)), "loc": rng.normal(size=size)}
        found["latents"] = rng.normal(size=(NUM_ROWS, 2))
        if is_inverse:  # natural parameters are negative
            return found | {"loadings": 0.1 * found["loadings"], "loc": -3.0 - rng.gamma(3.0, size=size)}
        ard = {"loading_precision": rng.gamma(3.0, size=2)} if is_ard else {}
        return found | ard | {"noise_variance": rng.gamma(3.0)}

    def lost(log_scale):
        if is_inverse:
            return -3 * log_scale.sum()
        return 3 * log_scale.sum() + (0.0 if standardize else 2 * log_scale[0])

    scale = "sizes" if is_inverse else "columns" if standardize else "common"
    return Case(model, values, lost, scale, cells=np.abs if is_inverse else lambda x: x)


_UNKNOWN = Gaussian(noise_variance=None)
CASES |= {
    "epca of unknown noise": _epca(_UNKNOWN),
    "epca of unknown noise, ard": _epca(_UNKNOWN, is_ard=True),
    "epca standardize": _epca(_UNKNOWN, standardize=True),
    "epca of exponential cells": _epca(Exponential()),
    "epca of gamma cells": _epca(GammaWithShape(2.5)),
}


def _paired(families=(_UNKNOWN, _UNKNOWN), **form):
    """Two weighted views with fields of no round numbers, a shared latent and one of the first view's."""
    standardize, is_full = form.get("standardize", False), form.get("specific") == "full_covariance"
    has_bits = families[1] != _UNKNOWN
    specific = {} if is_full else {"num_specific": (1, 0)}

    def model(*moments):
        pairs = list(zip(moments[::2], moments[1::2], strict=True))
        pairs += [(np.zeros(3), np.ones(3))] * has_bits
        units = [0.6 * own if standardize else [0.6 * np.mean(own**2) ** 0.5] for _, own in pairs]
        units[1] = np.ones_like(units[1]) if has_bits else units[1]
        centres = [place - unit for (place, _), unit in zip(pairs, units, strict=True)]
        fields = {"unit": np.concatenate(units), "loc_mean": np.concatenate(centres)}
        fields |= {"loading_variance": 0.7, "latent_variance": 0.9, "loc_variance": 3.0, "ard_rate": 1.7}
        fields |= {"covariance_scale": 1.4, "view_weights": (0.5, 2.0), "num_features": (3, 3)}
        return zoo.Paired(families, **specific, **fields, **form)

    def values(rng, size):
        k = 1 if is_full else 2
        found = {"latents": rng.normal(size=(NUM_ROWS, k))}
        for v, family in enumerate(families):
            free = np.array([1.0, 1.0 - v])[:k]
            found |= {f"loadings_{v}": free * rng.normal(size=(size, k)), f"loc_{v}": rng.normal(size=size)}
            if is_full:
                found[f"specific_precision_{v}"] = _precision(rng, size)
            elif family == _UNKNOWN:
                found[f"noise_variance_{v}"] = rng.gamma(3.0)
        return found | ({"loading_precision": rng.gamma(3.0, size=k)} if form.get("ard") else {})

    def lost(*logs):
        total = 0.0
        for v, own in enumerate(logs):
            total += (2 if is_full or v else 3) * own.sum()  # loadings of the latents that it sees, and means
            total -= 4 * own.sum() if is_full else 0.0
            total += 0.0 if is_full or standardize else 2 * own[0]
        return total

    def bits(num_rows):
        return np.resize(np.eye(3), (num_rows, 3))

    scale = "columns" if standardize else "common"
    return Case(model, values, lost, (scale, None if has_bits else scale), outputs=bits if has_bits else None)


CASES |= {
    "paired": _paired(),
    "paired ard": _paired(ard=True),
    "paired standardize": _paired(standardize=True),
    "paired with bits": _paired((_UNKNOWN, "bernoulli")),
    "paired with bits standardize": _paired((_UNKNOWN, "bernoulli"), standardize=True),
    "paired full": _paired(specific="full_covariance"),
    "paired full standardize": _paired(specific="full_covariance", standardize=True),
}


# Mixtures of two components

K = 2


def _mixture(components, parameters, lost, scale="columns", weights=None, **freedom):
    """A mixture by its components, of means and deviations, and their parameters at a point."""
    of_weights = {"weight_prior": "dirichlet"} if weights is None else weights

    def values(rng, size):
        name = "weights" if of_weights["weight_prior"] == "dirichlet" else "stick_decays"
        drawn = rng.dirichlet(np.ones(K)) if name == "weights" else rng.exponential(size=K - 1)
        alpha = {"concentration": rng.gamma(2.0)} if "concentration" in of_weights else {}
        return {name: drawn} | alpha | parameters(rng, size)

    return Case(
        lambda means, deviations: zoo.Mixture(components(means, deviations), K, **of_weights),
        values,
        lost,
        scale,
        lambda rng, num_rows: {"assignments": rng.integers(0, K, num_rows)},
        **freedom,
    )


def _scatter(deviations):
    return np.outer(deviations, deviations) * (0.7 * np.eye(deviations.size) + 0.3)


def _full(family, hyperpriors=False):
    def components(means, deviations):
        size, scatter = means.size, _scatter(deviations)
        known = {"loc": means + 0.3 * deviations, "center": means, "mean_precision": 0.4}
        known |= {"scale_matrix": np.linalg.inv(scatter) / 3, "degrees_of_freedom": size + 1.5}
        if hyperpriors:
            known["loc"] = dist.MultivariateNormal(means, covariance_matrix=2.0 * scatter)
            known["mean_precision"] = dist.Gamma(2.0, 3.0)
            known["scale_matrix"] = dist.Wishart(size + 2.0, scale_matrix=scatter / size)
        if family is GaussianKnownCovariance:
            known["covariance"] = scatter
        names = {field.name for field in dataclasses.fields(family)}
        return family(**{name: value for name, value in known.items() if name in names})

    return components


def _matrices(rng, size, *names):
    found = {
        "precisions": np.stack([_precision(rng, size) for _ in range(K)]),
        "shared_precision": _precision(rng, size),
        "locs": rng.normal(size=(K, size)),
        "prior_loc": rng.normal(size=size),
        "prior_inverse_scale_matrix": _precision(rng, size),
        "prior_mean_precision": rng.gamma(2.0),
    }
    return {name: found[name] for name in names}


HYPERPRIORS = ("prior_loc", "prior_mean_precision", "prior_inverse_scale_matrix")


def _by_column(family, hyperpriors=False):
    def components(means, deviations):
        ones = np.ones_like(means)
        variances = deviations**2
        known = {"loc": means + 0.3 * deviations, "center": means, "mean_precision": 0.4 * ones}
        known |= {"shape": 1.5 * ones, "rate": 0.8 * variances, "known_shape": 2.5 * ones}
        if family is SphericalNormalGamma:
            known |= {"shape": 1.5, "rate": 0.8 * variances.mean()}
        if family in (ExponentialGamma, GammaKnownShape):
            known["rate"] = 0.8 * deviations
        if hyperpriors:
            known["loc"] = dist.Normal(known["loc"], 2.0 * deviations)
            known["mean_precision"] = dist.Gamma(2.0 * ones, 3.0 * ones)
            known["rate"] = dist.Gamma(2.0 * np.ones_like(known["rate"]), 3.0 / known["rate"])
        names = {field.name for field in dataclasses.fields(family)}
        return family(**{name: value for name, value in known.items() if name in names})

    return components


def _cells(rng, size, *names, is_spherical=False):
    own = () if is_spherical else (size,)
    found = {
        "precisions": rng.gamma(3.0, size=(K, *own)),
        "locs": rng.normal(size=(K, size)),
        "rates": rng.gamma(3.0, size=(K, size)),
        "prior_loc": rng.normal(size=size),
        "prior_mean_precision": rng.gamma(2.0, size=size),
        "prior_rate": rng.gamma(3.0, size=own),
    }
    return {name: found[name] for name in names}


def _product(means, deviations):
    """A spherical Gaussian of the first and the last column, and positive cells between."""
    groups = ((0, 2), (1,))
    families = (SphericalNormalGamma, ExponentialGamma)
    made = (_by_column(f)(means[[*g]], deviations[[*g]]) for f, g in zip(families, groups, strict=True))
    return Product(tuple(made), groups)


def _logarithms(family, logs):
    """One family of all columns, some by their logarithms: their numbers follow from positive deviations."""

    def components(means, deviations):
        are_logs = np.isin(np.arange(means.size), logs)
        means = np.where(are_logs, np.log(deviations), means)
        make = _full(family) if family is GaussianWishart else _by_column(family)
        groups = (tuple(range(means.size)),)
        return Product((make(means, np.where(are_logs, 1.0, deviations)),), groups, logs)

    return components


def _of_one_group(values_of):
    return lambda rng, size: {f"{name}_0": value for name, value in values_of(rng, size).items()}


def _of_product(rng, size):
    first, second = _cells(rng, 2, "precisions", "locs", is_spherical=True), _cells(rng, 1, "rates")
    return {f"{n}_0": v for n, v in first.items()} | {f"{n}_1": v for n, v in second.items()}


BOTH = ("precisions", "locs")
STICKS = {"weight_prior": "stick_breaking", "concentration": dist.Gamma(2.0, 1.0)}
PLACED, MEASURED = Freedom("common", True), Freedom("columns", False)
GROUPS = (((0, 2), PLACED), ((1,), MEASURED))
CASES |= {
    f"mixture {name}": case
    for name, case in {
        "full": _mixture(
            _full(GaussianWishart),
            lambda rng, size: _matrices(rng, size, *BOTH),
            lambda logs: -K * logs.size * logs.sum(),
        ),
        "full hyperpriors sticks": _mixture(
            _full(GaussianWishart, hyperpriors=True),
            lambda rng, size: _matrices(rng, size, *BOTH, *HYPERPRIORS),
            lambda logs: (logs.size + 2 - K * logs.size) * logs.sum(),
            weights=STICKS,
        ),
        "shared": _mixture(
            _full(SharedGaussianWishart),
            lambda rng, size: _matrices(rng, size, "shared_precision", "locs"),
            lambda logs: (K - logs.size - 1) * logs.sum(),
        ),
        "known covariance": _mixture(
            _full(GaussianKnownCovariance),
            lambda rng, size: _matrices(rng, size, "locs"),
            lambda logs: K * logs.sum(),
        ),
        "known mean": _mixture(
            _full(GaussianKnownMean),
            lambda rng, size: _matrices(rng, size, "precisions"),
            lambda logs: -K * (logs.size + 1) * logs.sum(),
        ),
        "columns": _mixture(
            _by_column(NormalGamma),
            lambda rng, size: _cells(rng, size, *BOTH),
            lambda logs: -K * logs.sum(),
        ),
        "columns hyperpriors": _mixture(
            _by_column(NormalGamma, hyperpriors=True),
            lambda rng, size: _cells(rng, size, *BOTH, "prior_loc", "prior_mean_precision", "prior_rate"),
            lambda logs: (3 - K) * logs.sum(),
        ),
        "spherical": _mixture(
            _by_column(SphericalNormalGamma),
            lambda rng, size: _cells(rng, size, *BOTH, is_spherical=True),
            lambda logs: K * (logs.sum() - 2 * logs[0]),
            "common",
        ),
        "exponential": _mixture(
            _by_column(ExponentialGamma),
            lambda rng, size: _cells(rng, size, "rates"),
            lambda logs: -K * logs.sum(),
            shift=False,
        ),
        "gamma": _mixture(
            _by_column(GammaKnownShape),
            lambda rng, size: _cells(rng, size, "rates"),
            lambda logs: -K * logs.sum(),
            shift=False,
        ),
        "log-normal": _mixture(
            _logarithms(NormalGamma, (0, 1, 2)),
            _of_one_group(lambda rng, size: _cells(rng, size, *BOTH)),
            lambda logs: 0.0,
            shift=False,
            groups=(((0, 1, 2), MEASURED),),
        ),
        "logarithms": _mixture(
            _logarithms(GaussianWishart, (1,)),
            _of_one_group(lambda rng, size: _matrices(rng, size, *BOTH)),
            lambda logs: -K * logs.size * (logs[0] + logs[2]),
            groups=(((0, 2), Freedom("columns", True)), ((1,), MEASURED)),
        ),
        "product": _mixture(
            _product,
            _of_product,
            lambda logs: K * (logs[2] - logs[0] - logs[1]),
            "common",
            groups=GROUPS,
        ),
    }.items()
}
