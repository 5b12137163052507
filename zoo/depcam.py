r"""Diversified mixture of exponential-family PCAs (DEPCAM), its plain mixture (SePCA-MM) and one PCA (SePCA).

Generative process, in the letters of Qiao, Liu, Yu, Bian and Tao, "Repulsive mixture models of exponential
family PCA for clustering"::

    U_k     ~ uniform on the D x d matrices with orthonormal columns, k = 1..K
    phi_kj  ~ Laplace(1 / sparsity)                         scale_prior="laplace"
    phi_kj  ~ Normal(0, 1 / zeta_kj),  zeta_kj ~ Gamma      scale_prior="ard"
    b_k     ~ Normal(offset_mean, offset_variance)
    sigma2  ~ InverseGamma(1, noise_rate)                   Gaussian cells of unknown variance
    pi      ~ Dirichlet(alpha / K, ...)  or a truncated Dirichlet process
    z_n     ~ Categorical(pi),     y_n ~ Normal(0, I_d)
    theta_n = U_k diag(phi_k) y_n + b_k,  k = z_n
    x_n     ~ the exponential family with natural parameter theta_n

and the density of all bases is multiplied by det(S)^repulsion, S the similarities of the components
(`zoo.dpp`): the prior then has no known normaliser.

=======  ====================  =================  =======================================================
letter   site                  shape              support
=======  ====================  =================  =======================================================
U        ``bases``             (K, D, d)          orthonormal columns; a function of the next
         ``carriers``          (K, D, d)          real, normal: U is the Q of its QR, R's diagonal positive
phi      ``scales``            (K, d)             real: a free sign
zeta     ``scales_precision``  (K, d)             positive; with ``scale_prior="ard"`` only
b        ``offsets``           (K, D)             real; with ``offset=True`` only
pi       ``weights``           (K,)               simplex
         ``noise_variance``    ()                 positive; a site only of a Gaussian of unknown variance
z        ``assignments``       (N,)               0..K-1; summed out unless ``explicit``
y        ``latents``           (N, K, d), (N, d)  real; with components, or ``latents="shared"``
x        ``x``                 (N, D)             data; NaN is a missing cell
=======  ====================  =================  =======================================================

Latents. A row has one y. Where a program draws it beside summed-out labels, or an algorithm puts one value
in its place, the value may be one for all components (the paper's) or one for each:
``latents="component"`` draws y_nk for every component, of which the label picks one. Integrated out, both
are the same model. The program with data sums labels out and draws the latents, except for the Gaussian
family, whose latents it integrates out exactly: the mixture of PPCAs (Tipping and Bishop 1999).

Symmetries: labels; the order of the columns of each U_k with phi_k; the signs (U_kj, y_j) and (phi_kj, y_j).
The first sign is no symmetry of the paper's kernel (``"angular"``, with repulsion > 0), which distinguishes U
from -U though both are the same component: repulsion can be bought by flipping signs. ``"subspace"`` cannot.

Units. Gaussian cells of unknown variance (`Gaussian(noise_variance=None)`: mixtures of PPCAs) have default
priors in the units of the data: in v, the mean variance of the columns, and their means. Bases and their
similarities have no unit. ``family="gaussian"`` has noise of *known* variance 1, and priors in its units.
With ``standardize`` the program is of columns of unknown noise divided by their standard deviations s_d, and
v is 1. Bases, scales and ``noise_variance`` are of these, also in a fit: columns are orthonormal there.
Offsets and predictions are in the units of the data. Natural parameters of exponential and gamma cells are
rates, and have the inverse unit.

Departures from the source. The offset (without it a pattern and its complement are the same component). Its
single lambda weighs both the determinant and the l1 norm of phi: here they are apart, ``repulsion`` and
``sparsity``; its lambda, xi, rho are ``DEPCAM.with_single_weight``. The kernel has a unit diagonal, which
changes the objective by a constant. SePCA's Gaussian columns with a precision each are represented by the
precisions of their scales, with a Gamma prior (``"ard"``, `DEPCAM.simple_epca`).

Zero sparsity has no optimum over point values of the latents: phi -> c phi, y -> y / c raises log p(y) for
ever. It is allowed with a warning; samplers refuse it, because the posterior is improper.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro import deterministic, plate, sample

from zoo.dirichlet_process import WeightPrior, weight_prior
from zoo.dpp import SIMILARITIES, repulsion_factor
from zoo.exponential_family import Family, as_family
from zoo.exponential_family.local_pca import ComponentRows, SparseScales, components_of, orthonormal
from zoo.exponential_family.local_pca_answers import LocalPCAAnswers
from zoo.exponential_family.local_pca_fields import FACTS, LEAST_ARD_RATE, LocalPCAFields
from zoo.fields import Given, choice, flag, numbers, part, positive, pseudo_counts, scale_of, size, size_of
from zoo.linear_gaussian.rows import standard_normal
from zoo.model import NUMBERS, Roles, Table
from zoo.programs import local
from zoo.shapes import Rows, Values


@dataclass(frozen=True, eq=False)
class DEPCAM(LocalPCAFields):
    """A mixture of exponential-family PCAs whose components repel each other.

    Attributes:
        family: a family of `zoo.exponential_family` with one natural parameter a cell, or its name. "auto":
            what all columns of a DataFrame hold, else a Gaussian of unknown noise; of an array bernoulli.
        num_components: K.
        num_latents: d, at most D.
        repulsion: weight of log det S, at least 0.
        sparsity: rate of the scales' Laplace prior, at least 0. None: 0.1; of unknown noise 0.1 / root v.
        similarity_scale: rho > 0.
        kernel: ``"angular"`` (the paper's) or ``"subspace"`` (neither signs nor rotations change it).
        offset: whether each component has an offset.
        latents: ``"component"`` or ``"shared"``.
        scale_prior: ``"laplace"`` or ``"ard"``.
        concentration: alpha > 0; with Dirichlet weights each component gets alpha / K. None: K, a flat prior.
        weight_prior: ``"dirichlet"`` or ``"stick_breaking"`` (a truncated Dirichlet process).
        offset_mean: prior mean of offsets, () or (num_features,). None: 0; of unknown noise the columns'.
        offset_variance: prior variance of offsets. None: 100; of unknown noise 100 v.
        ard_concentration, ard_rate: of the precisions' Gamma prior. None: 1; of unknown noise v.
        noise_rate: of the prior of an unknown noise variance. None: v, the mean variance of the columns.
        standardize: whether program and priors, all but `offset_mean`, are of columns in standard deviations.
        column_scale: s, shape (num_features,), with ``standardize``; None: read off the observed cells.
        num_features: D; read off the data.

    Example:
        >>> import zoo
        >>> zoo.DEPCAM.with_single_weight(10.0, 0.2).sparsity
        array(2.)
    """

    family: Given[Family | str, Family] = part("auto", convert=as_family, families=True)
    num_components: int = size(3)
    num_latents: int = size(2)
    repulsion: Array = numbers(1.0, least=0, proper_with="=0 and sparsity > 0")
    sparsity: Array | None = numbers(**FACTS["sparsity"])
    similarity_scale: Array = positive(0.1)
    kernel: str = choice("angular", "subspace")
    offset: bool = flag(True)
    latents: str = choice("component", "shared")
    scale_prior: str = choice("laplace", "ard")
    concentration: Array | None = pseudo_counts(otherwise=lambda m: m.num_components)
    weight_prior: str = choice("dirichlet", "stick_breaking")
    offset_mean: Array | None = numbers(**FACTS["offset_mean"])
    offset_variance: Array | None = positive(**FACTS["offset_variance"])
    ard_concentration: Array = positive(1.0)
    ard_rate: Array | None = positive(**FACTS["ard_rate"])
    noise_rate: Array | None = positive(**FACTS["noise_rate"])
    standardize: bool = flag(inside=False)
    column_scale: Array | None = scale_of()
    num_features: int | None = size_of("x")

    def program(self, x: Rows | None, rows: plate) -> Rows:
        """The parameters of the components; then the label, the latents and the cells of each row."""
        shape = self.num_components, self.num_features, self.num_latents
        log_weights = self.weights.sample(self.concentration)
        carriers = sample("carriers", standard_normal(*shape))
        values = {"bases": deterministic("bases", orthonormal(carriers))}
        if self.scale_prior == "laplace":
            scales = SparseScales(self.sparsity, shape[::2])
        else:
            zeta = dist.Gamma(self.ard_concentration, self.ard_rate).expand(shape[::2]).to_event(2)
            scales = dist.Normal(0.0, sample("scales_precision", zeta) ** -0.5).to_event(2)
        values["scales"] = sample("scales", scales)
        deterministic("loading_norms", -jnp.sort(-jnp.sum(values["scales"] ** 2, axis=-1)))
        if self.offset:
            offsets = dist.Normal(self.offset_mean, jnp.sqrt(self.offset_variance))
            values["offsets"] = sample("offsets", offsets.expand(shape[:2]).to_event(2))
        if self.family.learns_noise:
            values["noise_variance"] = sample("noise_variance", dist.InverseGamma(1.0, self.noise_rate))
        if self.num_components > 1:
            repulsion_factor("repulsion", self.similarity(values), self.repulsion)
        with rows:
            c = local("assignments", dist.Categorical(logits=log_weights), enumerate="parallel")
            y = local("latents", standard_normal(*self.latents_shape), sums_out=self.integrates_latents)
            return sample("x", ComponentRows(components_of(self, values), log_weights, c, y), obs=x)

    data = (Table("x", (*NUMBERS, "count", "yes/no"), one_family=True, needs=2, most_latents=("columns",)),)
    dims = {
        "bases": ("component", "feature", "latent"),
        "carriers": ("component", "feature", "latent"),
        "scales": ("component", "latent"),
        "scales_precision": ("component", "latent"),
        "offsets": ("component", "feature"),
        "weights": ("component",),
        "stick_decays": ("stick",),
        "stick_fractions": ("stick",),
        "noise_variance": (),
        "loading_norms": ("norm_rank",),
        "assignments": ("observation",),
        "responsibilities": ("observation", "component"),
        "num_occupied": (),
        "latents": ("observation", "component", "latent"),
        "x": ("observation", "feature"),
    }
    symmetries = ("labels", "sign")
    methods = ("em", "vb", "map", "nuts", "hmc", "svi", "tempered")
    roles = Roles(
        cluster="assignments",
        weight="weights",
        subspaces=("bases", "scales"),
        scores=("observation", "component"),
    )
    answers = LocalPCAAnswers

    # What the program calls

    @property
    def weights(self) -> WeightPrior:
        """The prior of the weights (one component has no sticks)."""
        return weight_prior(self.weight_prior, self.num_components)

    @property
    def integrates_latents(self) -> bool:
        """Whether the program integrates the latents out, as it does for Gaussian cells."""
        return self.family.log_partition_form == "quadratic"

    @property
    def latents_shape(self) -> tuple[int, ...]:
        """The shape of the latents of a row: (num_components, num_latents), or (num_latents,) if shared."""
        return (self.num_components,) * (self.latents == "component") + (self.num_latents,)

    def similarity(self, values: Values) -> Array:
        """The similarities S of the components.

        Args:
            values: of the sites; ``bases`` is read.

        Returns:
            Shape (num_components, num_components), with a unit diagonal.
        """
        return SIMILARITIES[self.kernel](values["bases"], self.similarity_scale)

    # The papers' parametrisations

    @classmethod
    def with_single_weight(cls, weight: float, quality: float, **fields: Any) -> Self:
        """The model in the paper's parametrisation by one weight lambda and a quality xi.

        `(det L)^lambda = det(S)^lambda exp(-lambda xi sum |phi|)`: repulsion is lambda, sparsity lambda xi.

        Args:
            weight: its lambda.
            quality: its xi.
            **fields: the other fields.

        Returns:
            The model.
        """
        return cls(repulsion=weight, sparsity=weight * quality, **fields)

    @classmethod
    def simple_epca(cls, x: Any, num_latents: int, **fields: Any) -> Self:
        """Simple EPCA (SePCA): one PCA of columns N(0, I / alpha_j), alpha by type-II maximum likelihood.

        With orthonormal bases a column is w_j = phi_j u_j, and normal columns of D features with precision
        alpha_j have, up to a constant, the density of normal scales with a Gamma((D + 1) / 2, 0) precision:
        the most probable precision is Bishop's (1999) estimate `D / |w_j|^2`. Orthogonal columns cost
        nothing: for given W W' such columns make the product of `|w_j|` least (Hadamard's inequality). The
        Gamma's rate, 1e-3 (times v where the noise is unknown) unless ``ard_rate`` says else, keeps the
        density of a column that vanishes finite.

        Args:
            x: rows, from which the number of features is read.
            num_latents: d.
            **fields: of the model.

        Returns:
            The model.

        Raises:
            ValueError: as for a model whose fields are outside their domain.
        """
        own: dict[str, Any] = {"num_components": 1, "scale_prior": "ard", "repulsion": 0.0}
        model = cls.from_data(x, num_latents=num_latents, **own | fields)
        rate = LEAST_ARD_RATE * model.ard_rate
        prior: dict[str, Any] = {"ard_concentration": (model.num_features + 1) / 2, "ard_rate": rate}
        return replace(model, **prior | {name: fields[name] for name in prior.keys() & fields.keys()})
