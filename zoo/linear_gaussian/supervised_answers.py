"""Answers in closed form of SPPCA: of rows with real outputs, and of rows with probit outputs."""

from typing import TYPE_CHECKING, cast, override

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from zoo.answers import Answers, Completion
from zoo.in_blocks import map_in_blocks
from zoo.kernels.gram import centred_matrix
from zoo.linear_gaussian.axes import signs_of
from zoo.linear_gaussian.probit import (
    LatentsGivenDecisions,
    carried_over,
    decisions,
    log_orthant,
    orthant_moments,
)
from zoo.linear_gaussian.supervised import FeatureSpace, Primal, Probit
from zoo.model import in_current_precision
from zoo.shapes import Covariances, Outputs, PerRow, Predicted, Rows, Scores, Values
from zoo.sparse import Observed, SparseMatrix

if TYPE_CHECKING:
    from zoo.sppca import SPPCA

SMALLEST_SHARE = 1e-6  # of a class, whose estimate by a normal may lie below 0
BLOCK_ROWS = 64  # rows whose nodes of integration are held at a time


class RealAnswers(Answers):
    """Of rows whose outputs are real numbers; without outputs, answers are given x alone."""

    @classmethod
    @override
    def of(cls, model: "SPPCA") -> "RealAnswers":
        return RealAnswers() if model.output_likelihood == "gaussian" else ProbitAnswers()

    @override
    def needs_fitted_rows(self, model: "SPPCA") -> bool:
        return model.kernel is not None

    @override
    def scores_are_linear(self, model: "SPPCA") -> bool:
        return model.kernel is None

    @override
    def log_rows(
        self, model: "SPPCA", values: Values, x: Rows | SparseMatrix, y: Outputs | None = None
    ) -> PerRow:
        _check_itself(model, values)
        return model.inputs.log_density(values, x, y, model.outputs.block(values))

    @override
    def conditionals(
        self, model: "SPPCA", values: Values, x: Rows | SparseMatrix, y: Outputs | None = None
    ) -> dict[str, dist.Distribution]:
        mean, covariance = self._latents(model, values, x, y)
        return {"latents": dist.MultivariateNormal(mean, covariance, validate_args=False)}

    @override
    def derived(self, model: "SPPCA", values: Values) -> dict[str, Array]:
        return {"latents": values["latents"]}

    @override
    def scores(
        self,
        model: "SPPCA",
        values: Values,
        x: Rows | SparseMatrix,
        y: Outputs | None = None,
        *,
        kind: str = "latent",
    ) -> Scores:
        """E[z | x, y] or E[z | x], or coordinates of the completed x in an orthonormal basis of W_x."""
        if kind == "latent":
            return self._latents(model, values, x, y)[0]
        if model.kernel is not None:
            return _feature_coordinates(model, values, x)
        basis = jnp.linalg.svd(values["loadings_x"], full_matrices=False)[0]
        basis = basis * signs_of(basis)
        if isinstance(x, SparseMatrix):
            return x.times(basis) - values["loc_x"] @ basis
        return (self.cells(model, values, x, y, what="cells")[0] - values["loc_x"]) @ basis

    @override
    def scores_covariance(
        self, model: "SPPCA", values: Values, x: Rows | SparseMatrix, y: Outputs | None = None
    ) -> Covariances:
        return self._latents(model, values, x, y)[1]

    @override
    def cells(
        self,
        model: "SPPCA",
        values: Values,
        x: Rows | SparseMatrix,
        y: Outputs | None = None,
        *,
        what: str = "outputs",
    ) -> tuple[Predicted, Predicted]:
        """Missing outputs or cells; or ``"classes"``, the probability of each, 0 or 1 where a label is given.

        Of Gaussian outputs that is Bayes' rule: the class's share pi_c (from loc_y) times the density of x
        given its code e_c, p(c | x) ~ pi_c p(x | e_c) ~ pi_c p(e_c | x) / p(e_c). The two
        columns of two classes, of which one determines the other, count once.

        Raises:
            ValueError: classes of outputs that are no labels, and cells of x where these are not known.
        """
        if what == "classes":
            if model.classes is None:
                raise ValueError("the outputs of this model are numbers, not class labels")
            shares = self._classes(model, values, x, y)
            return shares, shares * (1 - shares)
        if what == "cells" and model.kernel is not None:
            raise ValueError("with a kernel x is known in feature space alone: it has no cells to predict")
        data, block = (x, cast(Primal, model.inputs)) if what == "cells" else (y, model.outputs)
        mean, covariance = self._latents(model, values, x, y)
        w, loc, noise = block.block(values)
        expected = loc + mean @ w.T
        variance = jnp.einsum("di,nij,dj->nd", w, covariance, w) + noise
        if data is None:
            return expected, variance
        if isinstance(data, SparseMatrix):  # nothing is missing
            return data.to_dense(), jnp.zeros(data.shape)
        known = ~jnp.isnan(data)
        return jnp.where(known, data, expected), jnp.where(known, 0.0, variance)

    @override
    def completions(self, model: "SPPCA") -> dict[str, Completion]:
        """Outputs, cells where x has any, and classes where y holds labels."""
        found = {"outputs": Completion(("observation", "output"), "y", fills=False)}
        if model.kernel is None:
            found["cells"] = Completion(("observation", "feature"), "x")
        if model.classes is not None:
            found["classes"] = Completion(("observation", "class"), None, fills=False)
        return found

    @override
    def default_completion(self, model: "SPPCA", *data: Observed) -> str | None:
        """Classes where the outputs are labels, whose columns' expectations are no probabilities."""
        return "outputs" if model.classes is None else "classes"

    def _classes(
        self, model: "SPPCA", values: Values, x: Rows | SparseMatrix, y: Outputs | None
    ) -> Predicted:
        """Probability of each class; of two classes the columns err alike, which doubles the noise."""
        mean, covariance = self._latents(model, values, x, None)
        w, shares, noise = model.outputs.block(values)
        if len(model.classes) == model.num_outputs == 2:
            noise = 2 * noise
        codes = jnp.eye(len(model.classes))[:, : model.num_outputs]
        spread = carried_over(w, covariance) + jnp.diag(noise)
        evidence = _log_kernel(codes, shares + mean @ w.T, spread)
        evidence -= _log_kernel(codes, shares[None], (w @ w.T + jnp.diag(noise))[None])
        shares = jnp.maximum(_of_all(model, shares), SMALLEST_SHARE)
        found = jax.nn.softmax(evidence + jnp.log(shares), axis=-1)
        return found if y is None else jnp.where(jnp.isnan(y).any(1, keepdims=True), found, _of_all(model, y))

    def _latents(
        self, model: "SPPCA", values: Values, x: Rows | SparseMatrix, y: Outputs | None
    ) -> tuple[Scores, Covariances]:
        """Posterior mean and covariance of the latents of each row."""
        if y is None:
            return model.inputs.latents(values, x)
        return model.inputs.latents_with(values, x, y, model.outputs.block(values))


