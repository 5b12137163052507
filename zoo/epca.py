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

Units. The program above is stated in coordinates of the cells' own where they have a unit. Gaussian cells of
unknown variance are (x - loc_mean) / u there, with default priors: u is the root of the columns' mean
variance and ``loc_mean`` are their means; the noise has variance phi ~ InverseGamma(1, 1). With
``standardize``, in mixed tables too, every such column has its own u_d, its standard deviation, and phi has
no unit. Exponential and gamma cells are x times ``natural_unit``, a / mean of each column, and their natural
parameters are divided by it. Scores then do not depend on the unit of the table; loadings, means, natural
parameters, the noise (but with ``standardize``) and predictions are in the units of the data. Variances that
are given, but with ``standardize``, are in the units of the data.

Nothing is rescaled for other families, whose natural parameters have no unit, for known noise variances, for
Gaussian columns of given mixed families without ``standardize``, or for beta > 0, where the kernel's
pseudo-data have units. Natural parameters of negative binomial cells, and of exponential and gamma cells in
mixed tables or with beta > 0, lie close to zero where means are large: there ``natural_unit``, the size that
they have at the column's mean, multiplies the rows of V and the mu of the program.

The latents cannot be integrated out, so they are sites whether or not the program is ``explicit``.

Departures from the source. beta = 1, which has no integral, is for point estimates only. The conjugate kernel
sees the whole Theta, mean included.

References: Virtanen (2010), chapters 3 and 5; Mohamed et al. (2008); Collins, Dasgupta and Schapire (2001).
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import sample

from zoo.exponential_family import Family, as_family
from zoo.exponential_family.answers import EPCAAnswers
from zoo.exponential_family.cells import FamilyCells, cells_of, in_sizes, sample_view_parameters
from zoo.exponential_family.conjugate_loadings import ConjugateLoadings
from zoo.exponential_family.joint_prior import joint_prior_factor
from zoo.exponential_family.natural_params import LowRank
from zoo.exponential_family.one_table import OneTable
from zoo.exponential_family.projections import FACTS
from zoo.fields import Given, flag, numbers, part, positive, size, size_of
from zoo.model import ANY, Roles, Table
from zoo.programs import local
from zoo.shapes import Rows, Values


