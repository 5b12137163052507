r"""Probabilistic principal component analysis, and factor analysis.

Generative process, in the letters of Tipping and Bishop (1999)::

    alpha_k  ~ Gamma(a0, b0),  k = 1..K                         loading_prior="ard"
    w_dk     flat;  ~ Normal(0, v_w);  ~ Normal(0, 1/alpha_k)   "flat"; "gaussian"; "ard"
    mu_d     flat;  ~ Normal(m_d, v_mu)                         "flat"; otherwise
    psi      flat;  ~ InverseGamma(a, b)                        "flat"; otherwise
    z_n      ~ Normal(0, I_K),  n = 1..N
    x_n      ~ Normal(W z_n + mu, psi I_D)                      noise="isotropic"; "diagonal": diag(psi)

========  =====================  ==========  ===================================================
letter    site                   shape       support
========  =====================  ==========  ===================================================
W         ``loadings``           (D, K)      real
mu        ``loc``                (D,)        real
psi       ``noise_variance``     () or (D,)  positive; (D,), factor analysis, if ``"diagonal"``
alpha     ``loading_precision``  (K,)        positive; a site only if ``"ard"``
z_n       ``latents``            (N, K)      real; summed out unless ``explicit``
x_n       ``x``                  (N, D)      data; NaN is a missing cell
========  =====================  ==========  ===================================================

With the latents summed out a row is Normal(mu, W W' + diag(psi)) on its observed cells
(`zoo.linear_gaussian`).

Symmetry: W R and R' z with R orthogonal give the same density (rotation), whatever the data. The program
leaves W free; an ARD prior prefers orthogonal columns but not their order or signs.

Departures from the sources. The mean is a parameter, whereas the lecture on variational PCA assumes centred
data. Tipping and Bishop's model has no prior: ``"flat"`` is improper, its maximum is their estimate, and the
program cannot be drawn from without data. Bishop (1999) integrates the mean out under a broad prior; here the
prior of the mean is centred at the columns' means, with 100 times their mean variance. The lecture does not
state the a and b of its gamma priors; here the concentrations are 1e-3 unless given, and the rates as many
times the mean variance of the columns (with ``"diagonal"``, for the noise, that of each column). All defaults
are read off the data, so a fit in metres equals a fit in millimetres.

References: Tipping and Bishop (1999), "Probabilistic principal component analysis", JRSS B 61; Bishop (1999),
"Bayesian PCA"; Yu (2006), section 5.1; the lecture "Variational Bayes" for the priors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks
from zoo.conjugate.cellwise import ObservedCells
from zoo.linear_gaussian import rows
from zoo.linear_gaussian.rows import LatentsGivenRows, LinearGaussianRows
from zoo.linear_gaussian.units import taken_over, units_of
from zoo.model import Model, in_current_precision, static
from zoo.shapes import Covariances, PerRow, Rows, Scores
from zoo.sparse import SparseMatrix, as_rows, is_sparse
from zoo.suitable_fields import density_fields
from zoo.supports.in_units import InUnits

__all__ = ["PPCA"]

LOADING_PRIORS = ("flat", "gaussian", "ard")
NOISES = ("isotropic", "diagonal")
BROAD = 100.0  # variance of the mean's prior, in mean variances of the columns
PRIOR_FIELDS = ("column_scale", "loading_variance", "ard_rate", "loc_mean", "loc_variance", "noise_rate")


@dataclass(frozen=True, eq=False)
class PPCA(Model):
    """Probabilistic PCA (``noise="isotropic"``) and factor analysis (``"diagonal"``), with missing cells.

    Attributes:
        num_latents: K, fewer than rows and than features.
        loading_prior: ``"flat"`` (improper: maximum likelihood), ``"gaussian"`` or ``"ard"`` (automatic
            relevance
            determination: a precision for each latent, by which it can be switched off).
        noise: ``"isotropic"`` (PPCA: one variance) or ``"diagonal"`` (factor analysis: one a feature).
        loading_variance: v_w of the Gaussian prior, squared units of the data; None: the mean variance of the
            columns.
        ard_concentration: a0 > 0 of the precisions' prior.
        ard_rate: b0 > 0, squared units of the data; None: ``ard_concentration`` times the mean variance of
            the columns, so that the prior mean of a precision is the inverse of that variance.
        loc_mean: m, prior mean of the mean, shape (num_features,); None: the columns' means. Not used where
            flat.
        loc_variance: v_mu, its prior variance; None: 100 times the mean variance of the columns. Not used
            where flat.
        noise_concentration: a > 0 of the noise variance's prior. Not used where flat.
        noise_rate: b > 0, squared units of the data, shape () or, with ``"diagonal"``, (num_features,); None:
            ``noise_concentration`` times the mean variance of the columns, or with ``"diagonal"`` that of
            each. Not used where flat.
        standardize: whether each column is measured in its standard deviation s_d: for columns in different
            units. The rows of W and the noise's standard deviation are then s_d times those of this program,
            ``noise_variance`` and all variances and rates above are in units of s_d^2, and everything else
            stays in the units of the data. Factor analysis (``"diagonal"``, flat) fits the same either way.
        column_scale: s, shape (num_features,), used with ``standardize``; None: the columns' standard
            deviations over their observed cells.
        num_features: D; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).normal(size=(50, 4))
        >>> zoo.PPCA.from_data(x, num_latents=2, loading_prior="ard").loc_mean.shape
        (4,)
    """

    num_latents: int = static(default=2)
    loading_prior: str = static(default="flat")
    noise: str = static(default="isotropic")
    loading_variance: Array | None = None
    ard_concentration: Array = 1e-3
    ard_rate: Array | None = None
    loc_mean: Array | None = None
    loc_variance: Array | None = None
    noise_concentration: Array = 1e-3
    noise_rate: Array | None = None
    standardize: bool = static(default=False)
    column_scale: Array | None = None
    num_features: int | None = static(default=None)

    dims = {
        "loadings": ("feature", "latent"),
        "loc": ("feature",),
        "noise_variance": (),
        "loading_precision": ("latent",),
        "latents": ("observation", "latent"),
        "latents_covariance": ("observation", "latent", "latent_2"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation",)
    relations = {
        "columns_rescaled": "same, predictions in the new units",
    }
    field_dims = {"loc_mean": ("feature",)}
    score_dims = ("observation", "latent")
    predicted_dims = ("observation", "feature")
    latent_site = "latents"
    weighs_rows = True
    loading_sites = {"loadings": ""}
    takes_sparse = True
    methods = ("closed_form", "em", "vb", "nuts", "hmc", "svi")

    def __call__(self, x: Rows | None = None, *, num_observations: int | None = None) -> Rows:
        """The NumPyro program: with ``x`` it conditions, without it draws rows.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            ``x``, or the rows drawn, shape (num_observations, num_features).
        """
        num_rows, num_features = self._sizes(x, num_observations)
        loadings, loc, noise_variance = self._sample_parameters(num_features, x)
        noise_variance = self._in_units(noise_variance, 2)
        with numpyro.plate("observations", num_rows):
            if x is not None and not self.draw_locals:
                return numpyro.sample("x", LinearGaussianRows(loadings, loc, noise_variance), obs=x)
            z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
            cells = dist.Normal(loc + z @ loadings.T, jnp.sqrt(noise_variance))
            return numpyro.sample("x", ObservedCells(cells), obs=x)

    def _sample_parameters(self, num_features: int, x: Array | None) -> tuple[Array, Array, Array]:
        """Loadings, mean and noise variance from their prior, coordinates in the units of the data."""
        prior, shape = in_current_precision(self), (num_features, self.num_latents)
        noise_shape = (num_features,) if self.noise == "diagonal" else ()
        if self.loading_prior == "flat":
            origin, unit = units_of(x)
            loadings, loc = (
                dist.ImproperUniform(dist.constraints.real, (), own) for own in (shape, shape[:1])
            )
            noise = dist.ImproperUniform(dist.constraints.positive, (), noise_shape)
        else:
            origin, unit = prior.loc_mean, jnp.sqrt(prior.loading_variance)
            scale = unit
            if self.loading_prior == "ard":
                precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand([self.num_latents])
                precisions = InUnits(precisions.to_event(1), unit**-2)
                scale = 1 / jnp.sqrt(numpyro.sample("loading_precision", precisions))
            scale = jnp.broadcast_to(scale, shape) * self._in_units(jnp.ones(()), 1, axes=1)
            loadings = dist.Normal(0.0, scale).to_event(2)
            loc = dist.Normal(prior.loc_mean, self._in_units(jnp.sqrt(prior.loc_variance), 1)).to_event(1)
            noise = dist.InverseGamma(prior.noise_concentration, prior.noise_rate).expand(noise_shape)
            noise = noise.to_event(len(noise_shape))
        loadings = numpyro.sample("loadings", InUnits(loadings, unit, jnp.zeros(())))
        loc = numpyro.sample("loc", InUnits(loc, unit, origin))
        return loadings, loc, numpyro.sample("noise_variance", InUnits(noise, unit**2))

    def _in_units(self, value: Array, power: int, axes: int = 0) -> Array:
        """A number, or one for each column, times a power of the column scale with further axes of one."""
        if not self.standardize:
            return value
        scale = in_current_precision(self).column_scale ** power
        return value * scale.reshape(-1, *(1,) * axes)

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The columns' scale, with ``standardize``."""
        if not self.standardize or self.column_scale is None:
            return {}
        s = self.column_scale
        scales = {"x": s, "loc": s, "loc_mean": s, "loc_variance": s**2}
        scales |= dict.fromkeys(("loadings", "loadings_mean"), s[:, None])
        scales |= {"loadings_loc_covariance": s[:, None] ** 2, "loadings_covariance": s[:, None, None] ** 2}
        return {name: (scale, 0.0) for name, scale in scales.items()}

    def in_standard_units(self) -> Self:
        """The plain model of x / column_scale."""
        if not self.units:
            return self
        mean = None if self.loc_mean is None else self.loc_mean / self.column_scale
        return self.replaced(standardize=False, column_scale=None, loc_mean=mean)

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """The squared scales of the columns, with ``standardize``."""
        return {"": self.column_scale**2} if self.units else {}

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """Whether the noise is isotropic, in units that are not those of the columns."""
        return (self.noise == "isotropic" and not self.standardize,)

    # Closed-form companions of the program

    def log_likelihood(self, values: Mapping[str, Array], x: Rows | SparseMatrix) -> PerRow:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.
        """
        return rows.log_density(x, *self._parameters(values))

    def local_conditionals(
        self, values: Mapping[str, Array], x: Rows | SparseMatrix
    ) -> dict[str, dist.Distribution]:
        """The latents of each row given its observed cells and everything else."""
        return {"latents": LatentsGivenRows(x, *self._parameters(values))}

    def derived(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The latents of the rows."""
        return {"latents": values["latents"]}

    def scores(self, values: Mapping[str, Array], x: Rows | SparseMatrix, *, kind: str = "latent") -> Scores:
        """The mean E[z | x], or coordinates of the completed row in the orthonormal basis W (W'W)^-1/2."""
        if kind == "latent":
            return rows.latents_mean(x, *self._parameters(values))
        if self.units:
            stored = {n: v / self.units[n][0] if n in self.units else v for n, v in values.items()}
            return self.in_standard_units().scores(stored, x / self.column_scale, kind=kind)
        left, _, right = jnp.linalg.svd(values["loadings"], full_matrices=False)
        if isinstance(x, SparseMatrix):
            return x.times(left @ right) - values["loc"] @ (left @ right)
        return (rows.completed(x, *self._parameters(values))[0] - values["loc"]) @ (left @ right)

    def scores_covariance(self, values: Mapping[str, Array], x: Rows | SparseMatrix) -> Covariances:
        """Posterior covariance of the latents of each row."""
        loadings, _, noise_variance = self._parameters(values)
        return rows.latents_covariance(x, loadings, noise_variance)

    def predicted(self, values: Mapping[str, Array], x: Rows) -> tuple[Rows, Rows]:
        """Rows with missing cells at their conditional mean, and the conditional variance of each cell."""
        return rows.completed(x, *self._parameters(values))

    def _parameters(self, values: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        return values["loadings"], values["loc"], self._in_units(values["noise_variance"], 2)

    # Sizes and checks

    def encoded(self, *data: Any) -> tuple[Self, tuple]:
        """The model, and the data with scipy's sparse matrices as `zoo.sparse.SparseMatrix`."""
        return self, tuple(as_rows(part) if is_sparse(part) else part for part in data)

    @classmethod
    def from_data(cls, x: Any, *, sample_weight: Any = None, **overrides: Any) -> Self:
        """The model with its size, and under a proper prior its location and scale, read off the data.

        ``sample_weight``, shape (num_observations,), weighs the rows; ``overrides`` are fields.

        Raises:
            ValueError: sparse rows, and a prior of the loadings.
        """
        x, weight = as_rows(x), None
        if not isinstance(x, SparseMatrix):  # of which nothing is read
            x, weight = checks.rows_with_weight(x, sample_weight)
        given = {name: value for name, value in overrides.items() if value is not None}
        model = cls(**given)  # checks the fields that numbers follow from
        read: dict[str, Any] = {"num_features": x.shape[1]}
        if overrides.get("standardize", False):
            scale = checks.column_scale(x, overrides.get("column_scale"), weight=weight)
            read["column_scale"], x = scale, x / scale
        if overrides.get("loading_prior", "flat") != "flat":
            if isinstance(x, SparseMatrix):
                raise ValueError("sparse x goes with loading_prior='flat', the default")
            checks.check_some_cells(x)
            checks.check_scale(x)
            means, variances = checks.observed_moments(x, weight)
            scale = float(variances.mean())
            read |= {
                "loading_variance": scale,
                "ard_rate": model.ard_concentration * scale,
                "loc_mean": means,
                "loc_variance": BROAD * scale,
                "noise_rate": model.noise_concentration
                * (variances if overrides.get("noise") == "diagonal" else scale),
            }
            if "column_scale" in read:
                read["loc_mean"] = read["loc_mean"] * read["column_scale"]
        return cls(**(read | given))

    def continuing(self, former: Self) -> Self:
        """The model with the prior that the former fit read off its rows, where it is not given."""
        if self.loading_prior == "flat" or former.loading_prior != self.loading_prior:
            return self
        return self.replaced(**taken_over(self, former, PRIOR_FIELDS))

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """The number of latents; the data must have densities.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        checks.check_num_parts(cls.__name__, len(data), 1)
        return density_fields(cls.__name__, data[0])

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        checks.check_size("num_latents", self.num_latents)
        for name, allowed in (("loading_prior", LOADING_PRIORS), ("noise", NOISES)):
            checks.check_choice(name, getattr(self, name), allowed)
        positive = ("loading_variance", "ard_concentration", "ard_rate", "loc_variance")
        for name in (*positive, "noise_concentration"):
            if getattr(self, name) is not None:
                checks.check_positive(name, getattr(self, name))
        checks.check_flag("standardize", self.standardize)
        if self.column_scale is not None:
            checks.check_positive_columns("column_scale", self.column_scale, self.num_features)
        if self.noise_rate is not None:
            rates = (self.num_features or self.noise_rate.size,) if self.noise == "diagonal" else ()
            checks.check_positive_cells("noise_rate", self.noise_rate, {"a feature": rates})
        if self.loc_mean is None:
            return
        if self.loc_mean.shape != (self.num_features or max(self.loc_mean.size, 1),):
            raise ValueError(
                f"loc_mean must have one number for each feature; got shape {self.loc_mean.shape}"
            )
        if not np.isfinite(self.loc_mean).all():
            raise ValueError(f"loc_mean must be finite; got {checks.shown(self.loc_mean)}")

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        x = as_rows(x)
        checks.check_columns(x, self.num_features, owner="model")
        if not isinstance(x, SparseMatrix):
            checks.check_table(x)
        num_rows, num_features = x.shape
        checks.check_rows(x, 2, "the projection of one row is the row itself")
        checks.check_num_latents(self.num_latents, {"columns": num_features, "rows": num_rows}, below=True)
        checks.check_not_constant(x)
        self._warn_of_too_many_factors(num_features)

    def _warn_of_too_many_factors(self, num_features: int) -> None:
        """Warn where the covariance has fewer entries than the parameters of factor analysis (Ledermann)."""
        most = int((2 * num_features + 1 - np.sqrt(8 * num_features + 1)) / 2)
        if self.noise == "diagonal" and self.loading_prior == "flat" and self.num_latents > most:
            checks.warn(
                f"{self.num_latents} latents of {num_features} columns with a noise variance each have "
                f"more parameters than the covariance has entries, so that the rows cannot tell loadings "
                f"from noise variances; "
                + (f"use num_latents={most} or less, " if most else "")
                + "use noise='isotropic' or loading_prior='gaussian'"
            )

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model; rows without any cell are allowed."""
        x = as_rows(x)
        if not isinstance(x, SparseMatrix):
            checks.check_infinite(x)
        checks.check_columns(x, self.num_features, owner="model")

    def auto_method(self, x: np.ndarray) -> str:
        """The method ``"closed_form"`` where it exists, else ``"em"``."""
        if isinstance(x, SparseMatrix):
            return "em"
        has_form = self.noise == "isotropic" and self.loading_prior == "flat" and not np.isnan(x).any()
        return "closed_form" if has_form else "em"

    @property
    def location_sites(self) -> dict[str, tuple[int, slice]]:
        """The mean of the rows, and its mean under q."""
        return dict.fromkeys(("loc", "loc_mean"), (0, slice(None)))

    def origin(self, x: Any, *, always: bool = False) -> tuple[np.ndarray | None]:
        """The columns' means; sparse rows stay, and in double precision all do."""
        return (checks.column_moments(x)[0] if always and not isinstance(x, SparseMatrix) else None,)

    def shifted(self, by: tuple[np.ndarray | None]) -> Self:
        """The prior mean of the mean is moved."""
        return (
            self if by[0] is None or self.loc_mean is None else self.replaced(loc_mean=self.loc_mean + by[0])
        )

    @property
    def cell_units(self) -> tuple[str]:
        """Any unit and any origin."""
        return ("location_scale",)

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        if name in ("masked_array", "frame_nan", "frame_na", "row_masked") and method == "closed_form":
            return "no: method 'closed_form' needs every cell"
        if name == "columns_rescaled" and self.standardize:
            return super().relation_of(name, method)
        if name == "columns_rescaled" and self.noise == "isotropic":
            return "no: one noise variance for all columns"
        if name == "columns_rescaled" and self.loading_prior != "flat":
            return "no: one prior variance for the loadings of all columns"
        return super().relation_of(name, method)

    @property
    def prior(self) -> str:
        """``"improper"`` with ``loading_prior="flat"``, else ``"proper"``."""
        return "improper" if self.loading_prior == "flat" else "proper"

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; those of the noise variance depend on ``noise``."""
        return dict(self.dims) | ({"noise_variance": ("feature",)} if self.noise == "diagonal" else {})

    def _sizes(self, x: Array | None, num_observations: int | None) -> tuple[int, int]:
        """Rows and columns of a run of the program."""
        if self.standardize:
            self.require("column_scale")
        if self.prior == "proper":
            ard = ("ard_rate",) if self.loading_prior == "ard" else ()
            self.require("loading_variance", *ard, "loc_mean", "loc_variance", "noise_rate")
        if x is not None:
            return x.shape
        reason = (
            "loading_prior='flat' is no distribution to draw from: give x to condition on, or choose "
            "loading_prior='gaussian' or 'ard'"
        )
        num_rows = self.rows_to_draw(num_observations, reason=reason)
        self.require("num_features")
        return num_rows, self.num_features
