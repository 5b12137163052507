r"""Paired exponential-family projections: supervised EPCA, EPLS, ECCA, supervised ECCA, any number of views.

Generative process, in the letters of Virtanen (2010, chapter 4), views counted from 0::

    V_v[d]   ~ Normal(0, sigma_V^2 I),   over the latents that view v sees; zero for the others
    mu_v     ~ Normal(0, loc_variance)
    u_n      ~ Normal(0, sigma_U^2 I_K)
    theta_vn = V_v u_n + mu_v
    y_vnd    ~ the exponential family of view v with natural parameter theta_vnd

Latents: the ``num_shared`` ones that all views see come first, then those of view 0 alone, of view 1, ...

* SEPCA: all latents are shared (`Paired.sepca`).
* EPLS: the targets y_0 see shared latents only, covariates have their own besides (`Paired.epls`).
* ECCA: every view has its own latents besides the shared ones (`Paired.ecca`).
* SECCA: ECCA with targets y_0 that have none of their own (`Paired.secca`).

With 0 < beta < 1 the density of U and V is multiplied by the conjugate kernel at every theta
(`zoo.joint_prior`), and the prior has no known normaliser.

With ``specific="full_covariance"`` (the model of GiBECCA, section 6.2.3) all latents are shared and every
view has a full covariance instead of latents of its own::

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
           ``cut_points_0``, ...       (D_v, C - 1)   rising; `Ordinal` views
Psi_v^-1   ``specific_precision_0``    (D_v, D_v)     positive definite; ``"full_covariance"`` only
theta_v    ``natural_params_0``, ...   (N, D_v)       real; ``"full_covariance"`` only, but Gaussian views
y_v        ``y_0``, ``y_1``, ...       (N, D_v)       data; NaN is a missing cell, a row of NaN a missing row
=========  ==========================  =============  =====================================================

With ``view_weights`` alpha the log density of the cells of view v is multiplied by alpha_v (26). A fixed
prior is then 1 / alpha_v times stronger for that view: a warning says when it decides alone.

Symmetry: rotation of the shared latents, and of those of each view, among themselves. Of the two variances
only the product matters for Theta: all sites are drawn in the balanced scale. EPLS with one target column is
the same model as SEPCA with as many latents in all: rotate until the target lies on the first axis.

Departures from the source. beta = 1 is for point estimates only. The kernel sees the whole Theta, mean
included. The source's Gibbs sampler for the full-covariance model does not target its posterior; this program
is what is meant.

References: Virtanen (2010), chapters 4 and 6; Guo (2009), SEPCA; Rish et al. (2008), view weights; Bach and
Jordan (2005), probabilistic CCA; Klami and Kaski (2007), Bayesian CCA.
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
from zoo.exponential_family import Family, as_family
from zoo.joint_prior import balanced_variance, joint_prior_factor, refuse_improper
from zoo.model import Model, in_current_precision, static
from zoo.paired_checks import check_fields, check_views, read_views
from zoo.paired_rows import PairedRows
from zoo.suitable_fields import check_not_sparse, family_of, kind_of_cells, natural_param_widths
from zoo.view_parameters import sample_view_parameters
from zoo.zero_padding import padded

__all__ = ["Paired"]


@dataclass(frozen=True, eq=False)
class Paired(PairedRows, Model):
    """Several tables with the same rows, explained by shared latents and latents of each table alone.

    Attributes:
        families: one for each view: a family of `zoo.exponential_family`, its name, or a tuple with one for
            each column of the view.
        num_shared: K_S, latents that all views see.
        num_specific: K_v of each view, 0 where it has none of its own; None: none at all.
        specific: ``"low_rank"``: the latents above. ``"full_covariance"``: a covariance for each view.
        view_weights: alpha_v > 0 of each view; one number serves all.
        beta: share of the conjugate kernel in the prior, in [0, 1); 1 for a point estimate only.
        latent_variance: sigma_U^2 > 0.
        loading_variance: sigma_V^2 > 0.
        loc_variance: prior variance of the means of natural parameters.
        conjugate: (lam, nu) of the kernels: two numbers for all cells, or a row of two for each column of all
            views. None: lam = 0.1 and nu such that the kernel's mean is that of the view's cells. Not used
            with ``beta=0``.
        ard: whether each latent has a precision of its loadings, Gamma(ard_concentration, ard_rate); with
            ``beta=0`` only.
        ard_concentration: of the precisions' prior.
        ard_rate: of the precisions' prior.
        covariance_scale: S_v = this times I; used with ``"full_covariance"`` only, as the next one.
        covariance_degrees: nu_v = D_v + this > D_v - 1; at 2 the mean of Psi_v is S_v.
        num_features: D_v of each view; read off the data.

    Example:
        >>> import numpy as np, zoo
        >>> y_0, y_1 = np.random.default_rng(0).integers(0, 2, size=(2, 20, 4))
        >>> model = zoo.Paired.ecca(("bernoulli", "bernoulli"), num_shared=1, num_specific=(1, 2))
        >>> model.filled(y_0, y_1).num_latents
        4
    """

    families: tuple[Family | str, ...] = ("bernoulli", "bernoulli")
    num_shared: int = static(default=1)
    num_specific: tuple[int, ...] | None = static(default=None)
    specific: str = static(default="low_rank")
    view_weights: Array = 1.0
    beta: Array = 0.0
    latent_variance: Array = 1.0
    loading_variance: Array = 1.0
    loc_variance: Array = 100.0
    conjugate: Array | None = None
    ard: bool = static(default=False)
    ard_concentration: Array = 1.0
    ard_rate: Array = 1.0
    covariance_scale: Array = 1.0
    covariance_degrees: Array = 2.0
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
    symmetries = ("rotation", "sign")
    methods = ("map", "gibbs", "vb", "nuts", "hmc", "svi", "closed_form")
    sums_out_locals = False
    latent_site = "latents"
    num_needed = 1

    def __call__(self, *views: Array, num_observations: int | None = None) -> tuple[Array, ...]:
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
        own = dist.Normal(0.0, scale[jnp.asarray(columns, int)]).expand([num_params, len(columns)])
        values = {name: numpyro.sample(name, padded(own.to_event(2), columns, self.num_latents))}
        is_full = self.specific == "full_covariance"
        values |= sample_view_parameters(prior.families[v], size, prior.loc_variance, f"_{v}", not is_full)
        if is_full:
            rate = prior.covariance_scale * jnp.eye(num_params)
            precision = dist.Wishart(num_params + prior.covariance_degrees, rate_matrix=rate)
            values[f"specific_precision_{v}"] = numpyro.sample(f"specific_precision_{v}", precision)
        return values

    def _sample_cells(self, v: int, values: dict[str, Array], y: Array | None) -> Array:
        """The cells of one view, inside the plate of rows."""
        prior, theta = in_current_precision(self), self.mean_theta(v, values)
        if self.specific == "full_covariance" and not self.has_dense_rows(v):
            factor = jnp.linalg.cholesky(self.specific_covariance(v, values))
            noisy = dist.MultivariateNormal(theta.whole(), scale_tril=factor)
            values[f"natural_params_{v}"] = numpyro.sample(f"natural_params_{v}", noisy)
        rows = self.rows_of(v, values)
        if self.has_kernel:
            joint_prior_factor(prior.families[v], theta, prior.beta, self.kernel_of(v), f"joint_prior_{v}")
        with numpyro.handlers.scale(scale=jnp.broadcast_to(prior.view_weights, (len(self.families),))[v]):
            return numpyro.sample(f"y_{v}", rows, obs=y)

    # What the program is made of

    @property
    def num_latents(self) -> int:
        """K, shared and of each view."""
        return self.num_shared + sum(self.num_specific)

    @property
    def data_names(self) -> tuple[str, ...]:
        """Y_0, y_1, ..."""
        return tuple(f"y_{v}" for v in range(len(self.families)))

    @property
    def cell_families(self) -> tuple[Family, ...]:
        """The family of the cells of each view."""
        return self.families

    @property
    def loading_sites(self) -> Mapping[str, str]:
        """Loadings of each view to the view's suffix."""
        return {f"loadings_{v}": f"_{v}" for v in range(len(self.families))}

    def view_covariances(self, values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Covariances of two views: of the first, of the first with the second, of the second.

        Args:
            values: of one draw.

        Returns:
            Three matrices; of cells that are not Gaussian those of natural parameters.
        """
        if len(self.families) != 2:
            return super().view_covariances(values)
        variance = float(balanced_variance(self.latent_variance, self.loading_variance, self.beta))
        w = [values[f"loadings_{v}"] for v in (0, 1)]
        first, second = (variance * own @ own.T + self._noise(v, values, len(own)) for v, own in enumerate(w))
        return first, variance * w[0] @ w[1].T, second

    def _noise(self, v: int, values: Mapping[str, np.ndarray], size: int) -> np.ndarray | float:
        """Psi_v of one draw; zero where the cells have no variance of their own."""
        if self.specific == "full_covariance":
            return np.linalg.inv(values[f"specific_precision_{v}"])
        given = values.get(f"noise_variance_{v}", getattr(self.families[v], "noise_variance", None))
        return 0.0 if given is None else float(given) * np.eye(size)

    def latents_of(self, v: int) -> tuple[int, ...]:
        """Places of the latents that a view sees: the shared ones and its own.

        Args:
            v: the view, from 0.

        Returns:
            Their numbers, from 0.
        """
        before = self.num_shared + sum(self.num_specific[:v])
        return (*range(self.num_shared), *range(before, before + self.num_specific[v]))

    def kernel_of(self, v: int) -> Array:
        """Lam and nu of a view, or of each of its columns.

        Args:
            v: the view, from 0.

        Returns:
            Shape (2,), or (features of the view, 2).
        """
        pairs = in_current_precision(self.conjugate)
        first = sum(self.num_features[:v])
        return pairs if pairs.ndim == 1 else pairs[first : first + self.num_features[v]]

    @property
    def prior(self) -> str:
        """``"unnormalised"`` with beta > 0 (``"improper"`` with beta = 1), else ``"proper"``."""
        if not self.has_kernel:
            return "proper"
        return "improper" if isinstance(self.beta, np.ndarray) and self.beta == 1 else "unnormalised"

    def caution(self, method: str) -> None:
        """Refuse what would integrate where there is no integral (beta = 1)."""
        refuse_improper(float(self.beta), method)

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables, view by view."""
        dims = {name: own for name, own in self.dims.items() if "*" not in name}
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
        return dims

    # The papers' models

    @classmethod
    def sepca(cls, families: Sequence, num_shared: int, **fields: Any) -> Self:
        """Supervised EPCA: all latents are shared, targets and covariates alike.

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
        """Exponential-family PLS: targets y_0, covariates with latents of their own besides.

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
        """Exponential-family CCA: every view has latents of its own.

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
        """Supervised ECCA: targets y_0 without latents of their own, then views with theirs.

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
        """The model with its sizes, and the kernels' means, read off the data; ``overrides`` are fields."""
        families = overrides.get("families", ("bernoulli",) * len(views))
        given = {name: value for name, value in overrides.items() if value is not None}
        return cls(**(read_views(views, families, overrides.get("beta", 0.0)) | given))

    def filled(self, *data: Any) -> Self:
        """The model with its sizes and, where there are kernels, their means."""
        if self.num_features is not None and (self.conjugate is not None or self.beta == 0):
            return self
        return super().filled(*data)

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """Families, one shared latent and one of each view's, and priors in the units of the data.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        check_num_parts(cls.__name__, len(data), 2)
        check_not_sparse(cls.__name__, data[0])
        kinds = [kind_of_cells(part) for part in data]
        fields = {
            "families": tuple(map(family_of, kinds)),
            "num_shared": 1,
            "num_specific": tuple(int(part.shape[1] > 1) for part in data),
        }
        if set(kinds) == {"gaussian"} and (widths := natural_param_widths(np.hstack(data))):
            fields |= {"loading_variance": widths[0], "loc_variance": widths[1]}
        return fields

    def __post_init__(self) -> None:
        """Names of families are families and lists are tuples; then as every model."""
        if isinstance(self.families, str | Family) or not isinstance(self.families, Sequence):
            raise TypeError(f"families must be a tuple with one for each view; got {self.families!r}")
        object.__setattr__(self, "families", tuple(map(as_family, self.families)))
        if self.num_specific is None:
            object.__setattr__(self, "num_specific", (0,) * len(self.families))
        for name in ("num_specific", "num_features"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        check_fields(self)
        if self.beta == 0:
            object.__setattr__(self, "conjugate", None)

    def check(self, *views: np.ndarray) -> None:
        """Raise ValueError if the views do not suit the model."""
        check_views(self, views)

    def _num_rows(
        self, views: tuple[Array, ...], num_observations: int | None
    ) -> tuple[int, tuple[int, ...]]:
        if views:
            if len(views) != len(self.families):
                raise TypeError(f"the program takes {', '.join(self.data_names)}; got {len(views)} views")
            if self.conjugate is None and isinstance(self.beta, np.ndarray) and self.beta > 0:
                raise ValueError("conjugate is not set: give it, or use Paired.from_data(y_0, y_1, ...)")
            return views[0].shape[0], tuple(view.shape[1] for view in views)
        if self.num_features is None:
            raise ValueError("num_features is not set: give it, or use Paired.from_data(y_0, y_1, ...)")
        if self.prior != "proper":
            raise ValueError(
                "beta > 0 multiplies the prior by a factor, which drawing from the program would ignore: "
                "inference.extend(tree, 'prior') samples it"
            )
        if num_observations is None:
            raise ValueError("give y_0, y_1, ... to condition on, or num_observations to draw")
        return num_observations, self.num_features


def _with_targets(families: Sequence, num_specific: int | Sequence[int]) -> tuple[int, ...]:
    """``num_specific`` of all views, none for the targets."""
    given = (num_specific,) if isinstance(num_specific, int | np.integer) else tuple(num_specific)
    return given if len(given) == len(families) else (0, *given)
