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
With ``standardize`` each column of such a table is measured in its standard deviation s_d: row d of
U_k diag(phi_k), b_kd and the deviation of the noise are s_d times those of the program above. Bases, scales
and ``noise_variance`` are those of the standardised table, also in a fit: columns are orthonormal there.
Offsets and predictions are in the units of the data.

Departures from the source. The offset (without it a pattern and its complement are the same component). Its
single lambda weighs both the determinant and the l1 norm of phi: here they are apart, ``repulsion`` and
``sparsity``; its lambda, xi, rho are ``DEPCAM.with_single_weight``. The kernel has a unit diagonal, which
changes the objective by a constant. SePCA's Gaussian columns with a precision each are represented by the
precisions of their scales, with a Gamma prior (``"ard"``, `DEPCAM.simple_epca`).

Zero sparsity has no optimum over point values of the latents: phi -> c phi, y -> y / c raises log p(y) for
ever. It is allowed with a warning; samplers refuse it, because the posterior is improper.
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
from zoo.columns import Columns
from zoo.dirichlet_process import MixtureModel, WeightPrior, weight_prior
from zoo.dpp import SIMILARITIES, repulsion_factor
from zoo.exponential_family import Family, as_family, has_unit_noise, local_pca
from zoo.exponential_family.cells import FamilyCells, standard_normals, units_of, without_units
from zoo.exponential_family.expectations import are_steep, rests_on_tail
from zoo.exponential_family.local_pca import ComponentRows, LocalPCA, SparseScales
from zoo.exponential_family.natural_params import RowMode, padded
from zoo.model import TypicalCells, in_current_precision, static
from zoo.shapes import Rows, RowsByComponent
from zoo.suitable_fields import ChoosesFamily, one_family_of_columns

__all__ = ["DEPCAM", "orthonormal"]

CHOICES = {
    "kernel": tuple(SIMILARITIES),
    "latents": ("component", "shared"),
    "scale_prior": ("laplace", "ard"),
    "weight_prior": ("dirichlet", "stick_breaking"),
}
POSITIVE = (
    "similarity_scale",
    "concentration",
    "offset_variance",
    "ard_concentration",
    "ard_rate",
    "noise_rate",
)
START_SCALE = 0.5
SCALE_RATE = 0.1  # default sparsity, over standard deviations
BROAD = 100.0  # default variance of offsets, in variances
LEAST_ARD_RATE = 1e-3  # of SePCA


