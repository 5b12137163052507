"""Answers in closed form of a linear-Gaussian model of one table: `zoo.linear_gaussian.rows` at its sites."""

from typing import TYPE_CHECKING, override

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import Distribution

from zoo.answers import Answers
from zoo.linear_gaussian import rows
from zoo.linear_gaussian.rows import LatentsGivenRows
from zoo.shapes import Covariances, PerRow, Rows, Scores, Values
from zoo.sparse import SparseMatrix

if TYPE_CHECKING:
    from zoo.ppca import PPCA


class LinearGaussianAnswers(Answers):
    """Of rows W z + mu + noise, whose sites are ``loadings``, ``loc``, ``noise_variance`` and ``latents``.

    Rows are normal, or Student-t with the model's ``degrees_of_freedom``.
    """

    weighs_rows = True

    @override
    def scores_are_linear(self, model: "PPCA") -> bool:
        return True

    @override
    def has_moments(self, model: "PPCA") -> bool:
        return model.degrees_of_freedom is None

    @override
    def log_rows(self, model: "PPCA", values: Values, x: Rows | SparseMatrix) -> PerRow:
        own, nu = _parameters(values), model.degrees_of_freedom
        return rows.log_density(x, *own) if nu is None else rows.StudentRows(*own, nu).log_prob(x)

    @override
    def conditionals(self, model: "PPCA", values: Values, x: Rows | SparseMatrix) -> dict[str, Distribution]:
        """The precisions of Student-t rows, latents summed out; then the latents given these."""
        found: dict[str, Distribution] = {}
        if model.degrees_of_freedom is not None:
            count, strength = rows.precision_of_rows(x, *_parameters(values), model.degrees_of_freedom)
            found["row_precision"] = dist.Gamma(count / 2, strength / 2)
            if "row_precision" not in values:
                return found
        latents = LatentsGivenRows(x, *_parameters(values), values.get("row_precision"))
        return found | {"latents": latents}

    @override
    def derived(self, model: "PPCA", values: Values) -> dict[str, Array]:
        return {name: values[name] for name in ("row_precision", "latents") if name in values}

    @override
    def scores(
        self, model: "PPCA", values: Values, x: Rows | SparseMatrix, *, kind: str = "latent"
    ) -> Scores:
        """The mean E[z | x], or coordinates of the completed row in the orthonormal basis W (W'W)^-1/2."""
        if kind == "latent":
            return rows.latents_mean(x, *_parameters(values))
        left, _, right = jnp.linalg.svd(values["loadings"], full_matrices=False)
        if isinstance(x, SparseMatrix):
            return x.times(left @ right) - values["loc"] @ (left @ right)
        return (self.cells(model, values, x)[0] - values["loc"]) @ (left @ right)

    @override
    def scores_covariance(self, model: "PPCA", values: Values, x: Rows | SparseMatrix) -> Covariances:
        own = rows.latents_covariance(x, values["loadings"], values["noise_variance"])
        nu = model.degrees_of_freedom
        return own if nu is None else own * _expected_variance(nu, values, x)[..., None]

    @override
    def cells(self, model: "PPCA", values: Values, x: Rows) -> tuple[Rows, Rows]:
        filled, variance = rows.completed(x, *_parameters(values))
        nu = model.degrees_of_freedom
        if nu is None:
            return filled, variance
        return filled, jnp.where(variance > 0, variance * _expected_variance(nu, values, x), 0.0)


def _expected_variance(degrees_of_freedom: Array, values: Values, x: Rows) -> Array:
    """E[1/u | x] of Student-t rows, infinite with too few cells, shape (num_observations, 1)."""
    count, strength = rows.precision_of_rows(x, *_parameters(values), degrees_of_freedom)
    return jnp.where(count > 2, strength / jnp.where(count > 2, count - 2, 1.0), jnp.inf)[:, None]


def _parameters(values: Values) -> tuple[Array, Array, Array]:
    return values["loadings"], values["loc"], values["noise_variance"]
