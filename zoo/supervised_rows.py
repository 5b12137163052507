r"""What SPPCA says of rows once its parameters are known: densities, latents, outputs, missing cells.

Rows come with or without outputs; a missing y is one whose cells are all missing. In feature space a row is
its kernel values with the fitted rows, which come with the parameters as ``fitted_x`` (the rows themselves),
``gram_means`` (what centres kernel values) and ``gram_products`` (G B); without them the rows are the fitted
ones.

With :math:`m = E[z \mid \text{observed}]` and V its covariance, an output that is not observed has mean
:math:`w^T m + \mu` and variance :math:`w^T V w + \psi`, and so has a missing cell of x.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from zoo.conditional_rows import ShiftedRows
from zoo.feature_space import FeatureRows, centred, feature_rows
from zoo.kernels import Precomputed
from zoo.linear_gaussian import latents_covariance, latents_mean, log_density
from zoo.model import in_current_precision
from zoo.probit_rows import ProbitRows
from zoo.sparse_matrix import SparseMatrix
from zoo.sparse_projection import reduced

__all__ = ["SupervisedRows"]


class SupervisedRows(ProbitRows):
    """The closed-form companions of SPPCA's program."""

    def joint(self, values: Mapping[str, Array]) -> tuple[Array, Array, Array]:
        """Loadings, mean and noise variance of the columns of [x, y].

        Args:
            values: of the sites.

        Returns:
            Shapes (M + L, K), (M + L,) and (M + L,).
        """
        loadings = jnp.concatenate([values["loadings_x"], values["loadings_y"]])
        loc = jnp.concatenate([values["loc_x"], values["loc_y"]])
        noise_x = jnp.broadcast_to(values["noise_variance_x"], values["loc_x"].shape)
        return loadings, loc, jnp.concatenate([noise_x, self.noise_of_outputs(values)])

    def noise_of_outputs(self, values: Mapping[str, Array]) -> Array:
        """Noise variance of each output; of probit outputs' utilities it is 1.

        Args:
            values: of the sites.

        Returns:
            Shape (L,).
        """
        if self.output_likelihood == "probit":
            return jnp.ones_like(values["loc_y"])
        return jnp.broadcast_to(values["noise_variance_y"], values["loc_y"].shape)

    def log_likelihood(self, values: Mapping[str, Array], x: Array, y: Array | None = None) -> Array:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            values: of the sites.
            x: inputs, shape (num_observations, M), NaN where a cell is missing.
            y: outputs, shape (num_observations, L), NaN where one is missing; without them, the density of x.

        Returns:
            Shape (num_observations,), in nats.

        Raises:
            ValueError: a precomputed kernel, which does not say a new row's inner product with itself.
        """
        if self.output_likelihood == "probit":
            return self.probit_log_likelihood(values, x, y)
        if self.kernel is None:
            *cells, log_factor = self._cells(values, x, y)
            return log_density(*cells) + log_factor
        if isinstance(self.kernel, Precomputed) and "gram_means" in values:
            raise ValueError(
                "a precomputed kernel does not say the inner product of a new row with itself, which its "
                "density needs: give the kernel itself"
            )
        rows = self.rows_in_feature_space(values, x)
        return rows.log_density if y is None else rows.log_density + self.outputs_given(values, rows, y)

    def outputs_given(self, values: Mapping[str, Array], rows: FeatureRows, y: Array) -> Array:
        """Log density of the observed outputs of each row given it in feature space.

        Args:
            values: of the sites.
            rows: what `rows_in_feature_space` gave.
            y: outputs, shape (num_observations, L), NaN where one is missing.

        Returns:
            Shape (num_observations,), in nats.
        """
        w_y = values["loadings_y"]
        spread = w_y @ jnp.linalg.cholesky(rows.covariance)
        given = ShiftedRows(rows.mean @ w_y.T, spread, values["loc_y"], self.noise_of_outputs(values))
        return given.log_prob(y)

    def rows_in_feature_space(self, values: Mapping[str, Array], x: Array) -> FeatureRows:
        """Latents and density of rows given in feature space, without their outputs.

        Args:
            values: of the sites; with what a fit stores of its rows, ``x`` are new ones.
            x: rows, shape (num_observations, M); of a precomputed kernel, its values with the fitted ones.

        Returns:
            Moments of the latents and log density of each row.
        """
        kernel, b = in_current_precision(self.kernel), values["coefficients"]
        own = values["noise_variance_x"], self.feature_dimension
        if "gram_means" not in values:
            gram = centred(kernel.matrix(x, x))
            return feature_rows(gram, jnp.diag(gram), gram @ b, b, *own)
        means = values["gram_means"]
        raw = x if isinstance(kernel, Precomputed) else kernel.matrix(x, values["fitted_x"])
        each = jnp.mean(raw, axis=1)
        cross = raw - each[:, None] - (means - jnp.mean(means))
        itself = jnp.zeros(len(x)) if isinstance(kernel, Precomputed) else kernel.diagonal(x)
        return feature_rows(cross, itself - 2 * each + jnp.mean(means), values["gram_products"], b, *own)

    def local_conditionals(
        self, values: Mapping[str, Array], x: Array, y: Array
    ) -> dict[str, dist.Distribution]:
        """The latents of each row given its observed cells and everything else.

        Args:
            values: of the sites.
            x: inputs, as in `log_likelihood`.
            y: outputs, as there.

        Returns:
            ``latents``, with event shape (K,); nothing where they are not summed out.
        """
        if self.output_likelihood == "probit":
            return {"latents": self.probit_latents(values, x, y)} if self.sums_out_latents else {}
        mean, covariance = self._latents(values, x, y)
        return {"latents": dist.MultivariateNormal(mean, covariance)}

    def derived(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The latents themselves.

        Args:
            values: of the sites.

        Returns:
            ``latents``, shape (num_observations, K).
        """
        return {"latents": values["latents"]}

    def scores(
        self, values: Mapping[str, Array], x: Array, y: Array | None = None, *, kind: str = "latent"
    ) -> Array:
        """Scores of rows.

        Args:
            values: parameters.
            x: inputs.
            y: outputs, where they are to be used: E[z | x, y]; without them E[z | x].
            kind: ``"latent"``, or ``"orthonormal"``: coordinates of x (missing cells at their expectation)
                about its mean in an orthonormal basis of W_x, by descending length.

        Returns:
            Shape (num_observations, K).
        """
        if kind == "latent":
            return self._latents(values, x, y)[0]
        if self.kernel is not None:
            return self._feature_coordinates(values, x)
        basis = jnp.linalg.svd(values["loadings_x"], full_matrices=False)[0]
        largest = jnp.argmax(jnp.abs(basis), axis=0)
        sign = jnp.sign(jnp.take_along_axis(basis, largest[None], axis=0))
        if isinstance(x, SparseMatrix):
            return x.times(basis * sign) - values["loc_x"] @ (basis * sign)
        completed = self.predicted(values, x, y, what="cells")[0]
        return (completed - values["loc_x"]) @ (basis * sign)

    def scores_covariance(self, values: Mapping[str, Array], x: Array, y: Array | None = None) -> Array:
        """Posterior covariance of the latents of rows.

        Args:
            values: of the sites.
            x: inputs, as in `log_likelihood`.
            y: outputs, where they are to be used.

        Returns:
            Shape (num_observations, K, K).
        """
        return self._latents(values, x, y)[1]

    def predicted(
        self, values: Mapping[str, Array], x: Array, y: Array | None = None, *, what: str = "outputs"
    ) -> tuple[Array, Array]:
        """Expectation and variance of what is missing of rows.

        Args:
            values: parameters.
            x: inputs.
            y: outputs; observed ones are used and stay what they are.
            what: ``"outputs"``, ``"cells"`` (of x), or ``"classes"``: the density of each class's code given
                what is observed, normalised over the classes, whose variance is that of the indicator.

        Returns:
            Two arrays of the shape of what is asked for: (num_observations, L), M columns or one a class.

        Raises:
            ValueError: cells of x, which are not known with a kernel.
        """
        if what == "classes":
            shares = self._class_probabilities(values, x, y)
            return shares, shares * (1 - shares)
        if what == "outputs" and self.output_likelihood == "probit":
            shares = self.probit_probabilities(values, x, y)
            return shares, shares * (1 - shares)
        mean, covariance = self._latents(values, x, y)
        if what == "cells" and self.kernel is not None:
            raise ValueError("with a kernel x is known in feature space alone: it has no cells to predict")
        block, data = ("x", x) if what == "cells" else ("y", y)
        w, loc = values[f"loadings_{block}"], values[f"loc_{block}"]
        expected = loc + mean @ w.T
        variance = jnp.einsum("di,nij,dj->nd", w, covariance, w) + values[f"noise_variance_{block}"]
        if data is None:
            return expected, variance
        if isinstance(data, SparseMatrix):  # nothing is missing
            return data.to_dense(), jnp.zeros(data.shape)
        known = ~jnp.isnan(data)
        return jnp.where(known, data, expected), jnp.where(known, 0.0, variance)

    def _class_probabilities(self, values: Mapping[str, Array], x: Array, y: Array | None) -> Array:
        if self.classes is None:
            raise ValueError("the outputs of this model are numbers, not class labels")
        if self.output_likelihood == "probit":
            shares = self.probit_probabilities(values, x, y)
            return shares if self.is_classes else jnp.concatenate([shares, 1 - shares], axis=1)
        mean, covariance = self._latents(values, x, y)
        w = values["loadings_y"]
        expected = values["loc_y"] + mean @ w.T
        spread = jnp.einsum("li,nij,mj->nlm", w, covariance, w) + jnp.diag(self.noise_of_outputs(values))
        codes = jnp.eye(len(self.classes))[:, : self.num_outputs]
        residual = codes[None] - expected[:, None]
        solved = jnp.swapaxes(jnp.linalg.solve(spread, jnp.swapaxes(residual, 1, 2)), 1, 2)
        return jax.nn.softmax(-0.5 * jnp.sum(residual * solved, axis=2), axis=-1)

    def _latents(self, values: Mapping[str, Array], x: Array, y: Array | None) -> tuple[Array, Array]:
        """Posterior mean and covariance of the latents of each row."""
        if self.output_likelihood == "probit" and y is not None:
            return self.probit_latents_moments(values, x, y)
        if self.kernel is None:
            rows, loadings, loc, noise, _ = self._cells(values, x, y)
            return latents_mean(rows, loadings, loc, noise), latents_covariance(rows, loadings, noise)
        rows = self.rows_in_feature_space(values, x)
        shared = jnp.broadcast_to(rows.covariance, (*rows.mean.shape, rows.mean.shape[1]))
        if y is None:
            return rows.mean, shared
        root, w_y = jnp.linalg.cholesky(rows.covariance), values["loadings_y"]
        noise, loc = self.noise_of_outputs(values), values["loc_y"]
        moved = latents_mean(y - rows.mean @ w_y.T, w_y @ root, loc, noise)
        covariance = root @ latents_covariance(y, w_y @ root, noise) @ root.T
        return rows.mean + moved @ root.T, covariance

    def _feature_coordinates(self, values: Mapping[str, Array], x: Array) -> Array:
        """Coordinates of rows in an orthonormal basis of W_x in feature space."""
        rows, b = self.rows_in_feature_space(values, x), values["coefficients"]
        projected = values["gram_products"] if "gram_products" in values else None
        if projected is None:
            projected = centred(in_current_precision(self.kernel).matrix(x, x)) @ b
        inner = b.T @ projected
        lengths, turn = jnp.linalg.eigh((inner + inner.T) / 2)
        noise = values["noise_variance_x"]
        right = rows.mean @ (inner + noise * jnp.eye(len(inner)))  # W' phi(x), undone of its shrinkage
        return (right @ turn / jnp.sqrt(jnp.maximum(lengths, 1e-300)))[:, ::-1]

    def _cells(
        self, values: Mapping[str, Array], x: Array, y: Array | None
    ) -> tuple[Array, Array, Array, Array, Array | float]:
        """Rows of [x, y], or of x alone, with loadings, mean and noise of their columns.

        Sparse inputs come reduced; last what to add to the log density of each row, otherwise 0.
        """
        joint, m, log_factor = self.joint(values), self.num_features, 0.0
        known, others = [part[:m] for part in joint], [part[m:] for part in joint]
        if isinstance(x, SparseMatrix):
            x, *known, log_factor = reduced(x, *known)
        if y is None:
            return x, *known, log_factor
        both = map(jnp.concatenate, zip(known, others, strict=True))
        return jnp.concatenate([x, y], axis=1), *both, log_factor

    def completions(self) -> dict[str, tuple[str, ...]]:
        """What `inference.predict` can be asked for; the first is what it gives unasked.

        Returns:
            Name to the dims of what it gives.
        """
        found: dict[str, Any] = {"outputs": ("observation", "output")}
        if self.kernel is None:
            found["cells"] = ("observation", "feature")
        return found if self.classes is None else found | {"classes": ("observation", "class")}
