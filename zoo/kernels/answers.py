"""Projections of rows by kernel PCA, at the kernel values of the fitted rows."""

from typing import TYPE_CHECKING

import jax.numpy as jnp

from zoo.answers import Answers
from zoo.kernels.gram import centred_cross
from zoo.shapes import Covariances, PerRow, Rows, Scores, Values

if TYPE_CHECKING:
    from zoo.kernel_pca import KernelPCA


class KernelPCAAnswers(Answers):
    r"""Coordinates of rows from their centred kernel values :math:`\hat k(x)` with the fitted rows.

    ``"orthonormal"``: :math:`a_j^T \hat k(x)`, the coordinates of kernel PCA, where
    :math:`\hat\Phi^T a_j` are directions of length one. ``"latent"``: :math:`E[z_j \mid x] = \sqrt{l_j}\,
    a_j^T \hat k(x) / (l_j + s^2)` (5.14), whitened and shrunk and not the "exact kernel PCA projection" of
    section 5.2.4: with m = N it is
    :math:`\sqrt N \lambda_j^{-1} (1 - N s^2 / \lambda_j)^{1/2} v_j^T \hat k(x)`, the rotation
    across components, not rows (the text's eigen-function has it the other way).
    """

    has_density = False
    projects_by_draws = False

    def needs_fitted_rows(self, model: "KernelPCA") -> bool:
        """Always: new rows are their kernel values with these."""
        return True

    def log_rows(self, model: "KernelPCA", values: Values, x: Rows) -> PerRow:
        """Raise ValueError, because the model has no density of rows."""
        raise ValueError(
            "KernelPCA scores a Gram matrix and has no density of rows: the map into feature space is "
            "neither onto nor volume preserving; compare models by their components, or use zoo.PPCA"
        )

    def scores(self, model: "KernelPCA", values: Values, x: Rows, *, kind: str = "latent") -> Scores:
        """Coordinates of rows.

        Args:
            model: the model.
            values: an estimate: ``coefficients`` (a), ``signal_variances`` (l), ``noise_variance``,
                ``gram_means``, and the fitted rows, ``fitted_x``.
            x: rows; for a precomputed kernel their kernel values with the fitted ones.
            kind: which.

        Returns:
            Shape (num_observations, num_latents).

        Raises:
            ValueError: draws without coefficients, or other columns.
        """
        if "coefficients" not in values:
            raise ValueError(
                "draws of the latents have no coefficients to project new rows with: fit by closed_form or em"
            )
        if not model.kernel.is_precomputed and x.shape[1] != values["fitted_x"].shape[1]:
            raise ValueError(
                f"x must have the {values['fitted_x'].shape[1]} columns that were fitted; got {x.shape[1]}"
            )
        crossed = centred_cross(model.kernel, x, values["fitted_x"], values["gram_means"])
        coordinates = crossed @ values["coefficients"]
        if kind == "orthonormal":
            return coordinates
        variances = values["signal_variances"]
        return coordinates * (jnp.sqrt(variances) / (variances + values["noise_variance"]))

    def scores_covariance(self, model: "KernelPCA", values: Values, x: Rows) -> Covariances:
        """Posterior covariance of the latents, the same for all rows: ``s2 / (l + s2)`` on the diagonal."""
        noise_variance = values["noise_variance"]
        shares = noise_variance / (values["signal_variances"] + noise_variance)
        return jnp.broadcast_to(jnp.diag(shares), (x.shape[0], shares.size, shares.size))
