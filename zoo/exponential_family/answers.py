"""What follows from projections of exponential-family cells: densities, scores and completions of rows.

Latents of new rows are integrated out by Laplace's approximation or by quadrature about it
(`zoo.exponential_family.natural_params`, `zoo.exponential_family.expectations`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, override

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from zoo.answers import Answers
from zoo.exponential_family import joint_prior
from zoo.exponential_family.cells import (
    FamilyCells,
    standard_normals,
    starting_sizes,
    starting_view_parameters,
)
from zoo.exponential_family.expectations import (
    SPREAD_NODES,
    Nodes,
    are_steep,
    over_latents,
    rests_on_tail,
    with_spread,
)
from zoo.exponential_family.natural_params import LowRank, RowMode, row_means, row_modes
from zoo.model import in_current_precision
from zoo.shapes import Covariances, PerRow, Rows, Scores, Values, View

if TYPE_CHECKING:
    from zoo.epca import EPCA
    from zoo.paired import Paired

    type Projection = EPCA | Paired

START_SCALE = 0.3
WEAK_VARIANCE = 10.0  # of natural parameters before the data: above it MAP reaches different optima
START_DEPTHS = (0.1, 1.0, 10.0)  # of natural parameters below zero, in sizes of their means


class ProjectionAnswers(Answers):
    """Of tables side by side whose natural parameters are linear in the latents of a row.

    Subclasses have the following functions of rows at given values of the sites.
    """

    _log_cells: Callable  # log density
    _log_prior: Callable  # of local latents
    _with_local: Callable
    _num_local: Callable
    _table: Callable  # cells of a view
    _mean_theta: Callable
    _view_weights: Callable

    @override
    def sums_out_locals(self, model: "Projection") -> bool:
        return False

    @override
    def has_several_modes(self, model: "Projection") -> bool:
        """Where ``latent_variance`` times ``loading_variance`` exceeds 10, as was measured."""
        return float(np.max(model.latent_variance * model.loading_variance)) > WEAK_VARIANCE

    @override
    def resolving(self, model: "Projection", variables: Mapping[str, Any]) -> Any:
        """With finer nodes where bounded cells change steeply, see `zoo.exponential_family.expectations`."""
        for family, suffix in zip(model.part_families, model.roles.loadings.values(), strict=True):
            for name in (f"loadings{suffix}", f"loadings_mean{suffix}"):
                if name in variables and are_steep(family, variables[name], model.entry_variance):
                    return model.replaced(has_steep_cells=True)
        return model

    @override
    def log_rows(self, model: "Projection", values: Values, *data: View) -> PerRow:
        """Given the latents if ``values`` has them, else by Laplace's integral over their prior, kernels too.

        View weights other than one make it a score instead of a density.
        """
        if "latents" in values:
            return self._log_cells(model, values, data)
        whole = self._modes(model, values, data).log_integral
        if not model.has_kernel:
            return whole
        nothing = tuple(jnp.full_like(table[:1], jnp.nan) for table in data)
        return whole - self._modes(model, values, nothing).log_integral

    @override
    def scores(self, model: "Projection", values: Values, *data: View, kind: str = "latent") -> Scores:
        """The mode of each row's latents, or its natural parameters' coordinates in an orthonormal basis."""
        return self._of_kind(model, values, self._modes(model, values, data).latents, kind)

    @override
    def scores_of_draw(
        self, model: "Projection", values: Values, *data: View, kind: str = "latent"
    ) -> Scores:
        """Of the mean of each row's latents: of steep cells the mode is nearer to zero by a fifth."""
        rows, log_joint = jnp.concatenate(data, axis=1), self._log_joint(model, values, data)
        means = row_means(log_joint, rows, self._modes(model, values, data))
        return self._of_kind(model, values, means, kind)

    def _of_kind(self, model: "Projection", values: Values, local: Array, kind: str) -> Scores:
        u = local[:, : model.num_latents]
        if kind == "latent":
            return u
        loadings = jnp.concatenate([values[name] for name in model.roles.loadings])
        left, _, right = jnp.linalg.svd(loadings, full_matrices=False)
        return u @ loadings.T @ (left @ right)

    @override
    def scores_covariance(self, model: "Projection", values: Values, *data: View) -> Covariances:
        """Laplace's covariance of the latents of each row."""
        k = model.num_latents
        return self._modes(model, values, data).covariance[:, :k, :k]

    @override
    def cells(
        self,
        model: "Projection",
        values: Values,
        *data: View,
        what: str | None = None,
        spread: Values | None = None,
    ) -> tuple[Rows, Rows]:
        """Of the view ``what``, averaged over the posterior of each row's latents.

        ``spread`` is the covariance of each natural parameter's loadings and mean by the suffix of their
        names, shape (num_params, num_latents + 1, num_latents + 1), where they have one besides.
        """
        v = _place(model, what)
        mean, variance, _ = self._expected(model, values, data, v, spread)
        missing = jnp.isnan(data[v])
        return jnp.where(missing, mean, data[v]), jnp.where(missing, variance, 0.0)

    @override
    def rests_on_tail(
        self,
        model: "Projection",
        values: Values,
        mean: Array,
        variance: Array,
        *data: View,
        what: str | None = None,
    ) -> Array | None:
        """Which expectations the tail of the latents dominates, as mean and variance alone tell."""
        square = model.part_families[_place(model, what)].mean_square_of_means(mean, variance)
        return None if square is None else rests_on_tail(mean, square) & (variance != 0)

    def class_probs(
        self, model: "Projection", values: Values, *data: View, what: str | None = None
    ) -> Array | None:
        """Probabilities of the classes of a view's cells given the observed cells; None: it has no classes.

        Args:
            model: as of `log_rows`.
            values: likewise.
            *data: likewise.
            what: the view, of several.

        Returns:
            Shape (num_observations, num_features, num_classes); zero in columns of other families.
        """
        v = _place(model, what)
        return self._expected(model, values, data, v)[2] if model.part_families[v].has_classes else None

    @override
    def view_variances(self, model: "Projection", values: Values) -> dict[str, tuple[Array, Array]]:
        """Variance of the cells' means over the rows, and mean of their variances.

        Those of a column of classes are of its indicators, whose share is Goodman and Kruskal's tau (1954,
        "Measures of association for cross classifications", section 9).
        """
        found = {}
        for v, suffix in enumerate(model.roles.loadings.values()):
            by_latents = {name: own for name, own in values.items() if name != f"natural_params{suffix}"}
            means, variances = _indicated(self._table(model, v, values))
            total = jnp.sum(jnp.var(means, axis=0) + jnp.mean(variances, axis=0), axis=-1)
            explained = jnp.sum(jnp.var(_indicated(self._table(model, v, by_latents))[0], axis=0), axis=-1)
            found[suffix] = explained, jnp.maximum(total - explained, 0.0)
        return found

    def _modes(self, model: "Projection", values: Values, data: tuple[Array, ...]) -> RowMode:
        """Mode of the local latents of rows, and Laplace's integral over them."""
        rows = jnp.concatenate(data, axis=1)
        starts = self._starts(model, values, data) if model.is_negative else None
        return row_modes(self._log_joint(model, values, data), rows, self._num_local(model, values), starts)

    def _starts(self, model: "Projection", values: Values, data: tuple[Array, ...]) -> Callable:
        """Latents at which a row's natural parameters are negative where they must be, if there are any.

        Least squares towards minus some multiples of the sizes of their means. At latents of zero they are
        the means, which some draws of a sampler have outside the domain.
        """
        families = model.part_families
        at = self._with_local(model, values, jnp.zeros((1, self._num_local(model, values))))
        tables = [self._mean_theta(model, v, at) for v in range(len(families))]
        loadings = jnp.concatenate([table.loadings for table in tables])
        loc = jnp.concatenate([jnp.broadcast_to(t.loc, t.loadings.shape[:1]) for t in tables])
        sizes = [table.shape[1] for table in data]
        negative = np.concatenate([f.negative_params(d) for f, d in zip(families, sizes, strict=True)])
        column = np.concatenate(
            [
                sum(sizes[:v]) + np.asarray(f.param_columns(d))
                for v, (f, d) in enumerate(zip(families, sizes, strict=True))
            ]
        )

        def starts(row: Array) -> Array:
            bound = jnp.asarray(negative) & (~jnp.isnan(row)[column] | model.has_kernel)
            scale = jnp.where(bound, 1.0 / jnp.maximum(jnp.abs(loc), 1e-300), 0.0)
            own = loadings * scale[:, None]
            gram = own.T @ own
            gram += 1e-9 * (jnp.trace(gram) + 1e-300) * jnp.eye(gram.shape[0])
            targets = -(jnp.asarray(START_DEPTHS)[:, None] + loc * scale) * bound
            return jnp.linalg.solve(gram, own.T @ targets.T).T

        return starts

    def _log_joint(
        self, model: "Projection", values: Values, data: tuple[Array, ...], spread: Values | None = None
    ) -> Callable:
        """Log joint density of a row, all views side by side, and its local latents, in nats.

        Where loadings have a ``spread`` the density of each observed cell is averaged over it.
        """
        ends = np.cumsum([table.shape[1] for table in data])[:-1].tolist()

        def log_joint(local: Array, row: Array) -> Array:
            at, parts = self._with_local(model, values, local[None]), jnp.split(row, ends)
            if spread is None:
                cells = self._log_cells(model, at, tuple(part[None] for part in parts))[0]
            else:
                cells = self._log_averaged_cells(model, at, parts, spread)
            return cells + self._log_prior(model, values, local[None])[0]

        return log_joint

    def _log_averaged_cells(
        self, model: "Projection", at: Values, row: Sequence[Array], spread: Values
    ) -> Array:
        total, weights = 0.0, jnp.broadcast_to(self._view_weights(model), (len(row),))
        for v, (part, suffix) in enumerate(zip(row, model.roles.loadings.values(), strict=True)):
            table, seen = self._table(model, v, at), ~jnp.isnan(part)
            theta = self._mean_theta(model, v, at).whole()[0]
            variance = _theta_variance(at["latents"], spread[suffix])[0]
            filled = jnp.where(seen, part, 1.0)
            cells = table.family.log_marginal(theta, variance, filled, table.cut_points)
            total += weights[v] * jnp.sum(jnp.where(seen, cells, 0.0))
        return total

    def _expected(
        self,
        model: "Projection",
        values: Values,
        data: tuple[Array, ...],
        v: int,
        spread: Values | None = None,
    ) -> tuple[Array, Array, Array | None]:
        """Mean and variance of all cells of a view given the observed cells of all, and class probabilities.

        Shapes (num_observations, num_features), twice, and (num_observations, num_features, num_classes) or
        None.
        """
        rows, modes = jnp.concatenate(data, axis=1), self._modes(model, values, data)
        own = None if spread is None else spread[tuple(model.roles.loadings.values())[v]]

        def average(nodes: Nodes, row: Array) -> tuple[Array, Array, Array | None]:
            at = self._with_local(model, values, nodes.latents)
            table = self._table(model, v, at)
            theta = table.theta.reshape(len(nodes.weights), -1)
            variance = None if own is None else _theta_variance(at["latents"], own)
            wide, weights, normal = with_spread(theta, variance, nodes)
            wide = table.family.shaped(wide)
            mean, variance = table.family.expected_cells(wide, weights, normal, table.cut_points)
            return mean, variance, table.family.expected_class_probs(wide, weights)

        num_columns = sum(table.shape[1] for table in data) * (1 if spread is None else SPREAD_NODES)
        log_joint = self._log_joint(model, values, data, spread)
        return over_latents(log_joint, average, rows, modes, num_columns, steep=model.has_steep_cells)


