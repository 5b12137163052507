r"""Mixtures of factor analysers with common loadings: rows are projected and clustered at once.

Generative process, in the letters of Yu (2006, section 8.1 and chapters 3 and 5)::

    alpha       given, or ~ Gamma(a, b)
    pi          ~ Dirichlet(alpha/M, ..., alpha/M)                     weight_prior="dirichlet"
    V_j         ~ Beta(1, alpha), j < M;  V_M = 1                      weight_prior="stick_breaking"
    Lambda_m    ~ Wishart(I / (beta0 nu0), nu0),  m = 1..M
    m_m         ~ Normal(0, (beta0 Lambda_m)^-1)
    gamma_k     ~ Gamma(a0, b0),  k = 1..K                             loading_prior="ard"
    w_dk        ~ Normal(0, v_w);  ~ Normal(0, 1/gamma_k)              "gaussian"; "ard"
    mu_d        ~ Normal(m_d, v_mu)
    psi         ~ InverseGamma(a, b)                                   noise="isotropic"; "diagonal": psi_d
    c_i         ~ Categorical(pi), i = 1..N
    z_i         ~ Normal(m_{c_i}, Lambda_{c_i}^-1)
    x_i         ~ Normal(W z_i + mu, diag(psi))

========  ======================  ===========  ==============================================================
letter    site                    shape        support
========  ======================  ===========  ==============================================================
alpha     ``concentration``       ()           positive; a site only with a Gamma prior
V         ``stick_decays``        (M - 1,)     positive, -log(1 - V); only with ``"stick_breaking"``
pi        ``weights``             (M,)         simplex
Lambda    ``precisions``          (M, K, K)    positive definite; ``covariances`` are their inverses
m         ``locs``                (M, K)       real
gamma     ``loading_precision``   (K,)         positive; a site only if ``"ard"``
W         ``raw_loadings``        (D, K)       real
mu        ``raw_loc``             (D,)         real
psi       ``noise_variance``      () or (D,)   positive; (D,) if ``"diagonal"``
c_i       ``assignments``         (N,)         0..M-1; summed out unless ``explicit``
z_i       ``raw_latents``         (N, K)       real; summed out unless ``explicit``
x_i       ``x``                   (N, D)       data; NaN is a missing cell
W S^1/2   ``loadings``            (D, K)       deterministic; S is the covariance of z, labels summed out
E[x]      ``loc``                 (D,)         deterministic, W E[z] + mu
========  ======================  ===========  ==============================================================

It is `zoo.PPCA` with `zoo.Mixture` as the prior of its latents: with label and latents summed out a row is
from typing import Any
from a mixture of Normal(W m_m + mu, W Lambda_m^-1 W' + diag(psi)). One cluster is PPCA; W = I is the mixture.

Symmetries. The density of the rows is the same for z -> A z + b with any invertible A, if W, mu, m and Lambda
follow. The data therefore identify weights and labels (up to their order), the clusters' means and
covariances *of rows*, the span of W and the noise. Where the latents are, and their scale along each
direction, the prior alone settles; it is indifferent to rotation (an ARD prior prefers orthogonal columns).
What a fit shows is in latents of mean 0 and covariance 1, as those of PPCA are: ``loadings``, ``loc``, and
the stored ``latents`` S^-1/2 (z - E[z]), which only a rotation can change.

Departures. Baek et al. maximise the likelihood and make W'W = I afterwards; here parameters have priors,
conjugate given the latents: for clusters the default of `zoo.conjugate.GaussianWishart` for latents of
covariance I, but for nu0, for the rest those of `zoo.PPCA`. Yu has the model in words, with isotropic noise.

References: Baek, McLachlan and Flack (2010), IEEE PAMI 32; Yu (2006), section 8.1, with a Gaussian mixture
"in the latent variable space of a PPCA model".
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import deterministic, sample

from zoo.coordinates import Unit
from zoo.dirichlet_process import WeightPrior
from zoo.fields import choice, flag, numbers, positive, pseudo_counts, scale_of, size, size_of
from zoo.linear_gaussian.clustered import ClusteredAnswers, ClusteredRows, check_degrees, unit_clusters
from zoo.linear_gaussian.units import BROAD, NOISE_RATE, PLACE, ProjectionUnits, of_prior
from zoo.mixture import Mixture
from zoo.model import Model, Roles, Table
from zoo.programs import local
from zoo.shapes import Rows


@dataclass(frozen=True, eq=False)
class MCFA(ProjectionUnits, Model):
    """A mixture of factor analysers with common loadings: a Gaussian mixture in the latent space of PPCA.

    Attributes:
        num_components: M, the number of clusters or the truncation of the Dirichlet process.
        num_latents: K, fewer than rows and than features.
        concentration, weight_prior: of the weights, as of `zoo.Mixture`.
        loading_prior: ``"gaussian"`` or ``"ard"`` (a precision for each latent, which can switch it off).
        noise: ``"isotropic"`` (one variance) or ``"diagonal"`` (one a feature).
        mean_precision: beta0 > 0, the number of rows that the prior mean of a cluster is worth.
        degrees_of_freedom: nu0 > K - 1; None: K + 2, the least whole number with a mean covariance.
        loading_variance: v_w, squared units of the data; this and the others are as of `zoo.PPCA`.
        ard_concentration, ard_rate: a0 and b0, squared units, of the precisions of the loadings.
        loc_mean, loc_variance: of the prior of mu, shape (num_features,), and v_mu, squared units.
        noise_concentration, noise_rate: a and b, squared units, of the noise.
        standardize: whether the program is of columns in their standard deviations.
        column_scale: s, shape (num_features,), with ``standardize``; None: read off the observed cells.
        num_features: D; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).normal(size=(50, 4))
        >>> zoo.MCFA.from_data(x, num_components=3, num_latents=2).loc_mean.shape
        (4,)
    """

    num_components: int = size(10)
    num_latents: int = size(2)
    concentration: Array | dist.Distribution = pseudo_counts(1.0, prior=(dist.Gamma,))
    weight_prior: str = choice("dirichlet", "stick_breaking")
    loading_prior: str = choice("gaussian", "ard")
    noise: str = choice("isotropic", "diagonal")
    mean_precision: Array = positive(0.01)
    degrees_of_freedom: Array | None = numbers(otherwise=lambda m: m.num_latents + 2, also=check_degrees)
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
        """Weights and clusters, loadings, mean and noise; then label, latents and cells of each row."""
        d, k, alpha = self.num_features, self.num_latents, self.concentration
        alpha = sample("concentration", alpha) if self.mixture.has_random_concentration else alpha
        log_weights = self.weights.sample(alpha)
        clusters = self.mixture.components.sample(self.num_components)
        scale = jnp.sqrt(self.loading_variance)
        if self.loading_prior == "ard":
            precisions = dist.Gamma(self.ard_concentration, self.ard_rate).expand([k]).to_event(1)
            scale = 1 / jnp.sqrt(sample("loading_precision", precisions))
        loadings = sample("raw_loadings", dist.Normal(0.0, scale).expand([d, k]).to_event(2))
        loc = sample("raw_loc", dist.Normal(self.loc_mean, jnp.sqrt(self.loc_variance)).to_event(1))
        noise = dist.InverseGamma(self.noise_concentration, self.noise_rate)
        by_column = (d,) if self.noise == "diagonal" else ()
        noise = sample("noise_variance", noise.expand(by_column).to_event(len(by_column)))
        row = ClusteredRows(log_weights, clusters["locs"], clusters["precisions"], loadings, loc, noise)
        deterministic("loadings", row.standard.loadings)
        deterministic("loc", row.standard.loc)
        with rows:
            c = local("assignments", dist.Categorical(logits=log_weights), enumerate="parallel")
            z = local("raw_latents", lambda: self.mixture.components.likelihood_of(clusters, c))
            return sample("x", row.given(z), obs=x)

    data = (Table("x", varies=True, needs=2, latents=("columns", "rows")),)
    dims = {
        "concentration": (),
        "stick_decays": ("stick",),
        "stick_fractions": ("stick",),
        "weights": ("component",),
        "precisions": ("component", "latent", "latent_2"),
        "covariances": ("component", "latent", "latent_2"),
        "locs": ("component", "latent"),
        "raw_loadings": ("feature", "latent"),
        "raw_loc": ("feature",),
        "loadings": ("feature", "latent"),
        "loc": ("feature",),
        "noise_variance": (),
        "loading_precision": ("latent",),
        "assignments": ("observation",),
        "responsibilities": ("observation", "component"),
        "num_occupied": (),
        "raw_latents": ("observation", "latent"),
        "latents": ("observation", "latent"),
        "latents_covariance": ("observation", "latent", "latent_2"),
        "x": ("observation", "feature"),
    }
    symmetries = ("labels", "rotation")
    roles = Roles(cluster="assignments", weight="weights", latent="latents", loadings={"loadings": ""})
    answers = ClusteredAnswers
    methods = ("vb", "gibbs", "nuts", "hmc", "svi", "map", "tempered")

    @property
    def units(self) -> Mapping[str, Unit]:
        """Rows, means, loadings, and variances; latents have none."""
        units = super().units
        return {**units, "raw_loadings": units["loadings"], "raw_loc": units["loc"]}

    @property
    def mixture(self) -> Mixture:
        """The mixture that the latents come from; they have no unit."""
        clusters = unit_clusters(self.num_latents, self.mean_precision, self.degrees_of_freedom)
        mixture = Mixture(clusters, self.num_components, weight_prior=self.weight_prior)
        return mixture.replaced(concentration=self.concentration)

    @property
    def weights(self) -> WeightPrior:
        """The prior of the weights."""
        return self.mixture.weights