@dataclass(frozen=True, eq=False)
class DEPCAM(ChoosesFamily, MixtureModel):
    """A mixture of exponential-family PCAs whose components repel each other.

    Attributes:
        family: a family of `zoo.exponential_family` with one natural parameter a cell, or its name;
            ``"gaussian"`` is `Gaussian()`, noise of known variance 1, and a mixture of PPCAs needs
            `Gaussian(noise_variance=None)`. ``"auto"`` is bernoulli for an array; for a DataFrame it is that
            of its columns if they agree, else such a Gaussian.
        num_components: K.
        num_latents: d, at most D.
        repulsion: weight of log det S, at least 0.
        sparsity: rate of the scales' Laplace prior, at least 0; not used with ``scale_prior="ard"``. None:
            0.1; where the noise is unknown 0.1 over root v, v the mean variance of the columns.
        similarity_scale: rho > 0.
        kernel: ``"angular"`` (the paper's) or ``"subspace"`` (neither signs nor rotations change it).
        offset: whether each component has an offset.
        latents: ``"component"`` or ``"shared"``.
        scale_prior: ``"laplace"`` or ``"ard"``.
        concentration: alpha > 0; with Dirichlet weights each component gets alpha / K. None: K, a flat prior.
        weight_prior: ``"dirichlet"`` or ``"stick_breaking"`` (a truncated Dirichlet process).
        offset_mean: prior mean of offsets, a number or shape (num_features,). None: 0; where the noise is
            unknown the columns' means.
        offset_variance: prior variance of offsets. None: 100; where the noise is unknown 100 v.
        ard_concentration: of the precisions' Gamma prior.
        ard_rate: of the precisions' Gamma prior. None: 1; where the noise is unknown v.
        noise_rate: of the noise variance's prior, used where it is unknown. None: v.
        standardize: whether each column is measured in its standard deviation: for columns in different
            units; with a Gaussian of unknown noise only. All priors above but `offset_mean` are then of the
            table whose columns are divided by them, and v is 1.
        column_scale: the columns' scales, shape (num_features,), used with ``standardize``; None: their
            standard deviations over their observed cells.
        num_features: D; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> x = np.random.default_rng(0).integers(0, 2, size=(20, 5))
        >>> zoo.DEPCAM.from_data(x, num_components=2, num_latents=1).num_features
        5
    """

    family: Family | str = "auto"
    num_components: int = static(default=3)
    num_latents: int = static(default=2)
    repulsion: Array = 1.0
    sparsity: Array | None = None
    similarity_scale: Array = 0.1
    kernel: str = static(default="angular")
    offset: bool = static(default=True)
    latents: str = static(default="component")
    scale_prior: str = static(default="laplace")
    concentration: Array | None = None
    weight_prior: str = static(default="dirichlet")
    offset_mean: Array | None = None
    offset_variance: Array | None = None
    ard_concentration: Array = 1.0
    ard_rate: Array | None = None
    noise_rate: Array | None = None
    standardize: bool = static(default=False)
    column_scale: Array | None = None
    num_features: int | None = static(default=None)

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
    relations = {
        "shifted": "no: priors have a unit, but those of unknown noise by default",
        "rescaled": "no: priors have a unit, but those of unknown noise by default",
        "other_units": "no: priors have a unit, but those of unknown noise by default",
        "float32": "same where it ends, to the root of single precision",
    }
    methods = ("em", "vb", "map", "nuts", "hmc", "svi")
    concentration_fields = ("concentration",)
    subspace_sites = ("bases", "scales")

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        by_column = ("columns_rescaled",) if self.standardize else ()
        if name in ("shifted", "rescaled", "other_units", *by_column) and self.family.learns_noise:
            return "same where priors are read off the data, objective up to a constant"
        if name == "float32" and method == "map":
            return "no: there are many optima, and rounding decides which one is reached"
        if name == "fitted_rows" and method == "map":
            return "same in any order; stored are others: those at the joint mode of the latents"
        if name == "fitted_rows" and method == "vb":
            return "same as stored where it ends: the bounds of its cells are those of the last step"
        return super().relation_of(name, method)

    def __call__(self, x: Rows | None = None, *, num_observations: int | None = None) -> Rows:
        """The NumPyro program: with ``x`` it conditions, without it draws rows.

        Args:
            x: data, shape (num_observations, num_features), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            ``x``, or the rows drawn, shape (num_observations, num_features).
        """
        num_rows = self._num_rows(x, num_observations)
        num_features = self.num_features if x is None else x.shape[1]
        prior = in_current_precision(self)
        sizes = self.num_components, num_features, self.num_latents
        log_weights = self.weights.sample(prior.concentration)
        carriers = numpyro.sample("carriers", dist.Normal(0.0, 1.0).expand(sizes).to_event(3))
        values = {"bases": numpyro.deterministic("bases", orthonormal(carriers))}
        unit = self._unit(x)
        values["scales"] = self._sample_scales(unit)
        norms = jnp.sum(values["scales"] ** 2, axis=-1)
        numpyro.deterministic("loading_norms", -jnp.sort(-norms))  # trace W_k W_k', largest first
        if self.offset:
            size = 1.0 if unit is None else unit
            deviation = jnp.sqrt(prior.offset_variance)
            deviation = deviation * prior.column_scale if self.standardize else deviation
            offsets = dist.Normal(prior.offset_mean / size, deviation / size)
            offsets = offsets.expand(sizes[:2]).to_event(2)
            values["offsets"] = numpyro.sample("offsets", _measured_in(unit, offsets))
        if self.family.learns_noise:
            values["noise_variance"] = numpyro.sample(
                "noise_variance", dist.InverseGamma(1.0, prior.noise_rate)
            )
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
            of_label = jnp.take_along_axis(theta, assignments[..., None, None], axis=1)[:, 0]
            return numpyro.sample("x", FamilyCells(local.family, of_label), obs=x)

    def _unit(self, x: Array | None) -> Array | None:
        """The size of natural parameters that must be negative, in which MAP, NUTS and HMC move; None: one.

        The priors are the same with any unit. It is that of the mean of all cells, and one without data.
        """
        if x is None or not self.family.theta_is_negative:
            return None
        return jnp.abs(in_current_precision(self).family.natural(jnp.nanmean(x)))

    def _sample_scales(self, unit: Array | None) -> Array:
        """The scales from their prior, shape (num_components, num_latents)."""
        prior, shape = in_current_precision(self), (self.num_components, self.num_latents)
        size = 1.0 if unit is None else unit
        if self.scale_prior == "laplace":
            scales = SparseScales(prior.sparsity * size, shape)
            return numpyro.sample("scales", _measured_in(unit, scales))
        precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand(shape).to_event(2)
        precision = numpyro.sample("scales_precision", precisions)
        scales = dist.Normal(0.0, 1.0 / (jnp.sqrt(precision) * size)).to_event(2)
        return numpyro.sample("scales", _measured_in(unit, scales))

    def _num_rows(self, x: Array | None, num_observations: int | None) -> int:
        scales = ("column_scale",) if self.standardize else ()
        self.require("sparsity", "offset_mean", "offset_variance", "ard_rate", "noise_rate", *scales)
        if x is not None:
            return x.shape[0]
        reason = "sparsity=0 has a flat prior of the scales, which nothing can be drawn from"
        if self.prior == "unnormalised":
            reason = (
                "repulsion > 0 multiplies the prior by a factor, which drawing from the program would "
                "ignore: inference.extend(tree, 'prior') samples it"
            )
        return self.rows_to_draw(num_observations, "num_features", reason=reason)

    @property
    def prior(self) -> str:
        """``"improper"`` at zero sparsity, ``"unnormalised"`` with repulsion, else ``"proper"``.

        In traced code a repulsion is not known, and not asked for: who draws from a model asks before.
        """
        if self.scale_prior == "laplace" and _is_zero(self.sparsity):
            return "improper"
        is_known = not isinstance(self.repulsion, jax.core.Tracer)
        repels = self.num_components > 1 and is_known and not _is_zero(self.repulsion)
        return "unnormalised" if repels else "proper"

    @property
    def weights(self) -> WeightPrior:
        """The prior of the weights (one component has no sticks)."""
        return weight_prior(self.weight_prior, self.num_components)

    @property
    def cell_families(self) -> tuple[Family]:
        """The family of the cells."""
        return (self.family,)

    @property
    def cell_units(self) -> tuple[str, ...]:
        """Those of the cells of each part."""
        return tuple(family.cell_units for family in self.cell_families)

    @property
    def integrates_latents(self) -> bool:
        """Whether the program integrates the latents out, as it does for Gaussian cells."""
        return self.family.log_partition_form == "quadratic"

    def latents_shape(self, num_rows: int) -> tuple[int, ...]:
        """The shape of the site ``latents``.

        Args:
            num_rows: of the table.

        Returns:
            (num_rows, num_components, num_latents), or without components where latents are shared.
        """
        components = (self.num_components,) if self.latents == "component" else ()
        return (num_rows, *components, self.num_latents)

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """Whether the cells are Gaussian: with one noise variance, in one unit for all columns."""
        return (self.integrates_latents and not self.standardize,)

    @property
    def scale_remedy(self) -> str:
        """`standardize`, which cells of known noise do not have."""
        own = "" if self.family.learns_noise else "family=Gaussian(noise_variance=None) and "
        return f"give {own}standardize=True"

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The columns' scale, with ``standardize``."""
        if not self.standardize or self.column_scale is None:
            return {}
        return dict.fromkeys(("x", "offsets"), (self.column_scale, 0.0))

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """The squared scales of the columns, with ``standardize``."""
        return {"": self.column_scale**2} if self.units else {}

    def in_standard_units(self) -> Self:
        """The plain model of x / column_scale."""
        if not self.units:
            return self
        mean = None if self.offset_mean is None else self.offset_mean / self.column_scale
        return self.replaced(standardize=False, column_scale=None, offset_mean=mean)

    @property
    def unit_noise_parts(self) -> tuple[bool, ...]:
        """Whether the cells are Gaussian with noise of known variance 1."""
        return (has_unit_noise(self.family),)

    def similarity(self, values: Mapping[str, Array]) -> Array:
        """The similarities S of the components.

        Args:
            values: of the sites; ``bases`` is read.

        Returns:
            Shape (num_components, num_components), with a unit diagonal.
        """
        return SIMILARITIES[self.kernel](values["bases"], self.similarity_scale)

    def local(self, values: Mapping[str, Array]) -> LocalPCA:
        """The components at given values of the sites.

        Args:
            values: of the sites; ``bases`` or their ``carriers``.

        Returns:
            Family, loadings and offsets of the components.
        """
        prior = in_current_precision(self)
        family, scale = prior.family, prior.column_scale if self.standardize else None
        if "noise_variance" in values:
            noise = values["noise_variance"]
            family = family.with_noise(noise if scale is None else noise * scale**2)
        bases = values["bases"] if "bases" in values else orthonormal(values["carriers"])
        offsets = values["offsets"] if self.offset else jnp.zeros(bases.shape[:2])
        loadings = bases * values["scales"][:, None, :]
        return LocalPCA(family, loadings if scale is None else loadings * scale[:, None], offsets)

    # Sizes and checks

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with its size, and with unknown noise its priors, read off the data, or as given."""
        given = {name: value for name, value in overrides.items() if value is not None}
        family = given.get("family", suitable_fields.AUTO)
        (x,), (family,) = suitable_fields.read_tables((x,), (family,), cls.families_for, cls.__name__)
        given["family"] = family = as_family(family)
        x = checks.as_matrix(x)
        read: dict[str, Any] = {"num_features": x.shape[1]}
        if given.get("standardize", False):
            cls(**given)  # what cannot be standardised is refused
            scale = checks.column_scale(x, given.get("column_scale"))
            read |= {"column_scale": scale} | cls._default_priors(*units_of(x / scale))
            read["offset_mean"] = read["offset_mean"] * scale
        elif family.learns_noise:
            read |= cls._default_priors(*units_of(x))
        return cls(**(read | given))

    @staticmethod
    def _default_priors(means: Any, variance: float) -> dict[str, Any]:
        """The default priors of cells with these means of columns and this mean variance."""
        return {
            "sparsity": SCALE_RATE / np.sqrt(variance),
            "offset_mean": means,
            "offset_variance": BROAD * variance,
            "ard_rate": variance,
            "noise_rate": variance,
        }

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
        """The SePCA model: one PCA whose columns are N(0, I / alpha_j), alpha by type-II maximum likelihood.

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
        family = fields.get("family", suitable_fields.AUTO)
        (x,), (family,) = suitable_fields.read_tables((x,), (family,), cls.families_for, cls.__name__)
        fields["family"] = family
        x = checks.as_matrix(x)
        learns_noise = as_family(family).learns_noise
        in_units = learns_noise and not fields.get("standardize", False)
        rate = LEAST_ARD_RATE * (units_of(x)[1] if in_units else 1.0)
        given = {"ard_concentration": (x.shape[1] + 1) / 2, "ard_rate": rate, "repulsion": 0.0} | fields
        return cls.from_data(x, num_components=1, num_latents=num_latents, scale_prior="ard", **given)

    @staticmethod
    def families_for(columns: Sequence[Columns | None]) -> tuple[Any, ...]:
        """One family for all columns of the table."""
        return tuple("bernoulli" if own is None else one_family_of_columns(own) for own in columns)

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

    def __post_init__(self) -> None:
        """Replace a family's name by the family, and defaults that no data decide by their values."""
        self._remember_auto()
        object.__setattr__(self, "family", as_family(self.family))
        checks.check_size("num_components", self.num_components)
        if not self.family.learns_noise:
            for name, value in self._default_priors(0.0, 1.0).items():
                if getattr(self, name) is None:
                    object.__setattr__(self, name, value)
        if self.concentration is None:
            object.__setattr__(self, "concentration", self.num_components)
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        for name in ("num_components", "num_latents"):
            checks.check_size(name, getattr(self, name))
        for name in ("repulsion", "sparsity"):
            value = getattr(self, name)
            if value is not None and (value.shape != () or not 0 <= value < np.inf):
                raise ValueError(f"{name} must be a number of at least 0; got {checks.shown(value)}")
        for name in POSITIVE:
            if getattr(self, name) is not None:
                checks.check_positive(name, getattr(self, name))
        checks.check_concentration("concentration", self.concentration)
        sizes = ((), (self.num_features,))
        if self.offset_mean is not None and not np.isfinite(self.offset_mean).all():
            raise ValueError(f"offset_mean must be finite; got {checks.shown(self.offset_mean)}")
        if self.offset_mean is not None and self.num_features and self.offset_mean.shape not in sizes:
            raise ValueError(
                f"offset_mean must be one number or one for each of {self.num_features} features; "
                f"got shape {self.offset_mean.shape}"
            )
        for name, choices in CHOICES.items():
            checks.check_choice(name, getattr(self, name), choices)
        checks.check_flag("offset", self.offset)
        checks.check_flag("standardize", self.standardize)
        if self.standardize and not self.family.learns_noise and self._given is None:
            raise ValueError(without_units((self.family,), "family"))
        if self.column_scale is not None:
            checks.check_positive_columns("column_scale", self.column_scale, self.num_features)
        if self.family.is_mixed or not self.family.has_kernel:
            raise ValueError(
                "family must have one natural parameter a cell and be the same for all columns; "
                f"got {type(self.family).__name__}"
            )
        if self.family.theta_is_negative and not self.offset:
            raise ValueError(
                f"the natural parameters of {type(self.family).__name__} are negative, which a component "
                "without an offset cannot keep to: leave offset=True"
            )
        if self.num_features is not None:
            checks.check_num_latents(self.num_latents, {"columns": self.num_features})

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model."""
        self.check_new(x)
        checks.check_rows(x, 2, "the projection of one row is the row itself")
        checks.check_some_cells(x)
        checks.check_num_latents(self.num_latents, {"columns": x.shape[1]})
        if x.shape[0] < self.num_components:
            raise ValueError(
                f"num_components must be at most the number of rows, {x.shape[0]}; got "
                f"{self.num_components}: "
                f"give num_components={x.shape[0]} or less"
            )
        if self.num_components > 1 and len(x) > 1 and (x == x[0]).all():
            raise ValueError("all rows are the same: there is nothing to cluster; use num_components=1")

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows do not suit the fitted model."""
        x = checks.as_matrix(x)
        checks.check_columns(x, self.num_features, owner="model")
        self.family.check(x)

    def check_method(self, method: str) -> None:
        """Refuse samplers of an improper posterior; warn of point estimates without an optimum.

        Raises:
            ValueError: a sampler, and the posterior is improper; svi, and natural parameters are negative.
        """
        if method == "svi" and self.family.theta_is_negative:
            raise ValueError(
                f"svi has no bound for cells of {type(self.family).__name__}: their natural parameters are "
                "negative, and the normal guide puts some mass elsewhere; use em, map, nuts or hmc"
            )
        proper = self.integrates_latents or method == "vb"
        if self.scale_prior != "laplace" or not _is_zero(self.sparsity) or proper:
            return
        if method in ("nuts", "hmc", "svi"):
            raise ValueError(
                f"{method} needs a proper posterior, and at sparsity=0 it is improper: the likelihood tends "
                "to a positive constant as the scales grow; give sparsity > 0 or scale_prior='ard'"
            )
        checks.warn(
            "sparsity=0 has no optimum: scales grow and latents shrink for ever, and the result depends on "
            "when the run stops; give sparsity > 0 or scale_prior='ard'"
        )

    @property
    def sums_out_locals(self) -> bool:
        """Whether the density of a row has its latents integrated out exactly."""
        return self.integrates_latents

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables."""
        if self.latents == "component":
            return self.dims
        return dict(self.dims) | {"latents": ("observation", "latent")}

    # Rows at given parameters: starts, densities, responsibilities, predictions

    def starting_point(self, key: Array, x: Rows) -> dict[str, Array]:
        """Starting values of all sites: random bases, and offsets near the columns' means.

        Args:
            key: a JAX key.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.

        Returns:
            Value of each site by name, in the shapes of the program.
        """
        if self.units:
            return self.started_in_standard_units(key, x)
        family = in_current_precision(self).family
        scale = START_SCALE * (0.1 if family.theta_is_negative else 1.0)
        variance = jnp.mean(jnp.nanvar(x, axis=0))
        unit = jnp.where(variance > 0, jnp.sqrt(variance), 1.0) if family.learns_noise else 1.0
        sizes = self.num_components, x.shape[1], self.num_latents
        carriers, offsets, latents = standard_normals(key, sizes, sizes[:2], self.latents_shape(x.shape[0]))
        values = {
            "carriers": orthonormal(carriers),
            "scales": scale * unit * jnp.ones((sizes[0], sizes[2])),
        }
        if not self.weights.has_sticks:
            values["weights"] = jnp.full(sizes[0], 1.0 / sizes[0])
        else:
            values["stick_decays"] = -jnp.log1p(-1.0 / jnp.arange(sizes[0], 1.0, -1.0))
        if self.scale_prior == "ard":
            values["scales_precision"] = jnp.ones((sizes[0], sizes[2])) / unit**2
        if self.offset:
            loc = family.natural_of_columns(x)
            least = jnp.minimum(1.0, jnp.abs(loc)) if family.theta_is_negative else 1.0
            shift = 0.1 * scale * unit * least * offsets
            values["offsets"] = loc + shift
            values["scales"] *= jnp.min(least)  # so that natural parameters stay negative where they must
        if family.learns_noise:
            values["noise_variance"] = unit**2
        if not self.integrates_latents or self.draw_locals:
            values["latents"] = scale * latents
        return values

    def log_rows(self, values: Mapping[str, Array], x: Rows) -> RowsByComponent:
        """Log density of each row under each component, ``log p(x_n | z_n = k)``.

        It is given the latents if ``values`` has them; otherwise they are integrated out, exactly for
        Gaussian cells and by Laplace's approximation for others.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_components), in nats.
        """
        if "latents" not in values:
            return self.modes(values, x).log_integral
        local = self.local(values)
        return local_pca.log_cells(local.family, local.natural_params(values["latents"]), x)

    def modes(self, values: Mapping[str, Array], x: Array) -> RowMode:
        """Posterior of the latents of rows under each component, exact or by Laplace's approximation.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features).

        Returns:
            Mode, covariance and log integral, leading shape (num_observations, num_components).
        """
        local = self.local(values)
        return (local_pca.gaussian_latents if self.integrates_latents else local_pca.laplace_latents)(
            local, x
        )

    def log_joint_rows(self, values: Mapping[str, Array], x: Rows) -> RowsByComponent:
        """Log joint density of each row and label, ``log pi_k + log p(x_n | z_n = k)``.

        Args:
            values: of the sites; latents as in `log_rows`.
            x: rows, shape (num_observations, num_features).

        Returns:
            Shape (num_observations, num_components), in nats.
        """
        return self.log_rows(values, x) + self.weights.log_weights(values)

    def completions(self) -> dict[str, tuple[str, ...]]:
        """The quantities that `inference.predict` returns: completed cells, or the mean of every cell.

        Returns:
            Name to dims.
        """
        return dict.fromkeys(("cells", "reconstruction"), ("observation", "feature"))

    def default_completion(self, *data: Any) -> str:
        """The default of `completions`: missing cells.

        Args:
            *data: not read.

        Returns:
            ``"cells"``.
        """
        return "cells"

    def predicted(self, values: Mapping[str, Array], x: Rows, *, what: str = "cells") -> tuple[Rows, Rows]:
        """Mean and variance of cells, averaged over the components and each one's latents.

        Args:
            values: of the sites.
            x: rows, shape (num_observations, num_features), NaN where a cell is missing.
            what: ``"cells"`` or ``"reconstruction"``.

        Returns:
            Two arrays of shape (num_observations, num_features).
        """
        r, means, variances = self._expected(values, x)
        mean = jnp.einsum("nk,nkf->nf", r, means)
        variance = jnp.einsum("nk,nkf->nf", r, variances + (means - mean[:, None]) ** 2)
        if what == "reconstruction":
            return mean, variance
        missing = jnp.isnan(x)
        return jnp.where(missing, mean, x), jnp.where(missing, variance, 0.0)

    def typical_cells(self, values: Mapping[str, Array]) -> tuple[TypicalCells, ...]:
        """Mean and deviation of a cell of each component, averaged over the prior of its latents."""
        means, variances = local_pca.cells_of_prior(self.local(values), steep=self.has_steep_cells)
        deviations = jnp.sqrt(variances)
        return tuple(
            TypicalCells(family.mean_is, columns, means[:, columns], deviations[:, columns])
            for family, columns in self.family.column_groups(self.num_features)
        )

    def _expected(self, values: Mapping[str, Array], x: Array) -> tuple[Array, Array, Array]:
        """Shares of the components, and mean and variance of all cells under each."""
        values = self._without_latents(values)
        local, modes = self.local(values), self.modes(values, x)
        r = jax.nn.softmax(modes.log_integral + self.weights.log_weights(values), axis=-1)
        return r, *local_pca.expected_cells(local, x, modes, steep=self.has_steep_cells)

    def resolving(self, variables: Mapping[str, Any]) -> Self:
        """With finer nodes where bounded cells change steeply, see `zoo.exponential_family.expectations`.

        Args:
            variables: with bases and scales of the components, draws with any leading axes.

        Returns:
            The model.
        """
        if not {"bases", "scales"} <= variables.keys():
            return self
        loadings = np.asarray(variables["bases"]) * np.asarray(variables["scales"])[..., None, :]
        return self.replaced(has_steep_cells=are_steep(self.family, loadings, 1.0))

    def rests_on_tail(
        self,
        values: Mapping[str, Array],
        mean: Array,
        variance: Array,
        x: Array,
        *,
        what: str = "cells",
    ) -> Array | None:
        """Which expectations come to more than half from components in which the tail of latents dominates.

        See `zoo.exponential_family.expectations`; that clusters differ is no tail.

        Args:
            values: of the sites.
            mean: of `predicted`.
            variance: of `predicted`; zero for cells that were observed.
            x: rows.
            what: not read.

        Returns:
            Boolean, the shape of ``mean``; None: no cells of the family have a tail.
        """
        if self.family.mean_square_of_means(mean, variance) is None:
            return None
        r, means, variances = self._expected(values, x)
        far = rests_on_tail(means, self.family.mean_square_of_means(means, variances))
        return (variance != 0) & ~(jnp.einsum("nk,nkf->nf", r, means * far) <= 0.5 * mean)


def orthonormal(carriers: Array) -> Array:
    """The Q of the QR decomposition whose R has a positive diagonal; of normal matrices it is uniform.

    Args:
        carriers: shape (..., D, d) with D >= d.

    Returns:
        Shape (..., D, d), columns orthonormal.
    """
    q, r = jnp.linalg.qr(carriers)
    return q * jnp.where(jnp.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)[..., None, :]


def _measured_in(unit: Array | None, base: dist.Distribution) -> dist.Distribution:
    """The distribution of values that are ``unit`` times those of another, and are moved in that unit."""
    if unit is None:
        return base
    size = base.event_shape[-1]
    return padded(base, tuple(range(size)), size, unit)


def _is_zero(value: Any) -> bool:
    """Whether a hyperparameter is known to be zero, which a traced one is not."""
    return not isinstance(value, jax.core.Tracer) and bool(np.all(np.asarray(value) == 0))