@dataclass(frozen=True, eq=False)
class EPCA(OneTable):
    """Exponential-family PCA with Gaussian priors (``beta=0``) or the joint beta-prior.

    Attributes:
        family: one of `zoo.exponential_family`, its name, or a tuple with one for each column; ``"gaussian"``
            has noise of known variance 1, `Gaussian(noise_variance=None)` unknown noise. ``"auto"``:
            bernoulli for an array; what the columns of a DataFrame hold (`zoo.intake.families`).
        num_latents: K.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance, loading_variance: sigma_U^2 > 0 and sigma_V^2 > 0.
        loc_variance: prior variance of the mean of natural parameters.
        loc_mean: origin of the cells, a number or shape (num_features,); given with `unit`.
        unit: u > 0 of Gaussian cells of unknown noise (see "Units"), with ``standardize`` shape
            (num_features,) and 1 for other cells; None: read off the data with `loc_mean`, or there is none.
        conjugate: (lam, nu) of the kernel (with beta > 0); None: lam = 0.1, of exponential and gamma cells
            nu = 0.1, and the other such that its mean is that of the cells (of each column's family).
        ard: whether each latent has a precision of its loadings, to switch it off; with ``beta=0`` only.
        ard_concentration, ard_rate: of the precisions' gamma prior.
        natural_unit: sizes of natural parameters (see "Units"), one number or one for each of a row; None: 1,
            or of exponential, gamma and negative binomial columns read off the data.
        standardize: whether each column of Gaussian cells of unknown noise has a `unit` of its own, its
            standard deviation: for columns in different units; with ``beta=0`` only. Always where
            ``family="auto"`` finds such columns beside others, which share no unit.
        num_features: D; read off the data.
        conjugate_loadings: (lam, nu) of the conjugate prior of the loadings, in cells: their sum and their
            number; or shape (num_features, 2), both for each column. None: loadings are normal. For
            Bernoulli, binomial, Poisson and Gaussian cells of known noise, with ``beta=0``.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).integers(0, 2, size=(20, 5))
        >>> zoo.EPCA.from_data(x, family="bernoulli", num_latents=2).num_features
        5
    """

    family: Given[Family | str, Family] = part("auto", convert=as_family, families=True)
    num_latents: int = size(2)
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
    natural_unit: Array | None = positive(**FACTS["natural_unit"])
    standardize: bool = flag(inside=False)
    num_features: int | None = size_of("x")
    conjugate_loadings: Array | None = None

    def program(self, x: Rows | None, rows: numpyro.plate) -> Rows:
        """Loadings, means and what else a column has; then the latents and the cells of each row."""
        d, k, sizes = self.num_features, self.num_latents, self.param_sizes
        scale = jnp.sqrt(self.entry_variance)
        if self.ard:
            precisions = dist.Gamma(self.ard_concentration, self.ard_rate).expand([k]).to_event(1)
            scale = scale / jnp.sqrt(sample("loading_precision", precisions))
        entries = dist.Normal(0.0, scale).expand([self.family.num_params(d), k]).to_event(2)
        loadings = in_sizes(entries, sizes)
        if self.has_conjugate_loadings:
            pairs = jnp.broadcast_to(self.conjugate_loadings, (d, 2))
            loadings = ConjugateLoadings(self.family, pairs, k)
        values = {"loadings": sample("loadings", loadings)}
        values |= sample_view_parameters(self.family, d, self.loc_variance, natural_unit=sizes)
        with rows:
            z = dist.Normal(0.0, jnp.sqrt(self.entry_variance)).expand([k]).to_event(1)
            values["latents"] = local("latents", z, sums_out=False)
            if self.has_kernel:
                joint_prior_factor(self.family, self.low_rank(values), self.beta, self.conjugate)
            return sample("x", self.cells(values), obs=x)

    data = (Table("x", ANY, needs=2, most_latents=("columns", "rows")),)
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
    methods = ("vb", "map", "gibbs", "nuts", "hmc", "svi", "tempered")
    roles = Roles(latent="latents", loadings={"loadings": ""})
    answers = EPCAAnswers

    # What the program is made of

    @property
    def has_conjugate_loadings(self) -> bool:
        """Whether loadings have their conjugate prior."""
        return self.conjugate_loadings is not None

    @property
    def entry_variance(self) -> Array:
        """Prior variance of an entry of U; of V too, but where loadings have their conjugate prior."""
        return self.latent_variance if self.has_conjugate_loadings else super().entry_variance

    @property
    def param_sizes(self) -> Array | None:
        """In which the loadings and means of each natural parameter are, shape (num_params,); None: one."""
        sizes = self.natural_unit
        return (
            None if sizes is None else jnp.broadcast_to(sizes, (self.family.num_params(self.num_features),))
        )

    def cells(self, values: Values) -> FamilyCells:
        """The distribution of the rows at given values of the sites, in the program's coordinates.

        Args:
            values: of the sites, the latents among them.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_features,).
        """
        return cells_of(self.family, self.low_rank(values), values)

    def low_rank(self, values: Values) -> LowRank:
        """The natural parameters by their factors.

        Args:
            values: of the sites, the latents among them.

        Returns:
            The factors; made whole, flat, of shape (num_observations, num_params).
        """
        return LowRank(values["latents"], values["loadings"], values.get("loc", 0.0))

    @property
    def _is_inverse(self) -> bool:
        """Whether each column's natural parameters have the inverse unit of its cells, and are in sizes."""
        family = self.family
        is_scaled = family.theta_is_negative and family.cell_units == "scale" and not family.is_mixed
        return is_scaled and self.natural_unit is not None and not self.has_kernel
