"""`zoo.Paired` beside its program: what is read off tables, what is refused, and facts of its views."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import jax.numpy as jnp
import numpy as np
from jax import Array

from zoo import checks
from zoo.coordinates import Unit
from zoo.exponential_family import Family, as_family, joint_prior
from zoo.exponential_family.cells import has_units
from zoo.exponential_family.projections import JointPriorModel
from zoo.shapes import KernelParams

if TYPE_CHECKING:
    from zoo.paired import Paired


def _as_families(families: Sequence) -> tuple[Family, ...]:
    try:
        return tuple(map(as_family, families))
    except (TypeError, ValueError) as error:
        raise type(error)(f"families, one for each view: {error}") from None


def _check_sizes(name: str, sizes: Any, model: "Paired", least: int) -> None:
    num_views = len(model.families)
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


def _by_view(least: int) -> dict[str, Any]:
    """The facts of a field with a whole number for each view."""
    check = partial(_check_sizes, least=least)
    return {"check": check, "convert": lambda sizes: tuple(sizes) if isinstance(sizes, list) else sizes}


VIEW_FACTS: dict[str, Any] = {
    "families": {"convert": _as_families, "families": True},
    "num_specific": _by_view(0) | {"otherwise": lambda model: (0,) * len(model.families)},
    "num_features": _by_view(1),
    "view_weights": {"dims": lambda model: {"each view": len(model.families)}, "or_one": True},
}


class SeveralTables(JointPriorModel):
    """A projection of tables side by side; the subclass has the fields of `zoo.Paired`, program and units."""

    families: tuple[Any, ...]
    num_shared: int
    num_specific: tuple[int, ...]
    specific: str
    num_latents: int
    view_weights: Array
    covariance_scale: Array

    if TYPE_CHECKING:

        def __init__(self, families: Any, num_shared: Any, num_specific: Any, **fields: Any) -> None: ...

    def with_families(self, columns: Sequence[Any]) -> Self:
        """The families of the columns of tables and, where it was not given, a latent of each wide view's."""
        given, settled = self._given, super().with_families(columns)
        if settled is self or given["num_specific"] is not None or self.specific == "full_covariance":
            return settled
        widths = [1 if own is None else len(own.kept) for own in columns]
        specific = tuple(int(width > 1) for width in widths)
        if len(widths) != len(self.families) or self.num_shared + sum(specific) > sum(widths):
            return settled
        return replace(settled, num_specific=specific)

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
        """Refuse one family in place of one for each view, then settle the fields."""
        if isinstance(self.families, str | Family) or not isinstance(self.families, Sequence):
            raise TypeError(
                f"families must be a tuple with one for each view; got {checks.shown(self.families)}"
            )
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        num_views = len(self.families)
        if num_views < 1:
            raise ValueError("families must name at least one family")
        if not self.num_shared and not min(self.num_specific):
            raise ValueError(
                "with num_shared=0 every view needs a latent of its own; num_specific is "
                f"{self.num_specific}: give each at least 1, or num_shared=1"
            )
        super().validate()
        if self.unit is not None and not self.standardize and self._given is None:
            self._check_unit()
        if self.specific == "full_covariance":
            self._check_full_covariance()

    def _check_unit(self) -> None:
        """Refuse a unit of views whose cells have none, and several of a view without ``standardize``."""
        if self.unit.shape not in ((), (len(self.families),)):
            raise ValueError(
                f"unit must have one number for each of the {len(self.families)} views; got shape "
                f"{self.unit.shape}: units of columns go with standardize=True"
            )
        units = np.broadcast_to(self.unit, (len(self.families),))
        for v, (family, unit) in enumerate(zip(self.families, units, strict=True)):
            if unit != 1 and not has_units(family):
                raise ValueError(
                    "unit is that of Gaussian cells of unknown noise, all columns alike, and not of "
                    f"{type(family).__name__} cells: give 1 for view {v}; got {checks.shown(self.unit)}"
                )

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
        for v, view in enumerate(views):
            if len(view) and np.isnan(view).all():
                raise ValueError(f"y_{v} is missing as a whole: leave the view out of the model")
        super().check(*views)
        for v, view in enumerate(views):
            if self.num_specific[v] > view.shape[1]:
                raise ValueError(
                    f"num_specific of view {v} must be at most its number of columns, {view.shape[1]}; "
                    f"got {self.num_specific[v]}: lower it, or leave num_specific out"
                )
        size = sum(view.shape[1] for view in views)
        for what, most in (("the columns of all views", size), ("the rows", len(views[0]))):
            if self.num_latents > most:
                raise ValueError(
                    f"there can be at most as many latents as {what}, {most}; got {self.num_latents} "
                    f"({self.num_shared} shared, {self.num_specific} specific): lower num_shared or "
                    f"num_specific"
                )
        self._warn_of_weak_views(views)

    def _warn_of_weak_views(self, views: Sequence[np.ndarray]) -> None:
        """Warn of a view weight so small that the prior alone decides on the view's latents."""
        variance = self.entry_variance
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

    def views_reversed(self) -> tuple[Self, np.ndarray]:
        """The same model of the views in reverse order.

        Returns:
            The model, and the place in this one of each of its latents, shape (num_latents,).
        """
        last = len(self.families) - 1
        fields: dict[str, Any] = {
            name: tuple(reversed(getattr(self, name))) for name in ("families", "num_specific")
        }
        if self.num_features is not None:
            fields["num_features"] = tuple(reversed(self.num_features))
        for name in ("view_weights",) if self.standardize else ("view_weights", "unit"):
            if np.ndim(getattr(self, name)):
                fields[name] = getattr(self, name)[::-1]
        widths = {"loc_mean": 1, "natural_unit": 1, "conjugate": 2} | (
            {"unit": 1} if self.standardize else {}
        )
        for name in [name for name, axes in widths.items() if np.ndim(getattr(self, name)) == axes]:
            pairs = zip(self.families, self.num_features, strict=True)
            sizes = [family.num_params(d) if name == "natural_unit" else d for family, d in pairs]
            parts = np.split(getattr(self, name), np.cumsum(sizes)[:-1])
            fields[name] = np.concatenate(parts[::-1])
        places = [self.latents_of(v)[self.num_shared :] for v in range(last, -1, -1)]
        order = np.concatenate([np.arange(self.num_shared), *places]).astype(int)
        return replace(self, **fields), order

    # Facts of the views

    @property
    def scale_remedies(self) -> tuple[str, ...]:
        """None for views whose noise has a full covariance."""
        pairs = enumerate(super().scale_remedies)
        return tuple("" if self.has_dense_rows(v) else own for v, own in pairs)

    @property
    def reads_units(self) -> bool:
        """Also only with the default scale of the views' covariances."""
        return super().reads_units and (self.standardize or bool(self.covariance_scale == 1))

    @property
    def num_params(self) -> tuple[int, ...]:
        """Of each view the number of natural parameters of a row."""
        return tuple(f.num_params(d) for f, d in zip(self.families, self.num_features, strict=True))

    def latents_of(self, v: int) -> tuple[int, ...]:
        """Indices of the latents that a view sees: the shared ones, then its specific ones."""
        before = self.num_shared + sum(self.num_specific[:v])
        return (*range(self.num_shared), *range(before, before + self.num_specific[v]))

    def has_dense_rows(self, v: int) -> bool:
        """Whether the rows of a view are Gaussian with covariance Psi_v."""
        return self.specific == "full_covariance" and self.families[v].learns_noise

    def has_noisy_params(self, v: int) -> bool:
        """Whether the natural parameters of a view are drawn about their mean."""
        return self.specific == "full_covariance" and not self.has_dense_rows(v)

    def param_sizes(self, v: int) -> Array | None:
        """Sizes of the natural parameters of a view, in which its loadings and means are, (num_params,)."""
        sizes, counts = self.natural_unit, self.num_params
        if sizes is None or not sizes.ndim:
            return None if sizes is None else jnp.broadcast_to(sizes, counts[v : v + 1])
        return sizes[sum(counts[:v]) : sum(counts[: v + 1])]

    def kernel_of(self, v: int) -> KernelParams:
        """The parameters lam and nu of the kernel of a view, (2,), or of each of its columns."""
        pairs, first = self.conjugate, sum(self.num_features[:v])
        return pairs if pairs.ndim == 1 else pairs[first : first + self.num_features[v]]

    def _noise_units(self, v: int) -> Mapping[str, Unit]:
        """Of the precision of a view where it stands for the noise."""
        if self.specific == "full_covariance":
            return {f"specific_precision_{v}": Unit(-1, (-2, -1), part=v)}
        return super()._noise_units(v)

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


def _num_rows(view: Any, name: str) -> int:
    """Rows of a view as it was passed; what is no table is refused by name."""
    if getattr(view, "shape", ()):
        return view.shape[0]
    return len(view) if hasattr(view, "__len__") else checks.as_matrix(view, name).shape[0]


def _with_targets(families: Sequence, num_specific: int | Sequence[int]) -> tuple[int, ...]:
    """The numbers ``num_specific`` of all views, zero for the targets."""
    given = (num_specific,) if isinstance(num_specific, int | np.integer) else tuple(num_specific)
    return given if len(given) == len(families) else (0, *given)
