r"""Paired exponential-family projections: supervised EPCA, EPLS, ECCA, supervised ECCA, any number of views.

Generative process, in the letters of Virtanen (2010, chapter 4), views counted from 0::

    V_v[d]   ~ Normal(0, sigma_V^2 I),   over the latents that view v sees; zero for the others
    mu_v     ~ Normal(0, loc_variance)
    u_n      ~ Normal(0, sigma_U^2 I_K)
    theta_vn = V_v u_n + mu_v
    y_vnd    ~ the exponential family of view v with natural parameter theta_vnd

Latents: first the ``num_shared`` ones shared by all views, then those specific to view 0, to view 1, ...

* SEPCA: all latents are shared (`Paired.sepca`).
* EPLS: the targets y_0 see shared latents only, covariates also have specific latents (`Paired.epls`).
* ECCA: every view has specific latents besides the shared ones (`Paired.ecca`).
* SECCA: ECCA with targets y_0 that have no specific latents (`Paired.secca`).

With 0 < beta < 1 the density of U and V is multiplied by the conjugate kernel at every theta
(`zoo.exponential_family.joint_prior`), and the prior has no known normaliser.

With ``specific="full_covariance"`` (the model of GiBECCA, section 6.2.3) all latents are shared and every
view has a full covariance instead of specific latents::

    Psi_v^-1 ~ Wishart(nu_v, S_v^-1),  S_v = covariance_scale I,  nu_v = D_v + covariance_degrees
    theta_vn ~ Normal(V_v u_n + mu_v, Psi_v)

(the same as Psi_v ~ inverse-Wishart(S_v, nu_v)). A Gaussian view of unknown noise variance is then
y_v ~ Normal(V_v u_n + mu_v, Psi_v) itself: Bayesian CCA (Klami and Kaski 2007).

=========  ==========================  =============  =====================================================
letter     site                        shape          support
=========  ==========================  =============  =====================================================
V_v        ``loadings_0``, ...         (D_v, K)       real; exactly zero for latents of other views
mu_v       ``loc_0``, ...              (D_v,)         real; not with `Ordinal`
u_n        ``latents``                 (N, K)         real
1/gamma_k  ``loading_precision``       (K,)           positive; a site only with ``ard=True``
phi_v      ``noise_variance_0``, ...   ()             positive; a Gaussian view of unknown variance, low rank
           ``cut_points_0``, ...       (D_v, C - 1)   rising; `Ordinal` views, flat as in `zoo.EPCA`
Psi_v^-1   ``specific_precision_0``    (D_v, D_v)     positive definite; ``"full_covariance"`` only
theta_v    ``natural_params_0``, ...   (N, D_v)       real; ``"full_covariance"`` only, but Gaussian views
y_v        ``y_0``, ``y_1``, ...       (N, D_v)       data; NaN is a missing cell, a row of NaN a missing row
=========  ==========================  =============  =====================================================

Units, as in `zoo.EPCA`. The program above is stated in coordinates of each view's own where its cells have a
unit: with default priors a view of Gaussian cells of unknown variance is (y - loc_mean) / u_v there, u_v the
root of its columns' mean variance, and phi_v ~ InverseGamma(1, 1). With ``standardize``, and so where mixed
families are read off a view, every such column has its own u_vd, its standard deviation, and phi_v has no
unit. Loadings, means, covariances and predictions are in the units of the data; variances that are given,
but with ``standardize``, too. The other views are as they are. ``natural_unit`` multiplies the rows of V_v
and the mu_v of the program.

With ``view_weights`` alpha the log density of the cells of view v is multiplied by alpha_v (26). A fixed
prior is then 1 / alpha_v times stronger for that view; a warning is given if it dominates the data.

Symmetry: rotations within the shared latents and within those of each view. Only the product of the two
variances matters for Theta, so both sites are drawn with the same variance. EPLS with one target column has
the maxima of SEPCA with the same total number of latents (rotate until the target lies on the first axis),
but another posterior, because its target has fewer loadings.

Departures from the source. beta = 1 is for point estimates only. The kernel sees the whole Theta, mean
included. The source's Gibbs sampler for the full-covariance model does not target its posterior; this program
is the intended model.

References: Virtanen (2010), chapters 4 and 6; Guo (2009), SEPCA; Rish et al. (2008), view weights; Bach and
Jordan (2005), probabilistic CCA; Klami and Kaski (2007), Bayesian CCA.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import handlers, sample

from zoo.coordinates.of_models import part_weights
from zoo.exponential_family import Family
from zoo.exponential_family.cells import cells_of, sample_view_parameters
from zoo.exponential_family.joint_prior import joint_prior_factor
from zoo.exponential_family.natural_params import LowRank, padded
from zoo.exponential_family.paired_answers import PairedAnswers
from zoo.exponential_family.projections import FACTS
from zoo.exponential_family.several_tables import VIEW_FACTS, SeveralTables
from zoo.fields import Given, choice, flag, numbers, part, positive, size, static
from zoo.linear_gaussian.rows import DenseRows
from zoo.model import ANY, Roles, Table
from zoo.programs import local
from zoo.shapes import ParamCovariance, Values, View


@dataclass(frozen=True, eq=False)
class Paired(SeveralTables):
    """Several tables with the same rows, explained by shared latents and latents of single tables.

    Attributes:
        families: of each view as `zoo.EPCA.family`; ``"gaussian"`` has noise of known variance 1.
        num_shared: K_S, latents that all views see; with 0 the views are independent.
        num_specific: K_v of each view; None: 0, or 1 for wide views where families are read off the columns.
        specific: ``"low_rank"``: the latents above; ``"full_covariance"``: a covariance for each view.
        view_weights: alpha_v > 0 of each view, or one number for all.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance, loading_variance, loc_variance: sigma_U^2, sigma_V^2, and that of the means of theta.
        loc_mean: origin of the cells, shape (columns of all views,); given with `unit`.
        unit: u (see "Units"), shape (views,), with ``standardize`` (columns of all views,); 1 for others.
        conjugate: (lam, nu) of the kernels, one pair or one for each column of all views; None: lam = 0.1 and
            nu such that the kernel's mean is that of the view's cells. Not used with ``beta=0``.
        ard: whether each latent has a precision of its loadings; with ``beta=0`` only.
        ard_concentration, ard_rate: of the precisions' gamma prior.
        covariance_scale, covariance_degrees: of S_v and nu_v > D_v - 1; at 2 the mean of Psi_v is S_v.
        natural_unit: sizes of natural parameters, as of `zoo.EPCA`; one, or one for each of all views.
        standardize: whether each Gaussian column of unknown noise has its own `unit`; with ``beta=0`` only.
            Always where ``"auto"`` finds such columns beside others, which share no unit.
        num_features: D_v of each view; read off the data.

    Example:
        >>> import zoo
        >>> zoo.Paired.ecca(("bernoulli", "bernoulli"), num_shared=1, num_specific=(1, 2)).num_latents
        4
    """

    families: Given[tuple[Family | str, ...], tuple[Family, ...]] = part(
        ("auto", "auto"), **VIEW_FACTS["families"]
    )
    num_shared: int = size(1, 0)
    num_specific: tuple[int, ...] | None = static(None, **VIEW_FACTS["num_specific"])
    specific: str = choice("low_rank", "full_covariance")
    view_weights: Array = positive(1.0, **VIEW_FACTS["view_weights"])
    beta: Array = numbers(0.0, proper_with="=0")
    latent_variance: Array = positive(1.0)
    loading_variance: Array = positive(1.0)
    loc_variance: Array = positive(100.0)
    loc_mean: Array | None = numbers(**FACTS["loc_mean"])
    unit: Array | None = positive(**FACTS["unit"])
    conjugate: Array | None = part(**FACTS["conjugate"])
    ard: bool = flag()
    ard_concentration: Array = positive(1.0)
    ard_rate: Array = positive(1.0)
    covariance_scale: Array = positive(1.0)
    covariance_degrees: Array = numbers(2.0, above=-1)
    natural_unit: Array | None = positive(**FACTS["natural_unit"])
    standardize: bool = flag(inside=False)
    num_features: tuple[int, ...] | None = static(None, **VIEW_FACTS["num_features"])

    def program(self, *views: View | None, rows: numpyro.plate) -> tuple[View, ...]:
        """Loadings, means and noise of every view; then the latents and the cells of each row."""
        k, weights = self.num_latents, part_weights(self)
        scale, values = jnp.sqrt(self.entry_variance), {}
        if self.ard:
            precisions = dist.Gamma(self.ard_concentration, self.ard_rate).expand([k]).to_event(1)
            scale = scale / jnp.sqrt(sample("loading_precision", precisions))
        for v, (family, d) in enumerate(zip(self.families, self.num_features, strict=True)):
            sizes = self.param_sizes(v)
            values[f"loadings_{v}"] = sample(f"loadings_{v}", self.view_loadings(v, scale, sizes))
            has_noise = self.specific == "low_rank"
            values |= sample_view_parameters(family, d, self.loc_variance, f"_{v}", has_noise, sizes)
            if self.specific == "full_covariance":
                values[f"specific_precision_{v}"] = sample(f"specific_precision_{v}", self.wishart(v))
        found = []
        with rows:
            z = dist.Normal(0.0, jnp.sqrt(self.entry_variance)).expand([k]).to_event(1)
            values["latents"] = local("latents", z, sums_out=False)
            for v, (family, y) in enumerate(zip(self.families, views, strict=True)):
                theta = self.mean_theta(v, values)
                if self.has_noisy_params(v):
                    factor = jnp.linalg.cholesky(self.specific_covariance(v, values))
                    noisy = dist.MultivariateNormal(theta.whole(), scale_tril=factor, validate_args=False)
                    values[f"natural_params_{v}"] = local(f"natural_params_{v}", noisy, sums_out=False)
                if self.has_kernel:
                    joint_prior_factor(family, theta, self.beta, self.kernel_of(v), f"joint_prior_{v}")
                with handlers.scale(scale=weights[v]):
                    found.append(sample(f"y_{v}", self.rows_of(v, values), obs=y))
        return tuple(found)

    data = (
        Table("y_*", ANY, optional=True, needs=2, why="one row has no correlation", weight="view_weights"),
    )
    dims = {
        "loadings_*": ("feature_*", "latent"),
        "loc_*": ("feature_*",),
        "latents": ("observation", "latent"),
        "loading_precision": ("latent",),
        "noise_variance_*": (),
        "cut_points_*": ("feature_*", "cut"),
        "specific_precision_*": ("feature_*", "feature_*_2"),
        "natural_params_*": ("observation", "feature_*"),
        "y_*": ("observation", "feature_*"),
    }
    symmetries = ("rotation", "sign")
    methods = ("vb", "map", "gibbs", "nuts", "hmc", "svi", "closed_form", "tempered")
    answers = PairedAnswers

    # What the program is made of

    @property
    def num_latents(self) -> int:
        """The number K of latents, shared and specific."""
        return self.num_shared + sum(self.num_specific)

    @property
    def roles(self) -> Roles:
        """Loadings of each view with the view's suffix."""
        suffixes = (f"_{v}" for v in range(len(self.families)))
        return Roles(latent="latents", loadings={f"loadings{suffix}": suffix for suffix in suffixes})

    def mean_theta(self, v: int, values: Values) -> LowRank:
        """The mean V_v u + mu_v of natural parameters, by its factors.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            The factors; made whole, flat, of shape (num_observations, num_params).
        """
        return LowRank(values["latents"], values[f"loadings_{v}"], values.get(f"loc_{v}", 0.0))

    def specific_covariance(self, v: int, values: Values) -> ParamCovariance:
        """The covariance Psi_v of a view.

        Args:
            v: the view, from 0.
            values: of the sites; ``specific_precision_v`` is read.

        Returns:
            Shape (num_params, num_params).
        """
        return jnp.linalg.inv(values[f"specific_precision_{v}"])

    def view_loadings(self, v: int, scale: Array, sizes: Array | None) -> dist.Distribution:
        """The prior of the loadings of a view, zero for the latents of other views.

        Args:
            v: the view, from 0.
            scale: of the loadings of each latent, shape (num_latents,) or ().
            sizes: as of `param_sizes`.

        Returns:
            Distribution with event shape (num_params, num_latents).
        """
        columns, k = self.latents_of(v), self.num_latents
        own = jnp.broadcast_to(scale, (k,))[jnp.asarray(columns, int)]
        entries = dist.Normal(0.0, own).expand([self.num_params[v], len(columns)]).to_event(2)
        return padded(entries, columns, k, None if sizes is None else sizes[:, None])

    def wishart(self, v: int) -> dist.Distribution:
        """The prior of the precision of a view.

        Args:
            v: the view, from 0.

        Returns:
            Distribution with event shape (num_params, num_params).
        """
        size = self.num_params[v]
        rate = self.covariance_scale * jnp.eye(size)
        return dist.Wishart(size + self.covariance_degrees, rate_matrix=rate, validate_args=False)

    def rows_of(self, v: int, values: Values) -> dist.Distribution:
        """The distribution of the rows of a view at given values of the sites.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (features of the view,).
        """
        mean = self.mean_theta(v, values)
        if self.has_dense_rows(v):
            return DenseRows(mean.whole(), self.specific_covariance(v, values))
        return cells_of(self.families[v], values.get(f"natural_params_{v}", mean), values, f"_{v}")
