r"""Diversified mixture of exponential-family PCAs (DEPCAM), its plain mixture (SePCA-MM) and one PCA (SePCA).

Generative process, in the letters of Qiao, Liu, Yu, Bian and Tao, "Repulsive mixture models of exponential
family PCA for clustering"::

    U_k     ~ uniform on the D x d matrices with orthonormal columns, k = 1..K
    phi_kj  ~ Laplace(1 / sparsity)                         scale_prior="laplace"
    phi_kj  ~ Normal(0, 1 / zeta_kj),  zeta_kj ~ Gamma      scale_prior="ard"
    b_k     ~ Normal(0, offset_variance)
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

Departures from the source. The offset (without it a pattern and its complement are the same component). Its
single lambda weighs both the determinant and the l1 norm of phi: here they are apart, ``repulsion`` and
``sparsity``; its lambda, xi, rho are ``DEPCAM.with_single_weight``. The kernel has a unit diagonal, which
changes the objective by a constant. SePCA's Gaussian columns with a precision each are represented by the
precisions of their scales, with a Gamma prior (``"ard"``, `DEPCAM.sparse_epca`).

Zero sparsity has no optimum over point values of the latents: phi -> c phi, y -> y / c raises log p(y) for
ever. It is allowed with a warning; samplers refuse it, because the posterior is improper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.argument_checks import check_num_parts
from zoo.depcam_checks import check_fields, check_new_rows, check_table, is_zero, rows_to_draw, warn_of_drift
from zoo.depcam_rows import DEPCAMRows, orthonormal
from zoo.dirichlet_process import DirichletAllocation, StickBreaking
from zoo.dpp import repulsion_factor
from zoo.exponential_family import Family, Gaussian, as_family
from zoo.family_cells import FamilyCells
from zoo.local_pca import (
    ComponentRows,
    SparseScales,
)
from zoo.model import Model, in_current_precision, static
from zoo.suitable_fields import (
    check_not_sparse,
    family_of,
    kind_of_cells,
    natural_param_widths,
    suitable_num_latents,
)
from zoo.validation import as_matrix

__all__ = ["DEPCAM"]

SCALE_RATE = 0.1  # of the prior of scales beside numbers, in standard deviations of the data


@dataclass(frozen=True, eq=False)
class DEPCAM(DEPCAMRows, Model):
    """A mixture of exponential-family PCAs whose components repel each other.

    Attributes:
        family: a family of `zoo.exponential_family` with one natural parameter a cell, or its name.
        num_components: K.
        num_latents: d, at most D.
        repulsion: weight of log det S, at least 0.
        sparsity: rate of the scales' Laplace prior, at least 0; not used with ``scale_prior="ard"``.
        similarity_scale: rho > 0.
        kernel: ``"angular"`` (the paper's) or ``"subspace"`` (neither signs nor rotations change it).
        offset: whether each component has an offset.
        latents: ``"component"`` or ``"shared"``.
        scale_prior: ``"laplace"`` or ``"ard"``.
        concentration: alpha > 0; with Dirichlet weights each component gets alpha / K. None: K, a flat prior.
        weight_prior: ``"dirichlet"`` or ``"stick_breaking"`` (a truncated Dirichlet process).
        offset_variance: prior variance of offsets.
        ard_concentration: of the precisions' Gamma prior.
        ard_rate: of the precisions' Gamma prior.
        num_features: D; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).integers(0, 2, size=(20, 5))
        >>> zoo.DEPCAM.from_data(x, num_components=2, num_latents=1).num_features
        5
    """

    family: Family | str = "bernoulli"
    num_components: int = static(default=3)
    num_latents: int = static(default=2)
    repulsion: Array = 1.0
    sparsity: Array = 0.1
    similarity_scale: Array = 0.1
    kernel: str = static(default="angular")
    offset: bool = static(default=True)
    latents: str = static(default="component")
    scale_prior: str = static(default="laplace")
    concentration: Array | None = None
    weight_prior: str = static(default="dirichlet")
    offset_variance: Array = 100.0
    ard_concentration: Array = 1.0
    ard_rate: Array = 1.0
    num_features: int | None = static(default=None)

    dims = {
        "bases": ("component", "feature", "latent"),
        "carriers": ("component", "feature", "latent"),
        "scales": ("component", "latent"),
        "scales_precision": ("component", "latent"),
        "offsets": ("component", "feature"),
        "weights": ("component",),
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
    methods = ("em", "vb", "map", "nuts", "hmc", "svi")
    score_dims = ("observation", "component")
    cluster_site = "assignments"
    weight_site = "weights"
    subspace_sites = ("bases", "scales")

    def __call__(self, x: Array | None = None, *, num_observations: int | None = None) -> Array:
        """The NumPyro program: with ``x`` it conditions, without it draws rows.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            ``x``, or the rows drawn, shape (num_observations, num_features).
        """
        num_rows = rows_to_draw(self, num_observations) if x is None else x.shape[0]
        num_features = self.num_features if x is None else x.shape[1]
        prior = in_current_precision(self)
        sizes = self.num_components, num_features, self.num_latents
        log_weights = self.weights.sample(prior.concentration)
        carriers = numpyro.sample("carriers", dist.Normal(0.0, 1.0).expand(sizes).to_event(3))
        values = {"bases": numpyro.deterministic("bases", orthonormal(carriers))}
        values["scales"] = self._sample_scales(prior)
        norms = jnp.sum(values["scales"] ** 2, axis=-1)
        numpyro.deterministic("loading_norms", -jnp.sort(-norms))  # trace W_k W_k', largest first
        if self.offset:
            offsets = dist.Normal(0.0, jnp.sqrt(prior.offset_variance)).expand(sizes[:2]).to_event(2)
            values["offsets"] = numpyro.sample("offsets", offsets)
        if self.family.learns_noise:
            values["noise_variance"] = numpyro.sample("noise_variance", dist.InverseGamma(1.0, 1.0))
        if self.num_components > 1:
            repulsion_factor("repulsion", prior.similarity(values), prior.repulsion)
        draws_all = x is None or self.draw_locals
        labels = dist.Categorical(logits=log_weights)
        with numpyro.plate("observations", num_rows):
            if draws_all:
                assignments = numpyro.sample("assignments", labels, infer={"enumerate": "parallel"})
            if draws_all or not self.integrates_latents:
                shape = self.latents_shape(num_rows)[1:]
                y = dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))
                values["latents"] = numpyro.sample("latents", y)
            if not draws_all:
                rows = ComponentRows(prior, values, log_weights, num_rows, num_features)
                return numpyro.sample("x", rows, obs=x)
            local = prior.local(values)
            theta = local.natural_params(values["latents"])
            own = jnp.take_along_axis(theta, assignments[..., None, None], axis=1)[:, 0]
            return numpyro.sample("x", FamilyCells(local.family, own), obs=x)

    def _sample_scales(self, prior: Self) -> Array:
        shape = (self.num_components, self.num_latents)
        if self.scale_prior == "laplace":
            return numpyro.sample("scales", SparseScales(prior.sparsity, shape))
        precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand(shape).to_event(2)
        precision = numpyro.sample("scales_precision", precisions)
        return numpyro.sample("scales", dist.Normal(0.0, 1.0 / jnp.sqrt(precision)).to_event(2))

    # Sizes and checks

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with its size read off the data; ``overrides`` are fields."""
        given = {name: value for name, value in overrides.items() if value is not None}
        return cls(**({"num_features": as_matrix(x).shape[1]} | given))

    @classmethod
    def with_single_weight(cls, weight: float, quality: float, **fields: Any) -> Self:
        """The paper's parametrisation.

        (det L)^lambda = det(S)^lambda exp(-lambda xi sum |phi|): repulsion lambda, sparsity lambda xi.

        Args:
            weight: its lambda.
            quality: its xi.
            **fields: the other fields.

        Returns:
            The model.
        """
        return cls(repulsion=weight, sparsity=weight * quality, **fields)

    @classmethod
    def sparse_epca(cls, x: Any, num_latents: int, **fields: Any) -> Self:
        """SePCA: one PCA whose columns are N(0, I / alpha_j), alpha by type-II maximum likelihood.

        With orthonormal bases a column is w_j = phi_j u_j, and normal columns of D features with precision
        alpha_j have, up to a constant, the density of normal scales with a Gamma((D + 1) / 2, 0) precision:
        the most probable precision is Bishop's (1999) estimate D / |w_j|^2. That columns are orthogonal costs
        nothing: for given W W' such columns make the product of |w_j| least (Hadamard's inequality). The
        Gamma's rate, 1e-3 unless ``ard_rate`` says else, keeps the density of a column that vanishes finite.

        Args:
            x: rows, from which the number of features is read.
            num_latents: d.
            **fields: of the model.

        Returns:
            The model.

        Raises:
            ValueError: as for a model whose fields are outside their domain.
        """
        features = as_matrix(x).shape[1]
        given = {"ard_concentration": (features + 1) / 2, "ard_rate": 1e-3, "repulsion": 0.0} | fields
        return cls.from_data(x, num_components=1, num_latents=num_latents, scale_prior="ard", **given)

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """Family, number of latents, and priors in the units of the data.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        check_num_parts(cls.__name__, len(data), 1)
        check_not_sparse(cls.__name__, data[0])
        kind = kind_of_cells(data[0])
        fields = {"family": family_of(kind), "num_latents": suitable_num_latents(data[0])}
        if kind == "gaussian" and (widths := natural_param_widths(data[0])):
            fields |= {"offset_variance": widths[1], "sparsity": SCALE_RATE / np.sqrt(widths[0])}
        return fields

    def __post_init__(self) -> None:
        """A family's name is the family, and the weights' prior flat if nothing is said."""
        object.__setattr__(self, "family", as_family(self.family))
        if self.concentration is None:
            object.__setattr__(self, "concentration", self.num_components)
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        check_fields(self)

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        self.check_new(x)
        check_table(self, x)

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model."""
        check_new_rows(self, x)

    def caution(self, method: str) -> None:
        """Refuse samplers of an improper posterior; warn point estimates of the drift."""
        warn_of_drift(self, method)

    @property
    def cell_families(self) -> tuple[Family]:
        """The family of the cells."""
        return (self.family,)

    @property
    def integrates_latents(self) -> bool:
        """Whether the program integrates the latents out: of Gaussian cells."""
        return isinstance(self.family, Gaussian)

    @property
    def sums_out_locals(self) -> bool:
        """Whether the density of a row has its latents integrated out exactly."""
        return self.integrates_latents

    @property
    def weights(self) -> DirichletAllocation | StickBreaking:
        """The prior of the weights (one component has no sticks)."""
        if self.weight_prior == "dirichlet" or self.num_components == 1:
            return DirichletAllocation(self.num_components)
        return StickBreaking(self.num_components)

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables."""
        if self.latents == "component":
            return self.dims
        return dict(self.dims) | {"latents": ("observation", "latent")}

    def latents_shape(self, num_rows: int) -> tuple[int, ...]:
        """The shape of the site ``latents``.

        Args:
            num_rows: of the table.

        Returns:
            (num_rows, num_components, num_latents), or without components where latents are shared.
        """
        own = (self.num_components,) if self.latents == "component" else ()
        return (num_rows, *own, self.num_latents)

    @property
    def prior(self) -> str:
        """``"improper"`` at zero sparsity, ``"unnormalised"`` with repulsion, else ``"proper"``."""
        if self.scale_prior == "laplace" and is_zero(self.sparsity):
            return "improper"
        repels = self.num_components > 1 and not is_zero(self.repulsion)
        return "unnormalised" if repels else "proper"