class ProbitAnswers(RealAnswers):
    """Of rows whose outputs are zeros and ones that utilities decide."""

    @override
    def kept_locals(self, model: "SPPCA") -> tuple[str, ...]:
        return () if model.outputs.has_marginal else ("latents",)

    @override
    def view_variances(self, model: "SPPCA", values: Values) -> dict[str, tuple[Array, Array]]:
        """As of every model; the noise of utilities has variance 1."""
        return super().view_variances(model, {"noise_variance_y": 1.0} | dict(values))

    @override
    def log_rows(self, model: "SPPCA", values: Values, x: Rows, y: Outputs | None = None) -> PerRow:
        _check_itself(model, values)
        inputs = model.inputs.log_density(values, x)
        if y is None:
            return inputs
        return inputs + cast(Probit, model.outputs).given_inputs(values, model.inputs, x).log_prob(y)

    @override
    def conditionals(
        self, model: "SPPCA", values: Values, x: Rows, y: Outputs | None = None
    ) -> dict[str, dist.Distribution]:
        """The latents where a row has one decision, else nothing."""
        if not model.outputs.has_marginal:
            return {}
        mean, covariance = model.inputs.latents(values, x)
        outputs = values["loadings_y"], values["loc_y"]
        return {"latents": LatentsGivenDecisions(mean, covariance, *outputs, y, model.is_classes)}

    @override
    def cells(
        self, model: "SPPCA", values: Values, x: Rows, y: Outputs | None = None, *, what: str = "outputs"
    ) -> tuple[Predicted, Predicted]:
        """As of real outputs; an output is expected with its probability."""
        if what != "outputs":
            return super().cells(model, values, x, y, what=what)
        shares = _probabilities(model, values, x, y)
        return shares, shares * (1 - shares)

    def _classes(self, model: "SPPCA", values: Values, x: Rows, y: Outputs | None) -> Predicted:
        shares = _probabilities(model, values, x, y)
        return shares if model.is_classes else jnp.concatenate([shares, 1 - shares], axis=1)

    def _latents(
        self, model: "SPPCA", values: Values, x: Rows, y: Outputs | None
    ) -> tuple[Scores, Covariances]:
        mean, covariance = model.inputs.latents(values, x)
        if y is None:
            return mean, covariance
        w, loc = values["loadings_y"], values["loc_y"]

        def one(row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            outputs, m, s = row
            centre, spread, contrast = decisions(outputs, loc + w @ m, w @ s @ w.T, model.is_classes)
            cut = orthant_moments(centre, spread)
            gain = jnp.linalg.solve(spread, contrast @ w @ s).T
            return m + gain @ (cut.mean - centre), s + gain @ (cut.covariance - spread) @ gain.T

        return map_in_blocks(one, (y, mean, covariance), BLOCK_ROWS)


def _check_itself(model: "SPPCA", values: Values) -> None:
    """Raise ValueError where new rows have no inner product with themselves, which their density needs."""
    if model.kernel is not None and model.kernel.is_precomputed and "gram_means" in values:
        raise ValueError(
            "a precomputed kernel does not say the inner product of a new row with itself, which its "
            "density needs: give the kernel itself"
        )


def _probabilities(model: "SPPCA", values: Values, x: Rows, y: Outputs | None) -> Outputs:
    """P(output = 1) given x and the observed outputs, which keep their values."""
    given = cast(Probit, model.outputs).given_inputs(values, model.inputs, x)
    exclusive = model.is_classes
    size = given.predictor.shape[1]
    known = jnp.full(given.predictor.shape, jnp.nan) if y is None else y
    tried = jnp.eye(size) if exclusive else jnp.where(jnp.eye(size, dtype=bool), 1.0, jnp.nan)

    def one(row: tuple[Array, Array, Array]) -> Array:
        outputs, predictor, spread = row

        def log_probability(outputs: Array) -> Array:
            return log_orthant(*decisions(outputs, predictor, spread, exclusive)[:2])

        logs = jax.vmap(log_probability)(jnp.where(jnp.isnan(tried), outputs, tried))
        if exclusive:
            return jax.nn.softmax(logs)
        return jnp.minimum(jnp.exp(logs - log_probability(outputs)), 1.0)

    shares = map_in_blocks(one, (known, given.predictor, given.covariance), BLOCK_ROWS)
    return jnp.where(jnp.isnan(known), shares, known)


def _of_all(model: "SPPCA", columns: Array) -> Array:
    """The numbers of all classes, the last of which the others determine where it has no column."""
    left = 1 - columns.sum(axis=-1, keepdims=True)
    return columns if model.is_classes else jnp.concatenate([columns, left], axis=-1)


def _feature_coordinates(model: "SPPCA", values: Values, x: Rows) -> Scores:
    """Coordinates of rows in an orthonormal basis of W_x in feature space."""
    rows, b = cast(FeatureSpace, model.inputs).at(values, x), values["coefficients"]
    projected = values["gram_products"] if "gram_products" in values else None
    if projected is None:
        projected = centred_matrix(in_current_precision(model.kernel), x) @ b
    inner = b.T @ projected
    lengths, turn = jnp.linalg.eigh((inner + inner.T) / 2)
    noise = values["noise_variance_x"]
    right = rows.mean @ (inner + noise * jnp.eye(len(inner)))  # W' phi(x), undone of its shrinkage
    return (right @ turn / jnp.sqrt(jnp.maximum(lengths, 1e-300)))[:, ::-1]


def _log_kernel(codes: Array, mean: Array, covariance: Array) -> Array:
    """Log density of each code under a normal for each row, up to a term of the row: (rows, codes)."""
    residual = codes[None] - mean[:, None]
    solved = jnp.swapaxes(jnp.linalg.solve(covariance, jnp.swapaxes(residual, 1, 2)), 1, 2)
    return -0.5 * jnp.sum(residual * solved, axis=2)
