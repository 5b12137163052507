r"""Probabilistic principal component analysis, and factor analysis.

Generative process, in the letters of Tipping and Bishop (1999)::

    alpha_k  ~ Gamma(a0, b0),  k = 1..K                         loading_prior="ard"
    w_dk     flat;  ~ Normal(0, v_w);  ~ Normal(0, 1/alpha_k)   "flat"; "gaussian"; "ard"
    mu_d     flat;  ~ Normal(m_d, v_mu)                         "flat"; otherwise
    psi      flat;  ~ InverseGamma(a, b)                        "flat"; otherwise
    u_n      = 1;  ~ Gamma(nu/2, nu/2),  n = 1..N               with degrees_of_freedom nu, for odd rows
    z_n      ~ Normal(0, I_K / u_n)
    x_n      ~ Normal(W z_n + mu, psi I_D / u_n)                noise="isotropic"; "diagonal": diag(psi)

========  =====================  ==========  ===================================================
letter    site                   shape       support
========  =====================  ==========  ===================================================
W         ``loadings``           (D, K)      real
mu        ``loc``                (D,)        real
psi       ``noise_variance``     () or (D,)  positive; (D,), factor analysis, if ``"diagonal"``
alpha     ``loading_precision``  (K,)        positive; a site only if ``"ard"``
u_n       ``row_precision``      (N,)        positive; with ``degrees_of_freedom``; summed out likewise
z_n       ``latents``            (N, K)      real; summed out unless ``explicit``
x_n       ``x``                  (N, D)      data; NaN is a missing cell
========  =====================  ==========  ===================================================

With the latents summed out a row is Normal(mu, W W' + diag(psi)) on its observed cells
(`zoo.linear_gaussian`), or Student-t with that matrix for its scale, and variances nu / (nu - 2) times as
large. Every row has its own u_n: one that lies far outside counts for little, in whatever direction.

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
"Bayesian PCA"; Yu (2006), section 5.1; Morrison (2016), "Introduction to machine learning", lecture 29, for
the priors; Archambeau, Delannay and Verleysen (2006), "Robust probabilistic projections".
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import sample

from zoo import checks
from zoo.fields import choice, flag, numbers, positive, scale_of, size, size_of
from zoo.linear_gaussian.answers import LinearGaussianAnswers
from zoo.linear_gaussian.rows import flat, latents_of_rows, linear_gaussian
from zoo.linear_gaussian.units import BROAD, NOISE_RATE, PLACE, ProjectionUnits, of_prior
from zoo.model import Model, Roles, Table
from zoo.shapes import Rows
from zoo.sparse import is_sparse


@dataclass(frozen=True, eq=False)
class PPCA(ProjectionUnits, Model):
    """Probabilistic PCA (``noise="isotropic"``) and factor analysis (``"diagonal"``), with missing cells.

    Attributes:
        num_latents: K, fewer than rows and than features.
        loading_prior: ``"flat"`` (improper: maximum likelihood), ``"gaussian"`` or ``"ard"`` (automatic
            relevance determination: a precision for each latent, by which it can be switched off).
        noise: ``"isotropic"`` (PPCA: one variance) or ``"diagonal"`` (factor analysis: one a feature).
        degrees_of_freedom: nu > 0 of Student-t rows, smaller for heavier tails; None: normal rows.
        loading_variance: v_w, squared units of the data; None: the columns' mean variance.
        ard_concentration: a0 > 0.
        ard_rate: b0 > 0, squared units; None: ``ard_concentration`` times the columns' mean variance.
        loc_mean: m, shape (num_features,); None: the columns' means.
        loc_variance: v_mu, squared units; None: 100 times the columns' mean variance.
        noise_concentration: a > 0.
        noise_rate: b > 0, squared units, shape () or, if ``"diagonal"``, (num_features,); None:
            ``noise_concentration`` times the columns' mean variance, or if ``"diagonal"`` each one's.
        standardize: for columns in different units: whether the program is of columns in their standard
            deviations s_d. ``noise_variance``, ``loading_precision`` and all variances and rates are then of
            these; everything else is in the units of the data. Flat factor analysis fits the same either way.
        column_scale: s, shape (num_features,), with ``standardize``; None: read off the observed cells.
        num_features: D; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).normal(size=(50, 4))
        >>> zoo.PPCA.from_data(x, num_latents=2, loading_prior="ard").loc_mean.shape
        (4,)
    """

    num_latents: int = size(2)
    loading_prior: str = choice("flat", "gaussian", "ard", proper_with="='gaussian' or 'ard'")
    noise: str = choice("isotropic", "diagonal")
    degrees_of_freedom: Array | None = positive()
    loading_variance: Array | None = positive(**of_prior("variance_unit", lambda m, x: x.scale))
    ard_concentration: Array = positive(1e-3)
    ard_rate: Array | None = positive(**of_prior("ard_unit", lambda m, x: m.ard_concentration * x.scale))
    loc_mean: Array | None = numbers(None, ("feature",), **of_prior(PLACE, lambda m, x: x.means))
    loc_variance: Array | None = positive(**of_prior("variance_unit", lambda m, x: BROAD * x.scale))
    noise_concentration: Array = positive(1e-3)
    noise_rate: Array | None = positive(**NOISE_RATE)
    standardize: bool = flag(inside=False)
    column_scale: Array | None = scale_of()
    num_features: int | None = size_of("x")

    def program(self, x: Rows | None, rows: numpyro.plate) -> Rows:
        """Loadings, mean and noise; then the latents and the cells of each row."""
        d, k = self.num_features, self.num_latents
        by_column = (d,) if self.noise == "diagonal" else ()
        if self.loading_prior == "flat":
            loadings, loc, noise = flat(d, k), flat(d), flat(*by_column, positive=True)
        else:
            scale = jnp.sqrt(self.loading_variance)
            if self.loading_prior == "ard":
                precisions = dist.Gamma(self.ard_concentration, self.ard_rate).expand([k]).to_event(1)
                scale = 1 / jnp.sqrt(sample("loading_precision", precisions))
            loadings = dist.Normal(0.0, scale).expand([d, k]).to_event(2)
            loc = dist.Normal(self.loc_mean, jnp.sqrt(self.loc_variance)).to_event(1)
            noise = dist.InverseGamma(self.noise_concentration, self.noise_rate).expand(by_column)
            noise = noise.to_event(len(by_column))
        loadings, loc = sample("loadings", loadings), sample("loc", loc)
        noise = sample("noise_variance", noise)
        with rows:
            u, z = latents_of_rows(k, self.degrees_of_freedom)
            return sample("x", linear_gaussian(loadings, loc, noise, z, self.degrees_of_freedom, u), obs=x)

    data = (Table("x", sparse="reals", varies=True, needs=2, latents=("columns", "rows")),)
    dims = {
        "loadings": ("feature", "latent"),
        "loc": ("feature",),
        "noise_variance": (),
        "loading_precision": ("latent",),
        "row_precision": ("observation",),
        "latents": ("observation", "latent"),
        "latents_covariance": ("observation", "latent", "latent_2"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation",)
    roles = Roles(latent="latents", loadings={"loadings": ""})
    answers = LinearGaussianAnswers
    methods = ("closed_form", "em", "vb", "gibbs", "nuts", "hmc", "svi", "tempered")

    # Sizes and checks

    def check(self, x: Rows) -> None:
        """Warn where the covariance has fewer entries than the parameters of factor analysis (Ledermann).

        Raises:
            ValueError: rows are sparse and Student-t.
        """
        super().check(x)
        if is_sparse(x) and self.degrees_of_freedom is not None:
            raise ValueError("sparse x goes with normal rows: leave degrees_of_freedom out, or make x dense")
        num_features = np.shape(x)[1]
        most = int((2 * num_features + 1 - np.sqrt(8 * num_features + 1)) / 2)
        if self.noise == "diagonal" and self.loading_prior == "flat" and self.num_latents > most:
            checks.warn(
                f"{self.num_latents} latents of {num_features} columns with a noise variance each have "
                f"more parameters than the covariance has entries, so that the rows cannot tell loadings "
                f"from noise variances; "
                + (f"use num_latents={most} or less, " if most else "")
                + "use noise='isotropic' or loading_prior='gaussian'"
            )

    @property
    def prior(self) -> str:
        """``"improper"`` with ``loading_prior="flat"``, else ``"proper"``."""
        return "improper" if self.loading_prior == "flat" else "proper"