def _indicated(cells: Any) -> tuple[Array, Array]:
    """Means and variances of cells, of classes those of their indicators; shape (rows, columns, classes)."""
    mean, variance = (part[..., None] for part in cells.mean_and_variance())
    if not (isinstance(cells, FamilyCells) and cells.family.has_classes):
        return mean, variance
    one = jnp.ones(1)
    shares = jax.vmap(lambda row: cells.family.expected_class_probs(row[None], one))(cells.theta)
    is_class = jnp.any(shares > 0, axis=-1, keepdims=True)
    first = jnp.arange(shares.shape[-1]) == 0
    return (
        jnp.where(is_class, shares, mean * first),
        jnp.where(is_class, shares * (1.0 - shares), variance * first),
    )


def _place(model: "Projection", what: str | None) -> int:
    """The number of a view by its name; None: the first."""
    return 0 if what is None else model.data_names.index(what)


def _theta_variance(latents: Array, covariance: Array) -> Array:
    """Variance of natural parameters given latents, where loadings and mean have a covariance.

    ``latents`` of shape (number, num_latents) and one matrix for each natural parameter give (number,
    num_params).
    """
    extended = jnp.concatenate([latents, jnp.ones_like(latents[:, :1])], axis=1)
    return jnp.maximum(jnp.einsum("ni,pij,nj->np", extended, covariance, extended), 0.0)


