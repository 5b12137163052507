r"""Exponential-family PCA, Bayesian (BEPCA), with the joint beta-prior.

Generative process, in the letters of Mohamed, Heller and Ghahramani (2008) and Virtanen (2010)::

    v_d     ~ Normal(0, sigma_V^2 I_K),     d = 1..D
    mu_d    ~ Normal(0, loc_variance)
    u_n     ~ Normal(0, sigma_U^2 I_K),     n = 1..N
    theta_n = V u_n + mu
    x_nd    ~ the exponential family with natural parameter theta_nd

and with 0 < beta < 1 the density of U and V is multiplied by the conjugate kernel of the family at every
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

With `Categorical` cells of C classes loadings and mean have D (C - 1) rows, those of a column together.

Symmetry: U R and V R with R orthogonal give the same density (rotation, signs among it), and of the two
variances only the product matters for Theta: both sites are drawn with variance sigma_U sigma_V.

The latents cannot be integrated out, so they are sites whether or not the program is ``explicit``.

Departures from the source. beta = 1, which has no integral, is for point estimates only. The conjugate kernel
sees the whole Theta, mean included.

References: Virtanen (2010), chapters 3 and 5; Mohamed et al. (2008); Collins, Dasgupta and Schapire (2001).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks, suitable_fields
from zoo.exponential_family import Family, as_family, joint_prior
from zoo.exponential_family.cells import cells_of, sample_view_parameters, starting_view_parameters
from zoo.exponential_family.joint_prior import FACTOR_IN_PRIOR, balanced_variance
from zoo.exponential_family.natural_params import LowRank, RowMode, row_modes
from zoo.model import Model, in_current_precision, static

__all__ = ["EPCA", "JointPriorModel"]

KERNEL_STRENGTH = 0.1  # lam of the default kernel
START_SCALE = 0.3


class JointPriorModel(Model):
    """A projection with Gaussian priors or the joint beta-prior (`zoo.exponential_family.joint_prior`).

    Subclasses have the fields ``beta``, ``conjugate``, ``ard`` and the variances, ``_check_kernels``,
    ``_log_cells`` (log density of rows given everything) and ``_modes`` (their latents integrated out).
    """

    sums_out_locals = False
    latent_site = "latents"

    @property
    def has_kernel(self) -> bool:
        """Whether the conjugate kernel multiplies the prior."""
        return self.conjugate is not None

    @property
    def prior(self) -> str:
        """``"unnormalised"`` with beta > 0 (``"improper"`` with beta = 1), else ``"proper"``."""
        if not self.has_kernel:
            return "proper"
        return "improper" if isinstance(self.beta, np.ndarray) and self.beta == 1 else "unnormalised"

    def with_sizes_from(self, *data: Any) -> Self:
        """The model with its sizes and, where there are kernels, their means."""
        if self.num_features is not None and (self.conjugate is not None or self.beta == 0):
            return self
        return super().with_sizes_from(*data)

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        for name in ("latent_variance", "loading_variance", "loc_variance", "ard_concentration", "ard_rate"):
            checks.check_positive(name, getattr(self, name))
        if self.beta.shape != ():
            raise ValueError(f"beta must be one number; got shape {self.beta.shape}")
        self._check_kernels()
        if self.beta == 0:
            object.__setattr__(self, "conjugate", None)
        if self.ard and self.beta > 0:
            raise ValueError(
                "ard=True goes with beta=0: the joint prior's normaliser depends on the precisions"
            )

    def check_method(self, method: str) -> None:
        """Refuse methods that integrate the posterior at beta = 1, where it has no integral."""
        joint_prior.refuse_improper(float(self.beta), method)

    def log_likelihood(self, values: Mapping[str, Array], *data: Array) -> Array:
        """Log density of each row over its observed cells, weighted as in the program.

        Given its latents if ``values`` has them; else (new rows) with them integrated out by Laplace's
        approximation, under the prior that they have given the loadings, conjugate kernels and all. View
        weights other than one make it a score instead of a density.

        Args:
            values: of the sites.
            *data: tables, each of shape (num_observations, its features), NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.
        """
        if "latents" in values:
            return self._log_cells(values, data)
        whole = self._modes(values, data).log_integral
        if not self.has_kernel:
            return whole
        nothing = tuple(jnp.full_like(table[:1], jnp.nan) for table in data)
        return whole - self._modes(values, nothing).log_integral

    def scores(self, values: Mapping[str, Array], *data: Array, kind: str = "latent") -> Array:
        """The mode of each row's latents, or its natural parameters' coordinates in an orthonormal basis.

        Args:
            values: of the sites.
            *data: as in `log_likelihood`.
            kind: ``"latent"`` or ``"orthonormal"``.

        Returns:
            Shape (num_observations, num_latents).
        """
        u = self._modes(values, data).latents[:, : self.num_latents]
        if kind == "latent":
            return u
        loadings = jnp.concatenate([values[name] for name in self.loading_sites])
        left, _, right = jnp.linalg.svd(loadings, full_matrices=False)
        return u @ loadings.T @ (left @ right)

    def scores_covariance(self, values: Mapping[str, Array], *data: Array) -> Array:
        """Laplace's covariance of the latents of each row.

        Args:
            values: of the sites.
            *data: as in `log_likelihood`.

        Returns:
            Shape (num_observations, num_latents, num_latents).
        """
        k = self.num_latents
        return self._modes(values, data).covariance[:, :k, :k]


@dataclass(frozen=True, eq=False)
class EPCA(JointPriorModel):
    """Exponential-family PCA with Gaussian priors (``beta=0``) or the joint beta-prior.

    Attributes:
        family: a family of `zoo.exponential_family`, its name, or a tuple with one for each column.
        num_latents: K.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance: sigma_U^2 > 0.
        loading_variance: sigma_V^2 > 0.
        loc_variance: prior variance of the mean of natural parameters.
        conjugate: (lam, nu) of the kernel; None: lam = 0.1 and nu such that the kernel's mean is that of all
            cells (in mixed tables a pair for each column, of its family's cells). Not used with ``beta=0``.
        ard: whether each latent has a precision of its loadings, Gamma(ard_concentration, ard_rate), by which
            it can be switched off; with ``beta=0`` only.
        ard_concentration: of the precisions' prior.
        ard_rate: of the precisions' prior.
        num_features: D; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).integers(0, 2, size=(20, 5))
        >>> zoo.EPCA.from_data(x, family="bernoulli", num_latents=2).num_features
        5
    """

    family: Family | str = "bernoulli"
    num_latents: int = static(default=2)
    beta: Array = 0.0
    latent_variance: Array = 1.0
    loading_variance: Array = 1.0
    loc_variance: Array = 100.0
    conjugate: Array | None = None
    ard: bool = static(default=False)
    ard_concentration: Array = 1.0
    ard_rate: Array = 1.0
    num_features: int | None = static(default=None)

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
        "shifted": "no: prior and noise variances are given in the units of natural parameters",
        "rescaled": "no: prior and noise variances are given in the units of natural parameters",
        "other_units": "no: prior and noise variances are given in the units of natural parameters",
    }
    methods = ("map", "gibbs", "vb", "nuts", "hmc", "svi")
    loading_sites = {"loadings": ""}

    def __call__(self, x: Array | None = None, *, num_observations: int | None = None) -> Array:
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
        variance = balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)
        scale = jnp.sqrt(variance)
        if self.ard:
            precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand([self.num_latents])
            scale = scale / jnp.sqrt(numpyro.sample("loading_precision", precisions.to_event(1)))
        shape = (size, self.num_latents)
        values = {"loadings": numpyro.sample("loadings", dist.Normal(0.0, scale).expand(shape).to_event(2))}
        num_features = self.num_features if x is None else x.shape[1]
        values |= sample_view_parameters(prior.family, num_features, prior.loc_variance)
        with numpyro.plate("observations", num_rows):
            z = dist.Normal(0.0, jnp.sqrt(variance)).expand([self.num_latents]).to_event(1)
            values["latents"] = numpyro.sample("latents", z)
            cells = self.cells(values)
            if self.has_kernel:
                joint_prior.joint_prior_factor(prior.family, self._theta(values), prior.beta, prior.conjugate)
            return numpyro.sample("x", cells, obs=x)

    # Closed-form companions of the program

    def natural_params(self, values: Mapping[str, Array]) -> Array:
        """The natural parameters Theta, flat in mixed tables.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Shape (num_observations, num_features), with one more axis for `Categorical`.
        """
        return self.family.shaped(self._theta(values).whole())

    def cells(self, values: Mapping[str, Array]) -> dist.Distribution:
        """The distribution of the rows at given values of the sites.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_features,).
        """
        return cells_of(in_current_precision(self).family, self._theta(values), values)

    def _theta(self, values: Mapping[str, Array]) -> LowRank:
        return LowRank(values["latents"], values["loadings"], values.get("loc", 0.0))

    def _log_cells(self, values: Mapping[str, Array], data: tuple[Array]) -> Array:
        return self.cells(values).log_prob(*data)

    def predicted(self, values: Mapping[str, Array], x: Array) -> tuple[Array, Array]:
        """Rows with missing cells at their mean at the mode of the latents, and their variance."""
        cells = self.cells(values | {"latents": self._modes(values, (x,)).latents})
        mean, variance = cells.mean_and_variance()
        missing = jnp.isnan(x)
        return jnp.where(missing, mean, x), jnp.where(missing, variance, 0.0)

    def _modes(self, values: Mapping[str, Array], data: tuple[Array]) -> RowMode:
        prior = in_current_precision(self)
        variance = balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)

        def log_joint(u: Array, row: Array) -> Array:
            cells = self.cells(values | {"latents": u[None]})
            total = cells.log_prob(row[None])[0] + jnp.sum(dist.Normal(0.0, jnp.sqrt(variance)).log_prob(u))
            if self.has_kernel:
                total += prior.beta * jnp.sum(
                    joint_prior.log_kernel(self.family, cells.theta, prior.conjugate)
                )
            return total

        return row_modes(log_joint, *data, self.num_latents)

    def starting_point(self, key: Array, x: Array) -> dict[str, Array]:
        """Starting values of all sites: means at the columns' means, small latents and loadings.

        Natural parameters lie inside the family's domain, which the prior alone does not see to.
        """
        family = in_current_precision(self).family
        first, second = jax.random.split(key)
        size = family.num_params(x.shape[1])
        scale = START_SCALE * (0.1 if family.theta_is_negative else 1.0)
        values = {
            "loadings": scale * jax.random.normal(first, (size, self.num_latents)),
            "latents": scale * jax.random.normal(second, (x.shape[0], self.num_latents)),
        } | starting_view_parameters(family, x)
        if self.ard:
            values["loading_precision"] = jnp.ones(self.num_latents)
        return values

    # Sizes and checks

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with its size, and the kernel's mean, read off the data; ``overrides`` are fields."""
        x = checks.as_matrix(x)
        read: dict[str, Any] = {"num_features": x.shape[1]}
        family = as_family(overrides.get("family", "bernoulli"))
        if np.any(np.asarray(overrides.get("beta", 0.0)) > 0) and family.has_kernel:
            read["conjugate"] = family.kernel_of(x, KERNEL_STRENGTH)
        return cls(**(read | {name: value for name, value in overrides.items() if value is not None}))

    def __post_init__(self) -> None:
        """Replace a family's name by the family, then store and validate the fields."""
        object.__setattr__(self, "family", as_family(self.family))
        super().__post_init__()

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """Family, number of latents, and priors in the units of the data.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        checks.check_num_parts(cls.__name__, len(data), 1)
        fields, widths = suitable_fields.family_fields(cls.__name__, data[0])
        return fields | ({"loading_variance": widths[0], "loc_variance": widths[1]} if widths else {})

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        checks.check_size("num_latents", self.num_latents)
        super().validate()

    def _check_kernels(self) -> None:
        pairs = [(self.family, 0.0, 0.0)]
        if self.conjugate is not None:
            if self.conjugate.shape not in self.family.kernel_shapes or not np.isfinite(self.conjugate).all():
                raise ValueError(
                    "conjugate must be two finite numbers, lam and nu (of a mixed table also two for each "
                    f"column); got {self.conjugate}"
                )
            pairs = self.family.kernel_problems(self.conjugate)
        elif 0 <= self.beta <= 1 and self.family.has_kernel:
            return
        for family, lam, nu in pairs:
            joint_prior.check_joint_prior(family, float(self.beta), lam, nu)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        self.check_new(x)
        checks.check_some_cells(x)
        for size, what in ((x.shape[1], "features"), (x.shape[0], "rows")):
            if self.num_latents > size:
                raise ValueError(
                    f"num_latents must be at most the number of {what}, {size}; got {self.num_latents}"
                )

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model; rows without any cell are allowed."""
        checks.check_columns(x, self.num_features, owner="model")
        self.family.check(x)

    @property
    def cell_families(self) -> tuple[Family]:
        """The family of the cells."""
        return (self.family,)

    @property
    def units(self) -> tuple[str, ...]:
        """Those of the cells of each part."""
        return tuple(family.units for family in self.cell_families)

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; those of categorical cells have classes as well as features."""
        dims = dict(self.dims)
        if self.num_features is None:
            return dims
        if self.family.num_params(self.num_features) != self.num_features:
            dims |= {"loadings": ("feature_class", "latent"), "loc": ("feature_class",)}
        if len(self.family.level_columns(self.num_features)) != self.num_features:
            dims["cut_points"] = ("level_feature", "cut")
        return dims

    def _num_rows(self, x: Array | None, num_observations: int | None) -> int:
        if x is not None:
            if isinstance(self.beta, np.ndarray) and self.beta > 0:
                self.require("conjugate")
            return x.shape[0]
        return self.rows_to_draw(num_observations, "num_features", reason=FACTOR_IN_PRIOR)
