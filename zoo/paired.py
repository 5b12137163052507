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

Units: as in `zoo.EPCA`. By default each view of Gaussian cells of unknown variance has one unit u_v; with
``standardize`` each of its columns is measured in its standard deviation, and with full covariances S_v is
then diagonal, covariance_scale u_vd^2.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks, suitable_fields
from zoo.exponential_family import Family, as_family, joint_prior
from zoo.exponential_family.answers import START_SCALE
from zoo.exponential_family.cells import (
    cells_of,
    has_units,
    sample_view_parameters,
    standard_normals,
    starting_sizes,
    starting_view_parameters,
    units_of,
    units_of_columns,
    units_of_standard_view,
    units_of_view,
)
from zoo.exponential_family.joint_prior import FACTOR_IN_PRIOR, balanced_variance
from zoo.exponential_family.natural_params import LowRank, padded
from zoo.exponential_family.paired_answers import PairedAnswers
from zoo.exponential_family.projections import KERNEL_STRENGTH, JointPriorModel
from zoo.linear_gaussian.rows import DenseRows
from zoo.model import in_current_precision, static
from zoo.shapes import KernelParams, NaturalParams, ParamCovariance, View

__all__ = ["Paired"]

SPECIFICS = ("low_rank", "full_covariance")


@dataclass(frozen=True, eq=False)
class Paired(JointPriorModel):
    """Several tables with the same rows, explained by shared latents and latents of single tables.

    Attributes:
        families: one for each view: a family of `zoo.exponential_family`, its name, or a tuple with one for
            each column of the view. ``"gaussian"`` is `Gaussian()`, noise of known variance 1:
            `Gaussian(noise_variance=None)` has unknown noise. ``"auto"`` is bernoulli for an array; for a
            DataFrame it is what its columns hold (`zoo.suitable_fields.family_of_columns`).
        num_shared: K_S, latents that all views see; 0, where every view has latents of its own, makes the
            views independent.
        num_specific: K_v of each view, 0 where it has no specific latents; None: 0 for all views, but with
            families that are read off the columns of tables 1 for each view of several columns, so that the
            shared latents need not explain what only one view has.
        specific: ``"low_rank"``: the latents above. ``"full_covariance"``: a covariance for each view.
        view_weights: alpha_v > 0 of each view; one number serves all.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance: sigma_U^2 > 0.
        loading_variance: sigma_V^2 > 0.
        loc_variance: prior variance of the means of natural parameters.
        loc_mean: their prior mean, shape (columns of all views,); given with `unit`.
        unit: shape (views,), in which cells of unknown noise are measured, and the variances above and
            ``covariance_scale`` with them, as in `zoo.EPCA`; 1 for other views. None: read off the data, with
            `loc_mean`, where those have their defaults; else there is none. With ``standardize`` shape
            (columns of all views,), 1 for columns of other cells; None: the columns' standard deviations.
        natural_unit: as of `zoo.EPCA`: in which natural parameters, loadings and means are measured; one
            number, or one for each natural parameter of all views.
        conjugate: (lam, nu) of the kernels: two numbers for all cells, or a row of two for each column of all
            views. None: lam = 0.1 and nu such that the kernel's mean is that of the view's cells. Not used
            with ``beta=0``.
        ard: whether each latent has a precision of its loadings, Gamma(ard_concentration, ard_rate); with
            ``beta=0`` only.
        ard_concentration: of the precisions' prior.
        ard_rate: of the precisions' prior.
        covariance_scale: S_v = this times I; used with ``"full_covariance"`` only, as the next one.
        covariance_degrees: nu_v = D_v + this > D_v - 1; at 2 the mean of Psi_v is S_v.
        standardize: whether each column of Gaussian cells of unknown noise is measured in a `unit` of its
            own, its standard deviation, as in `zoo.EPCA`: for columns in different units; with ``beta=0``
            only.
        num_features: D_v of each view; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> y_0, y_1 = np.random.default_rng(0).integers(0, 2, size=(2, 20, 4))
        >>> model = zoo.Paired.ecca(("bernoulli", "bernoulli"), num_shared=1, num_specific=(1, 2))
        >>> model.with_sizes_from(y_0, y_1).num_latents
        4
    """

    families: tuple[Family | str, ...] = ("auto", "auto")
    num_shared: int = static(default=1)
    num_specific: tuple[int, ...] | None = static(default=None)
    specific: str = static(default="low_rank")
    view_weights: Array = 1.0
    beta: Array = 0.0
    latent_variance: Array = 1.0
    loading_variance: Array = 1.0
    loc_variance: Array = 100.0
    loc_mean: Array | None = None
    unit: Array | None = None
    conjugate: Array | None = None
    ard: bool = static(default=False)
    ard_concentration: Array = 1.0
    ard_rate: Array = 1.0
    covariance_scale: Array = 1.0
    covariance_degrees: Array = 2.0
    natural_unit: Array | None = None
    standardize: bool = static(default=False)
    num_features: tuple[int, ...] | None = static(default=None)

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
    family_field = "families"
    symmetries = ("rotation", "sign")
    relations = {
        "views_exchanged": "same, views in the new order",
        "row_masked": "same as a row of NaN in that view",
        "shifted": "no: priors have a unit, but those of unknown noise by default",
        "rescaled": "no: priors have a unit, but those of unknown noise by default",
        "other_units": "no: priors have a unit, but those of unknown noise by default",
        "float32": "same where it ends, to the root of single precision",
    }
    methods = ("vb", "map", "gibbs", "nuts", "hmc", "svi", "closed_form")
    num_needed = 1
    answers = PairedAnswers

    def __call__(self, *views: View, num_observations: int | None = None) -> tuple[View, ...]:
        """The NumPyro program: with views it conditions, without them it draws rows.

        Args:
            *views: a table each, shape (num_observations, features of the view), NaN where a cell is missing.
            num_observations: how many rows to draw.

        Returns:
            The views, or those drawn, each of shape (num_observations, features of the view).
        """
        num_rows, sizes = self._num_rows(views, num_observations)
        prior = in_current_precision(self)
        variance = balanced_variance(prior.latent_variance, prior.loading_variance, prior.beta)
        scale = jnp.sqrt(variance)
        if self.ard:
            precisions = dist.Gamma(prior.ard_concentration, prior.ard_rate).expand([self.num_latents])
            scale = scale / jnp.sqrt(numpyro.sample("loading_precision", precisions.to_event(1)))
        values = {}
        for v, size in enumerate(sizes):
            values |= self._sample_view(v, size, jnp.broadcast_to(scale, (self.num_latents,)))
        with numpyro.plate("observations", num_rows):
            z = dist.Normal(0.0, jnp.sqrt(variance)).expand([self.num_latents]).to_event(1)
            values["latents"] = numpyro.sample("latents", z)
            data = views or (None,) * len(sizes)
            return tuple(self._sample_cells(v, values, y) for v, y in enumerate(data))

    def _sample_view(self, v: int, size: int, scale: Array) -> dict[str, Array]:
        """Loadings, means and noise of one view from their priors; ``scale`` is that of each latent."""
        prior, name, columns = in_current_precision(self), f"loadings_{v}", self.latents_of(v)
        num_params = self.families[v].num_params(size)
        if self.standardize:
            self.require("unit", "num_features")
        unit, centre = in_current_precision(self._units_of(v))
        of_params = unit[np.asarray(self.families[v].param_columns(size))] if self.standardize else unit
        scale = scale * (of_params[:, None] if self.standardize else unit)
        entries = dist.Normal(0.0, scale[..., jnp.asarray(columns, int)]).expand([num_params, len(columns)])
        natural_unit = self._unit_of(v, num_params)
        of_rows = None if natural_unit is None else natural_unit[:, None]
        values = {name: numpyro.sample(name, padded(entries.to_event(2), columns, self.num_latents, of_rows))}
        is_full = self.specific == "full_covariance"
        values |= sample_view_parameters(
            prior.families[v],
            size,
            prior.loc_variance,
            f"_{v}",
            noise=not is_full,
            loc_mean=centre,
            unit=unit,
            natural_unit=natural_unit,
        )
        if is_full:
            rate = prior.covariance_scale * of_params**2 * jnp.eye(num_params)
            precision = dist.Wishart(
                num_params + prior.covariance_degrees, rate_matrix=rate, validate_args=False
            )
            values[f"specific_precision_{v}"] = numpyro.sample(f"specific_precision_{v}", precision)
        return values

    def _unit_of(self, v: int, num_params: int) -> Array | None:
        """The unit of the natural parameters of a view, shape (num_params,); None: one."""
        unit = in_current_precision(self.natural_unit)
        if unit is None or unit.ndim == 0:
            return None if unit is None else jnp.broadcast_to(unit, (num_params,))
        first = sum(f.num_params(d) for f, d in zip(self.families[:v], self.num_features[:v], strict=True))
        return unit[first : first + num_params]

    def _sample_cells(self, v: int, values: dict[str, Array], y: Array | None) -> Array:
        """The cells of one view, inside the plate of rows."""
        prior, theta = in_current_precision(self), self.mean_theta(v, values)
        if self.specific == "full_covariance" and not self.has_dense_rows(v):
            factor = jnp.linalg.cholesky(self.specific_covariance(v, values))
            noisy = dist.MultivariateNormal(theta.whole(), scale_tril=factor, validate_args=False)
            values[f"natural_params_{v}"] = numpyro.sample(f"natural_params_{v}", noisy)
        rows = self.rows_of(v, values)
        if self.has_kernel:
            joint_prior.joint_prior_factor(
                prior.families[v], theta, prior.beta, self.kernel_of(v), f"joint_prior_{v}"
            )
        with numpyro.handlers.scale(scale=jnp.broadcast_to(prior.view_weights, (len(self.families),))[v]):
            return numpyro.sample(f"y_{v}", rows, obs=y)

    def _num_rows(
        self, views: tuple[Array, ...], num_observations: int | None
    ) -> tuple[int, tuple[int, ...]]:
        if views:
            if len(views) != len(self.families):
                raise TypeError(f"the program takes {', '.join(self.data_names)}; got {len(views)} views")
            if isinstance(self.beta, np.ndarray) and self.beta > 0:
                self.require("conjugate")
            return views[0].shape[0], tuple(view.shape[1] for view in views)
        num_rows = self.rows_to_draw(num_observations, "num_features", reason=FACTOR_IN_PRIOR)
        return num_rows, self.num_features

    # Parts of the program

    @property
    def num_latents(self) -> int:
        """The number K of latents, shared and specific."""
        return self.num_shared + sum(self.num_specific)

    @property
    def data_names(self) -> tuple[str, ...]:
        """Names of the views: y_0, y_1, ..."""
        return tuple(f"y_{v}" for v in range(len(self.families)))

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """For each view whether all its cells are Gaussian with one noise variance, in one unit."""
        pairs = enumerate(super().isotropic_parts)
        return tuple(is_isotropic and not self.has_dense_rows(v) for v, is_isotropic in pairs)

    @property
    def cell_families(self) -> tuple[Family, ...]:
        """The family of the cells of each view."""
        return self.families

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        if name in ("masked_array", "frame_nan", "frame_na", "row_masked") and method == "closed_form":
            return "no: method 'closed_form' needs every cell"
        if method == "closed_form" and name in ("shifted", "rescaled", "columns_rescaled", "other_units"):
            return self._maximum_in_units(name)
        if method == "closed_form" and name == "float32":
            return "same"
        in_part = name in ("masked_array", "frame_nan", "frame_na")
        if in_part and method == "vb" and self.specific == "full_covariance":
            return "no: vb of full covariances takes rows of a view that are whole or missing"
        return super().relation_of(name, method)

    def _maximum_in_units(self, name: str) -> str:
        """What happens to the maximum of the likelihood, which no prior holds in its unit."""
        if name == "shifted" or self.specific == "full_covariance":
            return "same, predictions in the new units"
        if name == "columns_rescaled":
            return super().relation_of(name, "closed_form")
        if not all(family.learns_noise for family in self.families):
            return "no: a noise variance is given in the units of the data"
        return "same, predictions in the new unit"

    def views_reversed(self) -> tuple[Self, np.ndarray]:
        """The same model of the views in reverse order.

        Returns:
            The model, and the place in this one of each of its latents, shape (num_latents,).
        """
        last = len(self.families) - 1
        fields = {name: tuple(reversed(getattr(self, name))) for name in ("families", "num_specific")}
        if self.num_features is not None:
            fields["num_features"] = tuple(reversed(self.num_features))
        for name in ("view_weights",) if self.standardize else ("view_weights", "unit"):
            if np.ndim(getattr(self, name)):
                fields[name] = getattr(self, name)[::-1]
        widths = {"loc_mean": 1, "natural_unit": 1, "conjugate": 2} | (
            {"unit": 1} if self.standardize else {}
        )
        for name in [name for name, axes in widths.items() if np.ndim(getattr(self, name)) == axes]:
            sizes = zip(self.families, self.num_features, strict=True)
            sizes = [family.num_params(d) if name == "natural_unit" else d for family, d in sizes]
            parts = np.split(getattr(self, name), np.cumsum(sizes)[:-1])
            fields[name] = np.concatenate(parts[::-1])
        places = [self.latents_of(v)[self.num_shared :] for v in range(last, -1, -1)]
        order = np.concatenate([np.arange(self.num_shared), *places]).astype(int)
        return replace(self, **fields), order

    @property
    def loading_sites(self) -> Mapping[str, str]:
        """Loadings of each view to the view's suffix."""
        return {f"loadings_{v}": f"_{v}" for v in range(len(self.families))}

    def _is_measured(self, v: int) -> bool:
        """Whether cells of a view are measured in units of the data."""
        by_column = self.standardize and self.families[v].learns_noise
        return self.unit is not None and (by_column or has_units(self.families[v]))

    def _units_of(self, v: int) -> tuple[Array | float, Array | float]:
        """The unit of a view, with ``standardize`` those of its columns, and the prior mean of its means."""
        if self.unit is None:
            return 1.0, 0.0
        columns = slice(sum(self.num_features[:v]), sum(self.num_features[: v + 1]))
        centre = in_current_precision(self.loc_mean)
        centre = centre[columns] if centre.ndim else centre
        return self.unit[columns if self.standardize else v], centre if self._is_measured(v) else 0.0

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The units and prior means of views of unknown noise, once they are read off the data."""
        found = {}
        for v, family in enumerate(self.families):
            if not self._is_measured(v):
                continue
            unit, centre = self._units_of(v)
            if self.standardize:
                is_turned = self.has_dense_rows(v)
                found |= units_of_standard_view(family, unit, centre, f"y_{v}", f"_{v}", is_turned)
            else:
                found |= units_of_view(unit, centre, f"y_{v}", f"_{v}")
        return found

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """The squared units of the columns of each view, with ``standardize``."""
        if not self.standardize or self.unit is None:
            return {}
        parts = np.split(self.unit, np.cumsum(self.num_features)[:-1])
        return {
            f"_{v}": own[np.asarray(family.param_columns(own.size))] ** 2
            for v, (family, own) in enumerate(zip(self.families, parts, strict=True))
            if family.learns_noise
        }

    @property
    def part_weights(self) -> Mapping[str, Any]:
        """The weights of the views."""
        weights = jnp.broadcast_to(in_current_precision(self.view_weights), (len(self.families),))
        return {f"y_{v}": weights[v] for v in range(len(self.families))}

    def _reads_units(self) -> bool:
        return super()._reads_units() and (self.standardize or bool(self.covariance_scale == 1))

    def in_standard_units(self) -> Self:
        """The model of (y_v - loc_mean) / unit of the views that have one."""
        return self.replaced(unit=None, loc_mean=None, standardize=False) if self.units else self

    @property
    def num_canonical(self) -> int:
        """The shared latents of two views."""
        return self.num_shared if len(self.families) == 2 else 0

    def view_covariances(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Covariances of two views: of the first, of the first with the second, of the second.

        Args:
            values: of one draw.

        Returns:
            Shapes (D_0, D_0), (D_0, D_1), (D_1, D_1); of cells that are not Gaussian those of natural
            parameters.
        """
        if len(self.families) != 2:
            return super().view_covariances(values)
        variance = float(balanced_variance(self.latent_variance, self.loading_variance, self.beta))
        w = [values[f"loadings_{v}"] for v in (0, 1)]
        first, second = (variance * own @ own.T + self._noise(v, values, len(own)) for v, own in enumerate(w))
        return first, variance * w[0] @ w[1].T, second

    def _noise(self, v: int, values: Mapping[str, np.ndarray], size: int) -> np.ndarray | float:
        """The covariance Psi_v of one draw; zero where the cells have no variance parameter."""
        if self.specific == "full_covariance":
            return np.linalg.inv(values[f"specific_precision_{v}"])
        given = values.get(f"noise_variance_{v}", getattr(self.families[v], "noise_variance", None))
        factors = self.noise_factors.get(f"_{v}", 1.0)
        return 0.0 if given is None else float(given) * factors * np.eye(size)

    def latents_of(self, v: int) -> tuple[int, ...]:
        """Indices of the latents that a view sees: the shared ones and its specific ones.

        Args:
            v: the view, from 0.

        Returns:
            Their numbers, from 0.
        """
        before = self.num_shared + sum(self.num_specific[:v])
        return (*range(self.num_shared), *range(before, before + self.num_specific[v]))

    def mean_theta(self, v: int, values: Mapping[str, Array]) -> LowRank:
        """The mean V_v u + mu_v of natural parameters, by its factors.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            The factors; made whole, flat, of shape (num_observations, num_params).
        """
        return LowRank(values["latents"], values[f"loadings_{v}"], values.get(f"loc_{v}", 0.0))

    def specific_covariance(self, v: int, values: Mapping[str, Array]) -> ParamCovariance:
        """The covariance Psi_v of a view.

        Args:
            v: the view, from 0.
            values: of the sites; ``specific_precision_v`` is read.

        Returns:
            Shape (num_params, num_params).
        """
        return jnp.linalg.inv(values[f"specific_precision_{v}"])

    def has_dense_rows(self, v: int) -> bool:
        """Whether the rows of a view are Gaussian with covariance Psi_v.

        Args:
            v: the view, from 0.

        Returns:
            True for Gaussian views with ``specific="full_covariance"``.
        """
        return self.specific == "full_covariance" and self.families[v].learns_noise

    def rows_of(self, v: int, values: Mapping[str, Array]) -> dist.Distribution:
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
        theta = values.get(f"natural_params_{v}", mean)
        unit = in_current_precision(self._units_of(v)[0]) if self.standardize else None
        return cells_of(in_current_precision(self).families[v], theta, values, f"_{v}", unit)

    def kernel_of(self, v: int) -> KernelParams:
        """The parameters lam and nu of the kernel of a view, or of each of its columns.

        Args:
            v: the view, from 0.

        Returns:
            Shape (2,), or (features of the view, 2).
        """
        pairs = in_current_precision(self.conjugate)
        first = sum(self.num_features[:v])
        return pairs if pairs.ndim == 1 else pairs[first : first + self.num_features[v]]

    # The papers' models

    @classmethod
    def sepca(cls, families: Sequence, num_shared: int, **fields: Any) -> Self:
        """Supervised EPCA: targets and covariates share all latents.

        Args:
            families: of the views, the targets first.
            num_shared: K.
            **fields: further fields.

        Returns:
            The model.
        """
        return cls(tuple(families), num_shared, (0,) * len(families), **fields)

    @classmethod
    def epls(
        cls, families: Sequence, num_shared: int, num_specific: int | tuple[int, ...], **fields: Any
    ) -> Self:
        """Exponential-family PLS: targets y_0, and covariates that also have specific latents.

        Args:
            families: of targets and covariates.
            num_shared: K_S.
            num_specific: of each view of covariates; one number where there is one such view.
            **fields: further fields.

        Returns:
            The model.
        """
        return cls(tuple(families), num_shared, _with_targets(families, num_specific), **fields)

    @classmethod
    def ecca(cls, families: Sequence, num_shared: int, num_specific: tuple[int, ...], **fields: Any) -> Self:
        """Exponential-family CCA: every view has specific latents.

        Args:
            families: of the views.
            num_shared: K_S.
            num_specific: of each view.
            **fields: further fields.

        Returns:
            The model.
        """
        return cls(tuple(families), num_shared, num_specific, **fields)

    @classmethod
    def secca(cls, families: Sequence, num_shared: int, num_specific: tuple[int, ...], **fields: Any) -> Self:
        """Supervised ECCA: targets y_0 without specific latents, then views with them.

        Args:
            families: of the views, the targets first.
            num_shared: K_S.
            num_specific: of the views after the targets, or of all with 0 for the targets.
            **fields: further fields.

        Returns:
            The model.
        """
        return cls(tuple(families), num_shared, _with_targets(families, num_specific), **fields)

    # Sizes and checks

    @classmethod
    def from_data(cls, *views: Any, **overrides: Any) -> Self:
        """The model with its sizes, and the kernels' means, read off the data; ``overrides`` are fields.

        Raises:
            ValueError: another number of views than of families.
        """
        families = overrides.get("families", (suitable_fields.AUTO,) * len(views))
        if len(views) != len(families):
            raise ValueError(
                f"there are {len(families)} families and {len(views)} views: give one for each view"
            )
        views, families = suitable_fields.read_tables(views, families, cls.families_for, cls.__name__)
        overrides["families"] = families
        arrays = [checks.as_matrix(view, f"y_{v}") for v, view in enumerate(views)]
        read: dict[str, Any] = {"num_features": tuple(array.shape[1] for array in arrays)}
        kinds = [as_family(family) for family in families]
        if any(kind.theta_is_negative for kind in kinds):
            for v, (kind, array) in enumerate(zip(kinds, arrays, strict=True)):
                checks.check_columns(array, None, f"y_{v}", "model")
                kind.check(array, f"y_{v}")
            units = [kind.natural_units(array) for kind, array in zip(kinds, arrays, strict=True)]
            read["natural_unit"] = np.concatenate(units)
        if np.any(np.asarray(overrides.get("beta", 0.0)) > 0) and all(kind.has_kernel for kind in kinds):
            pairs = [
                np.broadcast_to(kind.kernel_of(array, KERNEL_STRENGTH), (array.shape[1], 2))
                for kind, array in zip(kinds, arrays, strict=True)
            ]
            read["conjugate"] = np.concatenate(pairs)
        elif overrides.get("standardize", False):
            cls(**(read | overrides))  # what cannot be standardised is refused
            given = overrides.get("unit")
            sizes = np.cumsum(read["num_features"])[:-1]
            parts = [None] * len(arrays) if given is None else np.split(np.asarray(given, float), sizes)
            pairs = [
                units_of_columns(kind, array, part, f"y_{v}")
                for v, (kind, array, part) in enumerate(zip(kinds, arrays, parts, strict=True))
            ]
            centre, read["unit"] = (np.concatenate(own) for own in zip(*pairs, strict=True))
            read |= {"loc_mean": centre} if given is None else {}
        elif "unit" not in overrides and cls(**overrides)._reads_units():
            read["loc_mean"], read["unit"] = _units_of_views(kinds, arrays)
        return cls(**(read | {name: value for name, value in overrides.items() if value is not None}))

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """Families, one shared latent and one of each view's.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        checks.check_num_parts(cls.__name__, len(data), 2)
        suitable_fields.check_not_sparse(cls.__name__, data[0])
        kinds = [suitable_fields.kind_of_cells(part) for part in data]
        return {
            "families": tuple(map(suitable_fields.family_of, kinds)),
            "num_shared": 1,
            "num_specific": tuple(int(part.shape[1] > 1) for part in data),
        }

    @classmethod
    def fields_of_families(cls, families: Sequence[Any], sizes: Sequence[int]) -> dict[str, Any]:
        """The families, one shared latent and one of each view's."""
        checks.check_num_parts(cls.__name__, len(sizes), 2)
        return {
            "families": tuple(families),
            "num_shared": 1,
            "num_specific": tuple(int(d > 1) for d in sizes),
        }

    def suited_to(self, columns: Sequence[Any]) -> Self:
        """The families of the columns of tables and, where it was not given, a latent of each wide view's."""
        given, settled = self._given, super().suited_to(columns)
        if settled is self or given["num_specific"] is not None or self.specific == "full_covariance":
            return settled
        widths = [1 if own is None else len(own.kept) for own in columns]
        specific = tuple(int(width > 1) for width in widths)
        if len(widths) != len(self.families) or self.num_shared + sum(specific) > sum(widths):
            return settled
        return replace(settled, num_specific=specific)

    def _has_closed_bound(self, data: Sequence[Any]) -> bool:
        if self.specific == "low_rank":
            return super()._has_closed_bound(data)
        partly = (np.isnan(y).any(axis=1) & ~np.isnan(y).all(axis=1) for y in data)
        dense = all(self.has_dense_rows(v) for v in range(len(self.families)))
        return dense and not any(rows.any() for rows in partly)

    def encoded(self, *views: Any) -> tuple[Self, tuple]:
        """Replace views that are None, or left out at the end, by tables of missing cells.

        Args:
            *views: tables, None where a view is missing as a whole.

        Returns:
            The model, and the views as the program takes them.

        Raises:
            ValueError: a view that must be there is missing as a whole.
        """
        known = [_num_rows(view, f"y_{v}") for v, view in enumerate(views) if view is not None]
        if self.num_features is None or not known:
            missing = [f"y_{v}" for v, view in enumerate(views) if view is None]
            if missing:
                raise ValueError(f"{missing[0]} is missing as a whole: leave the view out of the model")
            return self, views
        if len(views) > len(self.families):
            return self, views  # which `check_new` refuses
        views = (*views, *[None] * (len(self.families) - len(views)))
        sizes = zip(views, self.num_features, strict=True)
        return self, tuple(np.full((known[0], d), np.nan) if y is None else y for y, d in sizes)

    def __post_init__(self) -> None:
        """Replace names of families by families and lists by tuples, then store and validate the fields."""
        if isinstance(self.families, str | Family) or not isinstance(self.families, Sequence):
            raise TypeError(
                f"families must be a tuple with one for each view; got {checks.shown(self.families)}"
            )
        self._remember_auto()
        try:
            object.__setattr__(self, "families", tuple(map(as_family, self.families)))
        except (TypeError, ValueError) as error:
            raise type(error)(f"families, one for each view: {error}") from None
        if self.num_specific is None:
            object.__setattr__(self, "num_specific", (0,) * len(self.families))
        for name in ("num_specific", "num_features"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        num_views = len(self.families)
        if num_views < 1:
            raise ValueError("families must name at least one family")
        checks.check_size("num_shared", self.num_shared, 0)
        _check_sizes("num_specific", self.num_specific, num_views, 0)
        if not self.num_shared and not min(self.num_specific):
            raise ValueError(
                "with num_shared=0 every view needs a latent of its own; num_specific is "
                f"{self.num_specific}: give each at least 1, or num_shared=1"
            )
        if self.num_features is not None:
            _check_sizes("num_features", self.num_features, num_views, 1)
        checks.check_choice("specific", self.specific, SPECIFICS)
        checks.check_positive("covariance_scale", self.covariance_scale)
        if self.covariance_degrees.shape != () or not -1 < self.covariance_degrees < np.inf:
            raise ValueError(
                f"covariance_degrees must be a number above -1; got {checks.shown(self.covariance_degrees)}"
            )
        weights = self.view_weights
        if weights.shape not in ((), (num_views,)) or not (np.isfinite(weights) & (weights > 0)).all():
            raise ValueError(
                f"view_weights must be positive, one or {num_views} numbers; got {checks.shown(weights)}"
            )
        super().validate()
        if self.specific == "full_covariance":
            self._check_full_covariance()

    def _check_kernels(self) -> None:
        beta, conjugate = float(self.beta), self.conjugate
        if conjugate is None:
            for family in self.families:
                if not (0 <= beta <= 1 and family.has_kernel):
                    joint_prior.check_joint_prior(family, beta, 0.0, 0.0)
            return
        total = None if self.num_features is None else sum(self.num_features)
        good = conjugate.shape == (2,) or (
            conjugate.ndim == 2 and conjugate.shape[1] == 2 and total in (None, conjugate.shape[0])
        )
        if not good or not np.isfinite(conjugate).all():
            raise ValueError(
                "conjugate must be two finite numbers, lam and nu, or two for each column of all views; "
                f"got shape {conjugate.shape}"
            )
        if conjugate.ndim == 2 and total is None:
            raise ValueError("conjugate with a row for each column needs num_features")
        first = 0
        for v, family in enumerate(self.families):
            pairs = conjugate
            if conjugate.ndim == 2:
                pairs = conjugate[first : first + self.num_features[v]]
                first += self.num_features[v]
            for kind, lam, nu in family.kernel_problems(pairs):
                joint_prior.check_joint_prior(kind, beta, lam, nu)

    def _check_full_covariance(self) -> None:
        if any(self.num_specific):
            raise ValueError(
                "with specific='full_covariance' the views' covariances replace specific latents: "
                f"leave num_specific out; got {checks.shown(self.num_specific)}"
            )
        if self.beta > 0:
            raise ValueError(
                "specific='full_covariance' goes with beta=0: its natural parameters are Gaussian"
            )
        for v, family in enumerate(self.families):
            if family.theta_is_negative:
                raise ValueError(
                    f"specific='full_covariance' makes natural parameters Gaussian, and those of view {v} "
                    f"({type(family).__name__}) are negative: use specific='low_rank'"
                )
            if family.learns_noise and hasattr(family, "groups"):
                raise ValueError(
                    f"view {v} is mixed and has a Gaussian of unknown variance, which "
                    "specific='full_covariance' cannot tell from its covariance: give the noise variance"
                )

    def check(self, *views: np.ndarray) -> None:
        """Raise ValueError if the views do not suit the model."""
        self.check_new(*views)
        checks.check_rows(views[0], 2, "one row has no correlation", "y_0")
        lengths = [view.shape[0] for view in views]
        size = sum(view.shape[1] for view in views)
        for v, view in enumerate(views):
            missing = np.isnan(view)
            if missing.all():
                raise ValueError(f"y_{v} is missing as a whole: leave the view out of the model")
            if missing.all(axis=0).any():
                empty = np.flatnonzero(missing.all(axis=0))
                raise ValueError(
                    f"{checks.column_of(view, empty[0])} of y_{v} is missing in all rows: leave it out, "
                    f"{checks.without_columns(view, empty, f'y_{v}')}"
                )
            if self.num_specific[v] > view.shape[1]:
                raise ValueError(
                    f"num_specific of view {v} must be at most its number of columns, {view.shape[1]}; "
                    f"got {self.num_specific[v]}: lower it, or leave num_specific out"
                )
        empty = np.all([np.isnan(view).all(axis=1) for view in views], axis=0)
        if empty.any():
            rows = np.flatnonzero(empty)
            raise ValueError(
                f"{checks.row_of(views[0], rows[0])} is missing in all views: leave it out, "
                f"{checks.without_rows(views[0], rows, 'y_0')}, and likewise of the other views"
            )
        for what, most in (("the columns of all views", size), ("the rows", lengths[0])):
            if self.num_latents > most:
                raise ValueError(
                    f"there can be at most as many latents as {what}, {most}; got {self.num_latents} "
                    f"({self.num_shared} shared, {self.num_specific} specific): lower num_shared or "
                    f"num_specific"
                )
        self._warn_of_weak_views(views)

    def check_new(self, *views: np.ndarray) -> None:
        """Refuse new rows that do not suit the fitted model; rows without any cell are allowed.

        Args:
            *views: as in `log_likelihood`.

        Raises:
            ValueError: a number of views or columns that the model does not have, rows that differ in number
                between views, or cells outside a family's domain.
        """
        if len(views) != len(self.families):
            raise ValueError(
                f"the model has {len(self.families)} views, one for each of its families; got "
                f"{len(views)}: give "
                "families as many"
            )
        views = [checks.as_matrix(view, f"y_{v}") for v, view in enumerate(views)]
        lengths = [view.shape[0] for view in views]
        if len(set(lengths)) > 1:
            found = ", ".join(map(str, lengths))
            raise ValueError(
                f"the views must have the same rows; they have {found} rows: a row that a view lacks is "
                f"NaN in it"
            )
        for v, (family, view) in enumerate(zip(self.families, views, strict=True)):
            size = None if self.num_features is None else self.num_features[v]
            checks.check_columns(view, size, f"y_{v}", "model")
            family.check(view, f"y_{v}")

    def _warn_of_weak_views(self, views: Sequence[np.ndarray]) -> None:
        """Warn of a view weight so small that the prior alone decides on the view's latents."""
        variance = balanced_variance(self.latent_variance, self.loading_variance, self.beta)
        weights = np.broadcast_to(self.view_weights, (len(views),))
        for v, (weight, view) in enumerate(zip(weights, views, strict=True)):
            if weight < 1 and weight * view.shape[1] < 1 / float(variance):
                checks.warn(
                    f"view_weights of {weight:g} for y_{v} with {view.shape[1]} columns is less than the "
                    f"prior's precision {1 / float(variance):g}: the prior alone decides on that view; raise "
                    "latent_variance * loading_variance along"
                )

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables, view by view."""
        dims = {name: own for name, own in self.dims.items() if "*" not in name}
        has_one_size = len({size for family in self.families for size in family.cut_sizes}) < 2
        for v, family in enumerate(self.families):
            size = None if self.num_features is None else self.num_features[v]
            for name, own in self.dims.items():
                if "*" in name:
                    dims[name.replace("*", str(v))] = tuple(dim.replace("*", str(v)) for dim in own)
            if size is not None and family.num_params(size) != size:
                dims |= {
                    f"loadings_{v}": (f"feature_class_{v}", "latent"),
                    f"loc_{v}": (f"feature_class_{v}",),
                    f"specific_precision_{v}": (f"feature_class_{v}", f"feature_class_{v}_2"),
                    f"natural_params_{v}": ("observation", f"feature_class_{v}"),
                }
            if size is not None and len(family.level_columns(size)) != size:
                dims[f"cut_points_{v}"] = (f"level_feature_{v}", "cut")
            if len(family.cut_sizes) > 1:
                dims[f"cut_points_{v}"] = (f"level_cut_{v}",)
            elif not has_one_size:
                dims[f"cut_points_{v}"] = (dims[f"cut_points_{v}"][0], f"cut_{v}")
        return dims

    # Rows at given parameters: starts, densities, scores, predictions

    def starting_point(self, key: Array, *views: View) -> dict[str, Array]:
        """Starting values of all sites: means at the columns' means, small latents and loadings.

        Natural parameters lie inside the families' domains, which the prior alone does not see to.

        Args:
            key: a JAX key.
            *views: as in `log_likelihood`.

        Returns:
            Value of each site by name, in the shapes of the program.
        """
        if self.standardize and self.units:
            return self.started_in_standard_units(key, *views)
        model = in_current_precision(self)
        sizes = [family.num_params(y.shape[1]) for family, y in zip(model.families, views, strict=True)]
        shapes = [(size, self.num_latents) for size in (views[0].shape[0], *sizes)]
        latents, *loadings = standard_normals(key, *shapes)
        negative = any(family.theta_is_negative for family in self.families)
        scale = START_SCALE * (0.1 if negative else 1.0)
        values = {"latents": scale * latents}
        is_full = self.specific == "full_covariance"
        for v, (family, y) in enumerate(zip(model.families, views, strict=True)):
            size = sizes[v]
            free = jnp.zeros(self.num_latents).at[jnp.asarray(self.latents_of(v))].set(1.0)
            values[f"loadings_{v}"] = scale * free * loadings[v]
            values |= starting_view_parameters(family, y, f"_{v}", not is_full)
            if negative and f"loc_{v}" in values:
                started = starting_sizes(family, values[f"loc_{v}"], self._unit_of(v, size), y.shape[1])
                values[f"loadings_{v}"] *= started[:, None]
            if is_full:
                values[f"specific_precision_{v}"] = jnp.eye(size) / model.covariance_scale
            if is_full and not self.has_dense_rows(v):
                values[f"natural_params_{v}"] = self.mean_theta(v, values).whole()
        if self.ard:
            values["loading_precision"] = jnp.ones(self.num_latents)
        return values

    def natural_params(self, v: int, values: Mapping[str, Array]) -> NaturalParams:
        """Natural parameters Theta_v of a view, flat: drawn where they are noisy, else their mean.

        Args:
            v: the view, from 0.
            values: of the sites, the latents among them.

        Returns:
            Shape (num_observations, num_params).
        """
        drawn = values.get(f"natural_params_{v}")
        return self.mean_theta(v, values).whole() if drawn is None else drawn

    def completions(self) -> dict[str, tuple[str, ...]]:
        """The quantities that `inference.predict` returns: each view.

        Returns:
            Name of the view to its dims.
        """
        return {name: ("observation", f"feature_{v}") for v, name in enumerate(self.data_names)}

    def default_completion(self, *views: np.ndarray) -> str:
        """The view to predict by default: the one missing as a whole, or the only one with missing cells.

        Args:
            *views: as in `log_likelihood`.

        Returns:
            The view's name.

        Raises:
            ValueError: several, or none.
        """
        for condition in (np.all, np.any):
            found = [n for n, y in zip(self.data_names, views, strict=True) if condition(np.isnan(y))]
            if len(found) == 1:
                return found[0]
        names = ", ".join(self.data_names)
        raise ValueError(f"say which view to predict: what= one of {names}")


def _units_of_views(families: Sequence, views: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Prior means of all columns, and the unit of each view; 0 and 1 where a view has none of its own."""
    centres, units = [], []
    for family, view in zip(families, views, strict=True):
        means, variance = units_of(view) if has_units(family) else (np.zeros(view.shape[1]), 1.0)
        centres.append(means)
        units.append(np.sqrt(variance))
    return np.concatenate(centres), np.array(units)


def _with_targets(families: Sequence, num_specific: int | Sequence[int]) -> tuple[int, ...]:
    """The numbers ``num_specific`` of all views, zero for the targets."""
    given = (num_specific,) if isinstance(num_specific, int | np.integer) else tuple(num_specific)
    return given if len(given) == len(families) else (0, *given)


def _num_rows(view: Any, name: str) -> int:
    """Rows of a view as it was passed; what is no table is refused by name."""
    if getattr(view, "shape", ()):
        return view.shape[0]
    return len(view) if hasattr(view, "__len__") else checks.as_matrix(view, name).shape[0]


def _check_sizes(name: str, sizes: Any, num_views: int, least: int) -> None:
    if not isinstance(sizes, tuple) or not all(
        isinstance(size, int | np.integer) and not isinstance(size, bool) for size in sizes
    ):
        raise TypeError(
            f"{name} must be a tuple of whole numbers, one for each view; got {checks.shown(sizes)}"
        )
    if len(sizes) != num_views:
        raise ValueError(
            f"{name} must have one number for each of the {num_views} views; got {checks.shown(sizes)}"
        )
    if min(sizes) < least:
        raise ValueError(f"{name} must be at least {least} for each view; got {checks.shown(sizes)}")
