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

Departures from the sources. The mean is a parameter, where the lecture on variational PCA assumes centred
data. Tipping and Bishop's model has no prior: ``"flat"`` is improper, its maximum is their estimate, and the
program cannot be drawn from without data. Bishop (1999) integrates the mean out under a broad prior; here its
prior is centred at the columns' means, with 100 times their mean variance. The priors of the lecture (its a
and b are not stated) are 1e-3, in the squared units of the data.

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
from zoo.model import Model, in_current_precision, static
from zoo.sparse import SparseMatrix, as_rows, is_sparse
from zoo.suitable_fields import density_fields

__all__ = ["PPCA"]

LOADING_PRIORS = ("flat", "gaussian", "ard")
NOISES = ("isotropic", "diagonal")
BROAD = 100.0  # variance of the mean's prior, in mean variances of the columns


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
        ard_rate: b0 > 0, squared units of the data.
        loc_mean: m, prior mean of the mean, shape (num_features,); None: the columns' means. Not used where
            flat.
        loc_variance: v_mu, its prior variance; None: 100 times the mean variance of the columns. Not used
            where flat.
        noise_concentration: a > 0 of the noise variance's prior. Not used where flat.
        noise_rate: b > 0, squared units of the data. Not used where flat.
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
    ard_rate: Array = 1e-3
    loc_mean: Array | None = None
    loc_variance: Array | None = None
    noise_concentration: Array = 1e-3
    noise_rate: Array = 1e-3
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
    loading_sites = {"loadings": ""}
    takes_sparse = True
    methods = ("closed_form", "em", "vb", "nuts", "hmc", "svi")

    def __call__(self, x: Array | None = None, *, num_observations: int | None = None) -> Array:
        """The NumPyro program: with ``x`` it conditions, without it draws rows.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            ``x``, or the rows drawn, shape (num_observations, num_features).
        """
        num_rows, num_features = self._sizes(x, num_observations)
        loadings, loc, noise_variance = self._sample_parameters(num_features)
        with numpyro.plate("observations", num_rows):
            if x is not None and not self.draw_locals:
                return numpyro.sample("x", LinearGaussianRows(loadings, loc, noise_variance), obs=x)
            z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
            cells = dist.Normal(loc + z @ loadings.T, jnp.sqrt(noise_variance))
            return numpyro.sample("x", ObservedCells(cells), obs=x)

    def _sample_parameters(self, num_features: int) -> tuple[Array, Array, Array]:
        """Loadings, mean and noise variance from their prior."""
        prior, shape = in_current_precision(self), (num_features, self.num_latents)
        noise_shape = (num_features,) if self.noise == "diagonal" else ()
        if self.loading_prior == "flat":
            loadings = numpyro.sample("loadings", dist.ImproperUniform(dist.constraints.real, (), shape))
            loc = numpyro.sample("loc", dist.ImproperUniform(dist.constraints.real, (), shape[:1]))
            flat = dist.ImproperUniform(dist.constraints.positive, (), noise_shape)
            return loadings, loc, numpyro.sample("noise_variance", flat)
        scale = jnp.sqrt(prior.loading_variance)
        if self.loading_prior == "ard":
            precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand([self.num_latents])
            scale = 1 / jnp.sqrt(numpyro.sample("loading_precision", precisions.to_event(1)))
        loadings = numpyro.sample("loadings", dist.Normal(0.0, scale).expand(shape).to_event(2))
        mean = dist.Normal(prior.loc_mean, jnp.sqrt(prior.loc_variance)).to_event(1)
        loc = numpyro.sample("loc", mean)
        noise = dist.InverseGamma(prior.noise_concentration, prior.noise_rate).expand(noise_shape)
        return loadings, loc, numpyro.sample("noise_variance", noise.to_event(len(noise_shape)))

    # Closed-form companions of the program

    def log_likelihood(self, values: Mapping[str, Array], x: Array) -> Array:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.
        """
        return rows.log_density(x, *_parameters(values))

    def local_conditionals(self, values: Mapping[str, Array], x: Array) -> dict[str, dist.Distribution]:
        """The latents of each row given its observed cells and everything else."""
        return {"latents": LatentsGivenRows(x, *_parameters(values))}

    def derived(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The latents of the rows."""
        return {"latents": values["latents"]}

    def scores(self, values: Mapping[str, Array], x: Array, *, kind: str = "latent") -> Array:
        """The mean E[z | x], or coordinates of the completed row in the orthonormal basis W (W'W)^-1/2."""
        if kind == "latent":
            return rows.latents_mean(x, *_parameters(values))
        left, _, right = jnp.linalg.svd(values["loadings"], full_matrices=False)
        if isinstance(x, SparseMatrix):
            return x.times(left @ right) - values["loc"] @ (left @ right)
        return (rows.completed(x, *_parameters(values))[0] - values["loc"]) @ (left @ right)

    def scores_covariance(self, values: Mapping[str, Array], x: Array) -> Array:
        """Posterior covariance of the latents of each row."""
        return rows.latents_covariance(x, values["loadings"], values["noise_variance"])

    def predicted(self, values: Mapping[str, Array], x: Array) -> tuple[Array, Array]:
        """Rows with missing cells at their conditional mean, and the conditional variance of each cell."""
        return rows.completed(x, *_parameters(values))

    # Sizes and checks

    def encoded(self, *data: Any) -> tuple[Self, tuple]:
        """The model, and the data with scipy's sparse matrices as `zoo.sparse.SparseMatrix`."""
        return self, tuple(as_rows(part) if is_sparse(part) else part for part in data)

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with its size, and under a proper prior its location and scale, read off the data.

        ``overrides`` are fields.

        Raises:
            ValueError: sparse rows, and a prior of the loadings.
        """
        x = as_rows(x)
        read: dict[str, Any] = {"num_features": x.shape[1]}
        if overrides.get("loading_prior", "flat") != "flat":
            if isinstance(x, SparseMatrix):
                raise ValueError("sparse x goes with loading_prior='flat', the default")
            checks.check_some_cells(x)
            scale = float(np.nanvar(x, axis=0).mean())
            read |= {
                "loading_variance": scale,
                "loc_mean": np.nanmean(x, axis=0),
                "loc_variance": BROAD * scale,
            }
        given = {name: value for name, value in overrides.items() if value is not None}
        return cls(**(read | given))

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
        for name in (*positive, "noise_concentration", "noise_rate"):
            if getattr(self, name) is not None:
                checks.check_positive(name, getattr(self, name))
        size = None if self.loc_mean is None else self.num_features or max(self.loc_mean.size, 1)
        if self.loc_mean is not None and (
            self.loc_mean.shape != (size,) or not np.isfinite(self.loc_mean).all()
        ):
            raise ValueError(
                f"loc_mean must have one finite number for each feature; got shape {self.loc_mean.shape}: "
                f"{checks.shown(self.loc_mean)}"
            )

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        x = as_rows(x)
        self.check_new(x)
        num_rows, num_features = x.shape
        for size, what in ((num_features, "features"), (num_rows, "rows")):
            if self.num_latents >= size:
                raise ValueError(
                    f"num_latents must be smaller than the number of {what}, else the latents explain them "
                    f"whole; got num_latents={self.num_latents} and {size} {what}"
                )
        if not isinstance(x, SparseMatrix):
            checks.check_some_cells(x)
        checks.check_not_constant(x)

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
    def units(self) -> tuple[str]:
        """Any unit and any origin."""
        return ("location_scale",)

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        if name in ("masked_array", "frame_nan", "frame_na", "row_masked") and method == "closed_form":
            return "no: method 'closed_form' needs every cell"
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
        if self.prior == "proper":
            self.require("loading_variance", "loc_mean", "loc_variance")
        if x is not None:
            return x.shape
        reason = (
            "loading_prior='flat' is no distribution to draw from: give x to condition on, or choose "
            "loading_prior='gaussian' or 'ard'"
        )
        num_rows = self.rows_to_draw(num_observations, reason=reason)
        self.require("num_features")
        return num_rows, self.num_features


def _parameters(values: Mapping[str, Array]) -> tuple[Array, Array, Array]:
    return values["loadings"], values["loc"], values["noise_variance"]