class EPCAAnswers(ProjectionAnswers):
    """Of one table, whose sites are ``loadings``, ``loc``, ``latents`` and those of the family."""

    @override
    def has_several_modes(self, model: "EPCA") -> bool:
        """Likewise by the variances of latents and conjugate loadings."""
        if model.conjugate_loadings is None or model.num_features is None:
            return super().has_several_modes(model)
        pairs = np.broadcast_to(model.conjugate_loadings, (model.num_features, 2))
        of_loadings = model.family.kernel_variance(pairs[:, 0], pairs[:, 1])
        return float(np.max(model.latent_variance * of_loadings)) > WEAK_VARIANCE

    @override
    def start(self, model: "EPCA", key: Array, x: Rows) -> dict[str, Array]:
        """Means at the columns' means, small latents and loadings.

        Natural parameters lie inside the family's domain, which the prior alone does not see to.
        """
        current = in_current_precision(model)
        family, size = current.family, current.family.num_params(x.shape[1])
        scale = START_SCALE * (0.1 if family.theta_is_negative else 1.0)
        shapes = (size, model.num_latents), (x.shape[0], model.num_latents)
        loadings, latents = (scale * own for own in standard_normals(key, *shapes))
        values = starting_view_parameters(family, x) | {"loadings": loadings, "latents": latents}
        if model.is_negative:
            unit = current.natural_unit
            unit = None if unit is None else jnp.broadcast_to(unit, (size,))
            values["loadings"] *= starting_sizes(family, values["loc"], unit, x.shape[1])[:, None]
        if model.ard:
            values["loading_precision"] = jnp.ones(model.num_latents)
        return values

    def _log_cells(self, model: "EPCA", values: Values, data: tuple[Array]) -> Array:
        return self._table(model, 0, values).log_prob(*data)

    def _table(self, model: "EPCA", v: int, values: Values) -> dist.Distribution:
        return in_current_precision(model).cells(values)

    def _mean_theta(self, model: "EPCA", v: int, values: Values) -> LowRank:
        return model.low_rank(values)

    def _view_weights(self, model: "EPCA") -> float:
        return 1.0

    def _with_local(self, model: "EPCA", values: Values, local: Array) -> dict[str, Array]:
        return dict(values) | {"latents": local}

    def _num_local(self, model: "EPCA", values: Values) -> int:
        return model.num_latents

    def _log_prior(self, model: "EPCA", values: Values, local: Array) -> Array:
        """Log prior density of latents, up to a constant with kernels; shape (num_observations,)."""
        current = in_current_precision(model)
        total = jnp.sum(dist.Normal(0.0, jnp.sqrt(current.entry_variance)).log_prob(local), axis=-1)
        if model.has_kernel:
            theta = model.low_rank(self._with_local(model, values, local)).whole()
            kernel = joint_prior.log_kernel(current.family, theta, current.conjugate)
            total += current.beta * jnp.sum(kernel, -1)
        return total
