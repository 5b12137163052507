r"""Exponential-family PCA, Bayesian (BEPCA), with the joint beta-prior.

Generative process, in the letters of Mohamed, Heller and Ghahramani (2008) and Virtanen (2010)::

    v_d     ~ Normal(0, sigma_V^2 I_K),     d = 1..D
    mu_d    ~ Normal(loc_mean, loc_variance)
    u_n     ~ Normal(0, sigma_U^2 I_K),     n = 1..N
    theta_n = V u_n + mu
    x_nd    ~ the exponential family with natural parameter theta_nd

With ``conjugate_loadings`` the density of v_dk is proportional to exp{lam_d v_dk - nu_d g(v_dk)} instead, the
conjugate prior of the cells of its column (`zoo.exponential_family.conjugate_loadings`), as in Mohamed,
Heller and Ghahramani (2008); their factor scores have a mean and variances with priors, where here natural
parameters have the mean mu and the variance of scores is given.

With 0 < beta < 1 the density of U and V is multiplied by the conjugate kernel of the family at every
theta_nd (`zoo.exponential_family.joint_prior`); then the prior has no known normaliser.

======  ======================  ==========  =========================================================
letter  site                    shape       support
======  ======================  ==========  =========================================================
V       ``loadings``            (D, K)      real
mu      ``loc``                 (D,)        real; not with `Ordinal`, whose cut points stand for it
u_n     ``latents``             (N, K)      real
alpha   ``loading_precision``   (K,)        positive; a site only with ``ard=True``
phi     ``noise_variance``      ()          positive; a site only of a Gaussian of unknown variance
        ``cut_points``          (D, C - 1)  rising; `Ordinal` only
x_nd    ``x``                   (N, D)      data; NaN is a missing cell
======  ======================  ==========  =========================================================

With `Categorical` cells of C classes loadings and mean have D (C - 1) rows, those of a column together. Where
`Ordinal` columns have different numbers of levels their cut points lie flat, those of a column together: dim
``level_cut``, named ``COLUMN: LEVEL|NEXT LEVEL``.

Symmetry: U R and V R with R orthogonal give the same density (rotation, including signs). Only the product
of the two variances matters for Theta, so both sites are drawn with variance sigma_U sigma_V. With conjugate
loadings directions are not interchangeable: only the order of the latents is arbitrary (and signs if the
prior is symmetric about zero), and latents have variance sigma_U^2. Chains are still compared by quantities
that rotations leave unchanged, above all Theta.

Units. Gaussian cells of unknown variance with default priors are measured in a common unit u, the root of the
columns' mean variance, about ``loc_mean``, the columns' means: the rows of V, mu - loc_mean and the standard
deviation of the noise are u times those of the program above, and phi ~ InverseGamma(1, u^2). Scores then do
not depend on the unit of the table. Priors that are given are in the units of the data. Nothing is rescaled
for other families, whose natural parameters have no unit, for known noise variances, for mixed tables, which
have no common unit, or for beta > 0, where the kernel's pseudo-data have units.

With ``standardize`` every column of Gaussian cells of unknown variance, in mixed tables too, has its own unit
u_d, its standard deviation: row d of V, mu_d - loc_mean_d and the standard deviation of the noise are u_d
times those of the program above. The cells then have variance u_d^2 phi; phi ~ InverseGamma(1, 1) and the
variances of the priors, given or not, have no unit. The fit equals that of the table with columns divided by
their standard deviations; loadings, means, natural parameters and predictions are in the units of the data.

The latents cannot be integrated out, so they are sites whether or not the program is ``explicit``.

Departures from the source. beta = 1, which has no integral, is for point estimates only. The conjugate kernel
sees the whole Theta, mean included.

References: Virtanen (2010), chapters 3 and 5; Mohamed et al. (2008); Collins, Dasgupta and Schapire (2001).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks, suitable_fields
from zoo.exponential_family import Family, as_family, joint_prior
from zoo.exponential_family.answers import EPCAAnswers
from zoo.exponential_family.cells import (
    FamilyCells,
    cells_of,
    sample_view_parameters,
    units_of,
    units_of_columns,
    units_of_standard_view,
    units_of_view,
)
from zoo.exponential_family.conjugate_loadings import (
    ConjugateLoadings,
    check_conjugate_loadings,
    check_conjugate_pairs,
)
from zoo.exponential_family.joint_prior import FACTOR_IN_PRIOR, joint_prior_factor
from zoo.exponential_family.natural_params import LowRank, padded
from zoo.exponential_family.projections import KERNEL_STRENGTH, WEAK_VARIANCE, JointPriorModel
from zoo.model import in_current_precision, static
from zoo.shapes import Rows, Theta

__all__ = ["EPCA"]


@dataclass(frozen=True, eq=False)
class EPCA(JointPriorModel):
    """Exponential-family PCA with Gaussian priors (``beta=0``) or the joint beta-prior.

    Attributes:
        family: a family of `zoo.exponential_family`, its name, or a tuple with one for each column;
            ``"gaussian"`` is `Gaussian()`, noise of known variance 1: `Gaussian(noise_variance=None)` has
            unknown noise. ``"auto"`` is bernoulli for an array; for a DataFrame it is what its columns hold
            (`zoo.suitable_fields.family_of_columns`).
        num_latents: K.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance: sigma_U^2 > 0.
        loading_variance: sigma_V^2 > 0.
        loc_variance: prior variance of the mean of natural parameters.
        loc_mean: its prior mean, a number or shape (num_features,); given with `unit`.
        unit: u > 0 in which cells of unknown noise are measured, and the variances above with them. None:
            read off the data, with `loc_mean`, where those variances have their defaults; else there is none.
            With ``standardize`` shape (num_features,), 1 for columns of other cells; None: the columns'
            standard deviations over their observed cells.
        natural_unit: in which natural parameters, and so loadings and means, are measured: the priors above
            are of loadings and means divided by it. One number, or one for each natural parameter of a row.
            None: one; but with exponential, gamma or negative binomial columns read off the data, the size
            that their natural parameters have at the column's mean, such as 1 / mean (in the inverse unit of
            the data). A table in other units then has the same fit.
        conjugate: (lam, nu) of the kernel; None: lam = 0.1 and nu such that the kernel's mean is that of all
            cells; of exponential and gamma cells, whose unit lam has, nu = 0.1 and lam so (in mixed tables a
            pair for each column, of its family's cells). Not used with ``beta=0``.
        ard: whether each latent has a precision of its loadings, Gamma(ard_concentration, ard_rate), by which
            it can be switched off; with ``beta=0`` only.
        ard_concentration: of the precisions' prior.
        ard_rate: of the precisions' prior.
        standardize: whether each column of Gaussian cells of unknown noise is measured in a `unit` of its
            own, its standard deviation: for columns in different units (see "Units"); with ``beta=0`` only.
        num_features: D; read off the data.
        conjugate_loadings: (lam, nu) of the conjugate prior of the loadings, in cells: their sum and their
            number; or shape (num_features, 2), both for each column. None: loadings are normal, with
            ``loading_variance``. For Bernoulli, binomial, Poisson and Gaussian cells of known noise, with
            ``beta=0``, by map, nuts, hmc and svi.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).integers(0, 2, size=(20, 5))
        >>> zoo.EPCA.from_data(x, family="bernoulli", num_latents=2).num_features
        5
    """

    family: Family | str = "auto"
    num_latents: int = static(default=2)
    beta: Array = 0.0
    latent_variance: Array = 1.0
    loading_variance: Array = 1.0
    loc_variance: Array = 100.0
    loc_mean: Array | None = None
    unit: Array | None = None
    conjugate: Array | None = None
    ard: bool = static(default=False)
    ard_concentration: Array = 1.0
    ard_rate: Array = 1.0
    natural_unit: Array | None = None
    standardize: bool = static(default=False)
    num_features: int | None = static(default=None)
    conjugate_loadings: Array | None = None

    dims = {
        "loadings": ("feature", "latent"),
        "loc": ("feature",),
        "latents": ("observation", "latent"),
        "loading_precision": ("latent",),
        "noise_variance": (),
        "cut_points": ("feature", "cut"),
        "natural_params": ("observation", "feature"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation", "sign")
    relations = {
        "shifted": "no: priors have a unit, but those of unknown noise by default",
        "rescaled": "no: priors have a unit, but those of unknown noise by default",
        "other_units": "no: priors have a unit, but those of unknown noise by default",
        "float32": "same where it ends, to the root of single precision",
    }
    methods = ("vb", "map", "gibbs", "nuts", "hmc", "svi")
    loading_sites = {"loadings": ""}
    answers = EPCAAnswers

    def __call__(self, x: Rows | None = None, *, num_observations: int | None = None) -> Rows:
        """The NumPyro program: with ``x`` it conditions, without it draws rows.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            ``x``, or the rows drawn, shape (num_observations, num_features).
        """
        num_rows = self._num_rows(x, num_observations)
        prior = in_current_precision(self)
        size = self.family.num_params(self.num_features if x is None else x.shape[1])
        variance = prior.entry_variance
        if self.standardize:
            self.require("unit")
        num_features = self.num_features if x is None else x.shape[1]
        unit = 1.0 if self.unit is None else prior.unit
        rows = unit[np.asarray(self.family.param_columns(num_features)), None] if self.standardize else unit
        scale = jnp.sqrt(variance) * rows
        if self.ard:
            precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand([self.num_latents])
            scale = scale / jnp.sqrt(numpyro.sample("loading_precision", precisions.to_event(1)))
        shape = (size, self.num_latents)
        natural_unit = None if prior.natural_unit is None else jnp.broadcast_to(prior.natural_unit, (size,))
        entries = dist.Normal(0.0, scale).expand(shape).to_event(2)
        if natural_unit is not None:
            entries = padded(entries, tuple(range(self.num_latents)), self.num_latents, natural_unit[:, None])
        if self.conjugate_loadings is not None:
            entries = prior._conjugate_entries(num_features)
        values = {"loadings": numpyro.sample("loadings", entries)}
        centre = 0.0 if self.loc_mean is None else prior.loc_mean
        values |= sample_view_parameters(
            prior.family,
            num_features,
            prior.loc_variance,
            loc_mean=centre,
            unit=unit,
            natural_unit=natural_unit,
        )
        with numpyro.plate("observations", num_rows):
            z = dist.Normal(0.0, jnp.sqrt(variance)).expand([self.num_latents]).to_event(1)
            values["latents"] = numpyro.sample("latents", z)
            cells = self.cells(values)
            if self.has_kernel:
                joint_prior_factor(prior.family, self.low_rank(values), prior.beta, prior.conjugate)
            return numpyro.sample("x", cells, obs=x)

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The unit and the prior mean of cells of unknown noise, once they are read off the data."""
        if self.unit is None:
            return {}
        if self.standardize:
            return units_of_standard_view(self.family, self.unit, self.loc_mean, "x")
        return units_of_view(self.unit, self.loc_mean, "x")

    def in_standard_units(self) -> Self:
        """The model of (x - loc_mean) / unit."""
        return self.replaced(unit=None, loc_mean=None, standardize=False) if self.units else self

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """The squared units of the columns, with ``standardize``."""
        if not self.standardize or self.unit is None:
            return {}
        return {"": self.unit[np.asarray(self.family.param_columns(self.unit.size))] ** 2}

    @property
    def entry_variance(self) -> Array:
        """Prior variance of an entry of U; of V too, but where loadings have their conjugate prior."""
        if self.conjugate_loadings is not None:
            return jnp.asarray(self.latent_variance)
        return super().entry_variance

    def _conjugate_entries(self, num_features: int) -> ConjugateLoadings:
        pairs = jnp.broadcast_to(jnp.asarray(self.conjugate_loadings), (num_features, 2))
        return ConjugateLoadings(self.family, pairs, self.num_latents)

    @property
    def has_several_modes(self) -> bool:
        """Where the variances of latents and loadings have a product above 10, as was measured."""
        if self.conjugate_loadings is None or self.num_features is None:
            return super().has_several_modes
        pairs = np.broadcast_to(self.conjugate_loadings, (self.num_features, 2))
        of_loadings = self.family.kernel_variance(pairs[:, 0], pairs[:, 1])
        return float(np.max(self.latent_variance * of_loadings)) > WEAK_VARIANCE

    @property
    def exact_symmetries(self) -> tuple[str, ...]:
        """None with conjugate loadings: their prior is not alike in all directions."""
        return super().exact_symmetries if self.conjugate_loadings is None else ()

    def check_method(self, method: str) -> None:
        """Refuse methods that take loadings for normal, where they have their conjugate prior.

        Args:
            method: its name.

        Raises:
            ValueError: ``"gibbs"`` or ``"vb"`` with ``conjugate_loadings``; what `JointPriorModel` refuses.
        """
        super().check_method(method)
        if self.conjugate_loadings is not None and method in ("gibbs", "vb"):
            raise ValueError(
                f"method {method!r} takes loadings with a normal prior, and conjugate_loadings gives them "
                "another one: use nuts, hmc, svi or map, or leave conjugate_loadings out"
            )

    def _has_closed_bound(self, data: Sequence[Any]) -> bool:
        return self.conjugate_loadings is None and super()._has_closed_bound(data)

    def natural_params(self, values: Mapping[str, Array]) -> Theta:
        """The natural parameters Theta, flat in mixed tables.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Shape (num_observations, num_features), with one more axis for `Categorical`.
        """
        return self.family.shaped(self.low_rank(values).whole())

    def cells(self, values: Mapping[str, Array]) -> FamilyCells:
        """The distribution of the rows at given values of the sites.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_features,).
        """
        prior = in_current_precision(self)
        unit = prior.unit if self.standardize else None
        return cells_of(prior.family, self.low_rank(values), values, unit=unit)

    def low_rank(self, values: Mapping[str, Array]) -> LowRank:
        """The natural parameters by their factors.

        Args:
            values: of the sites, the latents among them.

        Returns:
            The factors; made whole, flat, of shape (num_observations, num_params).
        """
        return LowRank(values["latents"], values["loadings"], values.get("loc", 0.0))

    def starting_point(self, key: Array, x: Rows) -> dict[str, Array]:
        """Starting values of all sites; with ``standardize`` those of columns in their units."""
        if self.standardize and self.units:
            return self.started_in_standard_units(key, x)
        return super().starting_point(key, x)

    # Sizes and checks

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with its size, and the kernel's mean, read off the data; ``overrides`` are fields."""
        given = overrides.get("family") or suitable_fields.AUTO
        (x,), (family,) = suitable_fields.read_tables((x,), (given,), cls.families_for, cls.__name__)
        overrides["family"] = family = as_family(family)
        x = checks.as_matrix(x)
        read: dict[str, Any] = {"num_features": x.shape[1]}
        if family.theta_is_negative:
            family.check(x)
            read["natural_unit"] = family.natural_units(x)
        if np.any(np.asarray(overrides.get("beta", 0.0)) > 0) and family.has_kernel:
            read["conjugate"] = family.kernel_of(x, KERNEL_STRENGTH)
        elif overrides.get("standardize", False):
            cls(**(read | overrides))  # what cannot be standardised is refused
            given = overrides.get("unit")
            centre, read["unit"] = units_of_columns(family, x, given)
            read |= {"loc_mean": centre} if given is None else {}
        elif "unit" not in overrides and cls(**overrides)._reads_units():
            read["loc_mean"], variance = units_of(x)
            read["unit"] = np.sqrt(variance)
        return cls(**(read | {name: value for name, value in overrides.items() if value is not None}))

    def __post_init__(self) -> None:
        """Replace a family's name by the family, then store and validate the fields."""
        self._remember_auto()
        object.__setattr__(self, "family", as_family(self.family))
        super().__post_init__()

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """Family and number of latents.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        checks.check_num_parts(cls.__name__, len(data), 1)
        return suitable_fields.family_fields(cls.__name__, data[0])

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        checks.check_size("num_latents", self.num_latents)
        super().validate()
        if self.conjugate_loadings is not None:
            self._check_conjugate_loadings()

    def _check_conjugate_loadings(self) -> None:
        """Refuse pairs of a wrong shape, what changes normal loadings, and cells without such a prior."""
        check_conjugate_pairs(self.conjugate_loadings, self.num_features)
        given = {"beta": self.beta != 0, "ard": self.ard, "standardize": self.standardize}
        given["loading_variance"] = self.loading_variance != 1
        for name, is_given in given.items():
            if is_given:
                raise ValueError(
                    f"conjugate_loadings is the whole prior of the loadings, and {name} changes that of "
                    f"normal ones: leave {name} out"
                )
        if self._given is None:  # else families are still to be read off the columns
            check_conjugate_loadings(self.family, self.conjugate_loadings, self.num_features)

    def _check_kernels(self) -> None:
        pairs = [(self.family, 0.0, 0.0)]
        if self.conjugate is not None:
            if self.conjugate.shape not in self.family.kernel_shapes or not np.isfinite(self.conjugate).all():
                raise ValueError(
                    "conjugate must be two finite numbers, lam and nu (of a mixed table also two for each "
                    f"column); got {checks.shown(self.conjugate)}"
                )
            pairs = self.family.kernel_problems(self.conjugate)
        elif 0 <= self.beta <= 1 and self.family.has_kernel:
            return
        for family, lam, nu in pairs:
            joint_prior.check_joint_prior(family, float(self.beta), lam, nu)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        self.check_new(x)
        checks.check_rows(x, 2, "the projection of one row is the row itself")
        checks.check_some_cells(x)
        checks.check_num_latents(self.num_latents, {"columns": x.shape[1], "rows": x.shape[0]})

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model; rows without any cell are allowed."""
        checks.check_columns(x, self.num_features, owner="model")
        self.family.check(x)

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """Whether all cells are Gaussian with one noise variance, in one unit for all columns."""
        return (self.family.log_partition_form == "quadratic" and not self.standardize,)

    @property
    def cell_families(self) -> tuple[Family]:
        """The family of the cells."""
        return (self.family,)

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; those of categorical cells have classes as well as features."""
        dims = dict(self.dims)
        if self.num_features is None:
            return dims
        if self.family.num_params(self.num_features) != self.num_features:
            dims |= {"loadings": ("feature_class", "latent"), "loc": ("feature_class",)}
        if len(self.family.cut_sizes) > 1:
            dims["cut_points"] = ("level_cut",)
        elif len(self.family.level_columns(self.num_features)) != self.num_features:
            dims["cut_points"] = ("level_feature", "cut")
        return dims

    def _num_rows(self, x: Array | None, num_observations: int | None) -> int:
        if x is not None:
            if isinstance(self.beta, np.ndarray) and self.beta > 0:
                self.require("conjugate")
            return x.shape[0]
        return self.rows_to_draw(num_observations, "num_features", reason=FACTOR_IN_PRIOR)
