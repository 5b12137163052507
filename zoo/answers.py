"""What follows from a program in closed form: densities, scores and completions of rows at given parameters.

An author writes `Answers` in the model's own coordinates; `answer_of` is how everyone else reaches them, and
the only place where values, rows and results of an answer change coordinates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from zoo.coordinates import Coordinates, Unit
from zoo.coordinates.of_models import inside, part_weights
from zoo.programs import LOG_ROWS, in_current_precision, log_rows
from zoo.shapes import Values
from zoo.sparse import Observed

if TYPE_CHECKING:
    from zoo.model import Model


class TypicalCells(NamedTuple):
    """Typical cells of every cluster in some columns, in the units of the data.

    Attributes:
        quantity: what the values are, such as ``"mean"`` or ``"probability of 1"``.
        columns: positions of the columns in the first part of the data, shape (num_columns,).
        values: shape (..., num_clusters, num_columns).
        spread: standard deviation of cells within a cluster, the same shape; None: the quantity has none.
        of_logs: whether values and spread are of the logarithms of cells, whose exponentials are read. Draws
            are averaged before: the mean of a cell with a Gaussian logarithm need not exist in the posterior.
    """

    quantity: str
    columns: np.ndarray
    values: Any
    spread: Any
    of_logs: bool = False


class Completion(NamedTuple):
    """A quantity that `inference.predict` can return.

    Attributes:
        dims: of mean and variance, rows first.
        part: the part of the data that holds such cells; None: the quantity is no cell.
        fills: whether missing cells are filled in and observed ones stay; else all rows have an answer.
    """

    dims: tuple[str, ...]
    part: str | None
    fills: bool = True


class Answers:
    """Closed forms of a model; values and rows are in the model's own coordinates, and it has no others.

    Attributes:
        has_density: whether `log_rows` is a density of each row.
        estimates_density: whether it is estimated by draws that depend on a row's place.
        projects_by_draws: whether `scores` needs no more than a draw.
        weighs_rows: whether the program, called with data, is a product over rows given the parameters, with
            all that belongs to a row summed out, so that a power of a row's density weighs the row.
    """

    has_density: ClassVar[bool] = True
    estimates_density: ClassVar[bool] = False
    projects_by_draws: ClassVar[bool] = True
    weighs_rows: ClassVar[bool] = False

    @classmethod
    def of(cls, model: "Model") -> Self:
        """The closed forms of a model whose class names these.

        Args:
            model: the model.

        Returns:
            Those for its fields.
        """
        return cls()

    def sums_out_locals(self, model: "Model") -> bool:
        """Whether `log_rows` has the latents of a row integrated out."""
        return True

    def scores_are_linear(self, model: "Model") -> bool:
        """Whether scores are affine in the observed cells of the first part of the data, others unknown."""
        return False

    def kept_locals(self, model: "Model") -> tuple[str, ...]:
        """Latents of rows that the program draws though `log_rows` has them integrated out.

        Args:
            model: the model.

        Returns:
            Site names.
        """
        return ()

    def has_moments(self, model: "Model") -> bool:
        """Whether methods that sum rows up to their number, mean and scatter may do so."""
        return True

    def needs_fitted_rows(self, model: "Model") -> bool:
        """Whether new rows are judged by the fitted ones, beside the parameters."""
        return False

    def density_passes(self, model: "Model") -> int:
        """How often `log_rows` passes over the cells of a row where others pass once."""
        return 1

    def has_several_modes(self, model: "Model") -> bool:
        """Whether the joint density is known to have several modes of different height at these priors."""
        return False

    def resolving(self, model: "Model", variables: Mapping[str, Any]) -> Any:
        """The model, which integrates over latents finely enough for cells that change steeply.

        Args:
            model: the model.
            variables: of a fit, estimates or draws with any leading axes.

        Returns:
            The model; itself where its integrals need no such care.
        """
        return model

    def log_rows(self, model: "Model", values: Values, *data: Observed) -> Array:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            model: the model.
            values: of the sites.
            *data: parts of the data, NaN where a cell is missing.

        Returns:
            Shape (num_observations,), in nats.

        Raises:
            ValueError: the model has none.
        """
        return log_rows(model, values, data)

    def conditionals(self, model: "Model", values: Values, *data: Observed) -> dict[str, Distribution]:
        """Conditional distributions of the latents of the rows that the program sums out.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            Site name to distribution over rows.
        """
        return {}

    def start(self, model: "Model", key: Array, *data: Observed) -> dict[str, Array] | None:
        """Starting values of all sites for MAP, NUTS and HMC.

        Args:
            model: as of `log_rows`.
            key: a JAX key.
            *data: as of `log_rows`.

        Returns:
            Site name to value, shapes as in ``dims``; None: the default of the algorithm.
        """
        return None

    def derived(self, model: "Model", values: Values) -> dict[str, Array]:
        """The latents of the rows of a draw as they are stored, and what follows from them; default: labels.

        Args:
            model: as of `log_rows`.
            values: of the sites and of these latents.

        Returns:
            Variable name to value, shapes as in ``dims``.
        """
        cluster = model.roles.cluster
        return {} if cluster is None or cluster not in values else {cluster: values[cluster]}

    def scores(self, model: "Model", values: Values, *data: Observed, kind: str = "latent") -> Array:
        """Posterior mean scores of rows; those of kind ``"latent"`` have no unit.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.
            kind: ``"latent"``, or ``"orthonormal"`` where the model has loadings.

        Returns:
            A score a row, dims ``roles.scores``.

        Raises:
            ValueError: the model has none.
        """
        drawn = "; latents that its program draws are in tree['posterior']"
        raise ValueError(f"{type(model).__name__} has no scores: its answers define none{drawn}")

    def scores_of_draw(self, model: "Model", values: Values, *data: Observed, kind: str = "latent") -> Array:
        """`scores` for an average over draws, where a point estimate has those of its own maximum.

        Args:
            model: as of `log_rows`.
            values: of one draw.
            *data: likewise.
            kind: as of `scores`.

        Returns:
            As of `scores`.
        """
        return model.scores(values, *data, kind=kind)

    def scores_covariance(self, model: "Model", values: Values, *data: Observed) -> Array:
        """Posterior covariance of the ``"latent"`` scores of each row.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            Dims ``roles.scores`` and a second latent dim.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"the scores of {type(model).__name__} have no covariance")

    def typical_cells(self, model: "Model", values: Values) -> tuple[TypicalCells, ...]:
        """Typical cells of each cluster at one draw: means, rates, probabilities of levels.

        Args:
            model: as of `log_rows`.
            values: likewise.

        Returns:
            One entry a quantity; empty: clusters are described by no cells, or there are none.
        """
        return ()

    def cells_given(self, model: "Model", values: Values, *data: Observed) -> tuple[TypicalCells, ...]:
        """Typical cells of each row in each cluster at one draw, given the cells of it that were observed.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            As `typical_cells`, with a leading axis over rows, of size 1 where all have the same.
        """
        return tuple(
            part._replace(values=part.values[None], spread=None if part.spread is None else part.spread[None])
            for part in self.typical_cells(model, values)
        )

    def log_density_by_cluster(self, model: "Model", values: Values, *data: Observed) -> Array:
        """Log density of each row were it in each of the clusters, at one draw.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.

        Returns:
            Shape (num_observations, num_clusters), in nats.

        Raises:
            ValueError: the model has no clusters of rows.
        """
        cluster, weight = model.roles.cluster, model.roles.weight
        labels = None if cluster is None else self.conditionals(model, values, *data).get(cluster)
        if labels is None or weight is None or weight not in values:
            raise ValueError(f"{type(model).__name__} has no labels of rows that can be summed out")
        rows = self.log_rows(model, values, *data)[:, None]
        return rows + jax.nn.log_softmax(labels.logits, axis=-1) - jnp.log(values[weight])

    def view_variances(self, model: "Model", values: Values) -> dict[str, tuple[Array, Array]]:
        """Variance of each column that the latents explain at one draw, and what they leave.

        Args:
            model: as of `log_rows`.
            values: likewise.

        Returns:
            Suffix of the view, as in `Roles.loadings`, to two arrays of shape (num_columns,); without those
            of which neither a site nor a field ``noise_variance`` with that suffix says what is left.
        """
        found = {}
        for site, suffix in model.roles.loadings.items():
            left = values.get(f"noise_variance{suffix}", getattr(model, f"noise_variance{suffix}", None))
            if site in values and left is not None:
                explained = jnp.sum(jnp.asarray(values[site]) ** 2, axis=-1)
                found[suffix] = explained, jnp.broadcast_to(jnp.asarray(left), explained.shape)
        return found

    def view_covariances(self, model: "Model", values: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
        """Covariances of two views that share ``num_shared`` latents, for their canonical correlations.

        Args:
            model: the model.
            values: of one draw, shapes as in ``dims``, in the coordinates of the data.

        Returns:
            Covariance of the first view, of the first with the second, of the second; shapes (D_0, D_0),
            (D_0, D_1), (D_1, D_1) for D_v features.

        Raises:
            ValueError: the model is not of two views.
        """
        raise ValueError(
            f"canonical correlations are of zoo.Paired with two views; got {type(model).__name__.lower()!r}"
        )

    def num_canonical(self, model: "Model") -> int:
        """Number of canonical correlations between two views; 0: the model is not of two views.

        Args:
            model: the model.

        Returns:
            How many.
        """
        return 0

    def prior_of_occupied(
        self, model: "Model", values: Values, *data: Observed
    ) -> Callable[[str, Array], Array] | None:
        """The log prior density of a site where components without rows are integrated out.

        Args:
            model: the model.
            values: of the sites.
            *data: the data.

        Returns:
            ``density(name, log_prob)``, a scalar in nats, of a site with these terms in the program; None:
                every term counts.
        """
        return None

    def check_resolved(
        self, model: "Model", values: Mapping[str, np.ndarray], num_rows: float, dtype: str, x: Any = None
    ) -> None:
        """Raise FloatingPointError if rounding has spoilt a fit, warn if it has blurred it.

        Args:
            model: the model.
            values: draws (or the estimate) of the sites.
            num_rows: rows of the data, the sum of their weights.
            dtype: the precision of the fit.
            x: the rows themselves, whose columns have names in messages.
        """

    def leaves_some_empty(self, model: "Model", num_rows: float) -> bool:
        """Whether rows in all components would surprise, which says that there may be more clusters.

        Args:
            model: the model.
            num_rows: how many rows there are.

        Returns:
            Whether the prior would leave some component empty.
        """
        return False

    def completions(self, model: "Model") -> dict[str, Completion]:
        """The quantities of `cells`, chosen by ``what`` of `inference.predict`.

        Args:
            model: the model.

        Returns:
            Name to what it is; empty: the model has no `cells`.
        """
        if not has_answer(model, "cells"):
            return {}
        part = model.data_names[0]
        return {"cells": Completion(model.variable_dims[part], part)}

    def default_completion(self, model: "Model", *data: Observed) -> str | None:
        """The quantity that is returned where none is chosen.

        Args:
            model: the model.
            *data: parts of the data, in the model's order.

        Returns:
            One of `completions_of`; None: there is none.
        """
        return next(iter(completions_of(model)), None)

    def cells(self, model: "Model", values: Values, *data: Observed, **options: str) -> tuple[Array, Array]:
        """Rows with missing cells at their conditional mean, and the conditional variance of each cell.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.
            **options: ``what``, one of `completions`, of a model that has several.

        Returns:
            Two arrays of the dims of the completion.

        Raises:
            ValueError: the model has none.
        """
        raise ValueError(f"{type(model).__name__} predicts nothing but its scores")

    def rests_on_tail(
        self, model: "Model", values: Values, mean: Array, variance: Array, *data: Observed, **options: str
    ) -> Array | None:
        """Which of the `cells` have an expectation that the tail of their latents dominates.

        Args:
            model: as of `log_rows`.
            values: in the coordinates of the data, as all that follows.
            mean: of `cells`.
            variance: of `cells`.
            *data: rows, as given to it.
            **options: likewise.

        Returns:
            Boolean, the shape of ``mean``; None: no cells of the model have a tail.
        """
        return None


#: What says something of the model, or is of the coordinates of the data.
_AS_PASSED = {
    "sums_out_locals", "kept_locals", "has_moments", "needs_fitted_rows", "has_several_modes", "resolving",
    "derived", "completions", "default_completion", "rests_on_tail", "view_covariances", "num_canonical",
    "prior_of_occupied", "leaves_some_empty", "check_resolved", "scores_are_linear", "density_passes",
}  # fmt: skip


# Types of the answers by name; a name that no model has is a mistake to type checkers
_Is = Literal["sums_out_locals", "scores_are_linear", "has_moments", "needs_fitted_rows",
              "has_several_modes", "leaves_some_empty"]  # fmt: skip
_Row = Literal["log_rows", "scores", "scores_of_draw", "scores_covariance", "log_density_by_cluster",
               "document_bounds", "sampling_errors"]  # fmt: skip
_Tail = Literal["rests_on_tail", "class_probs"]
_Typical = Literal["typical_cells", "cells_given"]


@overload
def answer_of(model: "Model", name: _Is, *given: Any) -> bool: ...
@overload
def answer_of(model: "Model", name: _Row, *given: Any, kind: str = ...) -> Array: ...
@overload
def answer_of(model: "Model", name: _Tail, *given: Any, what: str | None = ...) -> Array | None: ...
@overload
def answer_of(model: "Model", name: _Typical, *given: Any) -> tuple[TypicalCells, ...]: ...
@overload
def answer_of(model: "Model", name: Literal["cells"], *given: Any, **options: Any) -> tuple[Array, Array]: ...
@overload
def answer_of(model: "Model", name: Literal["conditionals"], *given: Any) -> dict[str, Distribution]: ...
@overload
def answer_of(model: "Model", name: Literal["derived"], *given: Any) -> dict[str, Array]: ...
@overload
def answer_of(model: "Model", name: Literal["kept_locals"]) -> tuple[str, ...]: ...
@overload
def answer_of(model: "Model", name: Literal["density_passes"]) -> int: ...
@overload
def answer_of(model: "Model", name: Literal["resolving"], *given: Any) -> Any: ...
@overload
def answer_of(model: "Model", name: Literal["completions"]) -> dict[str, Completion]: ...
@overload
def answer_of(model: "Model", name: Literal["default_completion"], *given: Any) -> str | None: ...
@overload
def answer_of(
    model: "Model", name: Literal["view_variances"], *given: Any
) -> dict[str, tuple[Array, Array]]: ...
@overload
def answer_of(model: "Model", name: Literal["view_covariances"], *given: Any) -> tuple[np.ndarray, ...]: ...
@overload
def answer_of(model: "Model", name: Literal["num_canonical"]) -> int: ...
@overload
def answer_of(
    model: "Model", name: Literal["prior_of_occupied"], *given: Any
) -> Callable[[str, Array], Array] | None: ...
@overload
def answer_of(model: "Model", name: Literal["check_resolved"], *given: Any) -> None: ...


def answer_of(model: "Model", name: str, *given: Any, **options: Any) -> Any:
    """An answer of a model, in the coordinates of the data.

    Args:
        model: the model.
        name: of the function of `Answers`.
        *given: values of the sites, and parts of the data, or what else the function takes.
        **options: of the answer.

    Returns:
        What the function returns.
    """
    answer = getattr(model.answers.of(model), name)
    if name in _AS_PASSED:
        return answer(model, *given, **options)
    (values, *data), model = given, in_current_precision(model)
    own = model.own_coordinates
    if own is None:
        return answer(model, values, *data, **options)
    units = model.units
    inner = {
        site: own.inward(value, units[site]) if site in units else value for site, value in values.items()
    }
    parts = own.parts_inward(data, model.data_names, units)
    found = answer(inside(model, own), inner, *parts, **options)
    if name in ("log_rows", "log_density_by_cluster"):
        lost = own.log_scale_of_rows(data, part_weights(model))
        return found - (lost if name == "log_rows" else lost[..., None])
    if name == "scores":
        return scores_outward(model, found, **options)
    if name in ("typical_cells", "cells_given"):
        return _typical_outward(model, own, found)
    if name == "view_variances":
        part_of = dict(zip(model.roles.loadings.values(), model.data_names, strict=False))
        return {
            suffix: tuple(_variance_outward(model, own, part_of[suffix], part) for part in pair)
            for suffix, pair in found.items()
        }
    if name == "cells" and (filled := completion_of(model, options.get("what"))).part in units:
        return _cells_outward(model, own, found, data, filled)
    return found


def completions_of(model: "Model") -> dict[str, Completion]:
    """The quantities that `inference.predict` can return, chosen by ``what``.

    Args:
        model: the model.

    Returns:
        Name to what it is: ``"clusters"`` and ``"probabilities"`` of these where the label of a row has a
        conditional distribution, then `Answers.completions`. The first is meant where none is chosen, but for
        models with another `Answers.default_completion`.
    """
    label, weight = model.roles.cluster, model.roles.weight
    found = {}
    if label is not None and weight is not None and has_answer(model, "conditionals"):
        rows, clusters = model.variable_dims[label], model.variable_dims[weight]
        found["clusters"] = Completion(rows, None, fills=False)
        found["probabilities"] = Completion((*rows, *clusters), None, fills=False)
    return found | answer_of(model, "completions")


def completion_of(model: "Model", what: str | None) -> Completion:
    """What `Answers.cells` returns.

    Args:
        model: the model.
        what: one of its `Answers.completions`; None: the first, or the only one.

    Returns:
        Its dims and the part of the data that holds such cells.
    """
    known = answer_of(model, "completions")
    return known[next(iter(known)) if what is None else what]


def has_answer(model: "Model", name: str) -> bool:
    """Whether a model gives an answer that not every model has.

    Args:
        model: the model.
        name: of the function of `Answers`, such as ``"cells"``.

    Returns:
        Whether its `Answers` define the function.
    """
    return getattr(model.answers, name) is not getattr(Answers, name)


def scores_new_rows(model: "Model") -> bool:
    """Whether a model has the density of a row that has no latents yet, so that held-out rows are scored."""
    own = answer_of(model, "sums_out_locals") or has_answer(model, "log_rows")
    return model.answers.has_density and own


def how_to_score_rows(model: "Model") -> str:
    """Advice to score held-out rows, or how to give a model the density of a row that this takes."""
    if scores_new_rows(model):
        return "score held-out rows: inference.diagnostics.heldout"
    return f"the program draws latents of rows: to score held-out rows give its answers {LOG_ROWS}"


def scores_outward(model: "Model", scores: Array, kind: str = "latent") -> Array:
    """Scores in the coordinates of the data: those in an orthonormal basis are in a common unit of loadings.

    There is none where each column has a scale of its own, or each of several parts.

    Args:
        model: the model.
        scores: in its own coordinates.
        kind: as of `Answers.scores`.

    Returns:
        A score a row, dims ``roles.scores``.
    """
    own, unit = model.own_coordinates, model.units.get(next(iter(model.roles.loadings), ""))
    if own is None or unit is None or len(own.scales) > 1 or kind == "latent":
        return scores
    return own.outward(scores, Unit(unit.power, part=unit.part))


def start_of(model: "Model", key: Array, *data: Observed) -> dict[str, Array] | None:
    """The starting point of a model, in the coordinates of the data.

    Args:
        model: the model.
        key: a JAX key.
        *data: parts of the data.

    Returns:
        Site name to value, shapes as in ``dims``, or None, as of `Answers.start`.
    """
    own = model.own_coordinates
    if own is None:
        return model.answers.of(model).start(model, key, *data)
    units, names = model.units, model.data_names
    inner = inside(model, own)
    found = model.answers.of(inner).start(inner, key, *own.parts_inward(data, names, units))
    return found and {n: own.outward(value, units[n]) if n in units else value for n, value in found.items()}


def _cells_outward(
    model: "Model", own: Coordinates, found: tuple, data: Sequence, filled: Completion
) -> tuple[Array, Array]:
    """Means and variances of cells; where they complete rows, observed cells stay exactly as they are."""
    (mean, variance), part = found, str(filled.part)
    place = model.data_names.index(part)
    mean = own.outward(mean, model.units[part])
    if filled.fills and place < len(data):
        mean = jnp.where(jnp.isnan(data[place]), mean, data[place])
    return mean, _variance_outward(model, own, part, variance)


def _variance_outward(model: "Model", own: Coordinates, part: str, variance: Array) -> Array:
    """Variances of cells of a part of the data; they are as they are where it has no unit."""
    unit = model.units.get(part, Unit(0))
    return own.outward(variance, unit._replace(power=2 * unit.power, is_location=False))


def _typical_outward(model: Any, own: Coordinates, found: tuple) -> tuple:
    """Typical cells of columns of the first part of the data."""
    unit = model.units[model.data_names[0]]
    pair = own.factor(unit), own.shift(unit)
    factor, shift = (jnp.broadcast_to(part, model.num_features) for part in pair)
    return tuple(
        cells._replace(
            values=cells.values * factor[cells.columns] + shift[cells.columns],
            spread=None if cells.spread is None else cells.spread * factor[cells.columns],
        )
        for cells in found
    )
