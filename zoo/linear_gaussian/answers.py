"""Answers in closed form of a linear-Gaussian model of one table: `zoo.linear_gaussian.rows` at its sites."""

from collections.abc import Mapping
from typing import Any, override

import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from zoo.answers import Answers
from zoo.linear_gaussian import rows
from zoo.linear_gaussian.rows import LatentsGivenRows
from zoo.shapes import Covariances, PerRow, Rows, Scores
from zoo.sparse import SparseMatrix

__all__ = ["LinearGaussianAnswers"]


class LinearGaussianAnswers(Answers):
    """Of rows W z + mu + noise, whose sites are ``loadings``, ``loc``, ``noise_variance`` and ``latents``."""

    weighs_rows = True

    @override
    def scores_are_linear(self, model: Any) -> bool:
        return True

    @override
    def log_rows(self, model: Any, values: Mapping[str, Array], x: Rows | SparseMatrix) -> PerRow:
        return rows.log_density(x, *_parameters(values))

    @override
    def conditionals(
        self, model: Any, values: Mapping[str, Array], x: Rows | SparseMatrix
    ) -> dict[str, Distribution]:
        return {"latents": LatentsGivenRows(x, *_parameters(values))}

    @override
    def derived(self, model: Any, values: Mapping[str, Array]) -> dict[str, Array]:
        return {"latents": values["latents"]}

    @override
    def scores(
        self, model: Any, values: Mapping[str, Array], x: Rows | SparseMatrix, *, kind: str = "latent"
    ) -> Scores:
        """The mean E[z | x], or coordinates of the completed row in the orthonormal basis W (W'W)^-1/2."""
        if kind == "latent":
            return rows.latents_mean(x, *_parameters(values))
        left, _, right = jnp.linalg.svd(values["loadings"], full_matrices=False)
        if isinstance(x, SparseMatrix):
            return x.times(left @ right) - values["loc"] @ (left @ right)
        return (self.cells(model, values, x)[0] - values["loc"]) @ (left @ right)

    @override
    def scores_covariance(
        self, model: Any, values: Mapping[str, Array], x: Rows | SparseMatrix
    ) -> Covariances:
        return rows.latents_covariance(x, values["loadings"], values["noise_variance"])

    @override
    def cells(self, model: Any, values: Mapping[str, Array], x: Rows) -> tuple[Rows, Rows]:
        return rows.completed(x, *_parameters(values))


def _parameters(values: Mapping[str, Array]) -> tuple[Array, Array, Array]:
    return values["loadings"], values["loc"], values["noise_variance"]
