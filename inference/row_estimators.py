"""scikit-learn estimators of models of rows: mixtures and projections."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import inference
from inference.estimator import ZooEstimator

__all__ = [
    "DEPCAMEstimator",
    "EPCAEstimator",
    "KernelPCAEstimator",
    "MixtureEstimator",
    "PPCAEstimator",
]


class _ScoredRows(ZooEstimator):
    """An estimator of rows that have a density, and something to predict of them."""

    def predict(self, X: Any) -> np.ndarray:
        """What is missing of rows: the component of each, or the rows with their missing cells filled in.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,), or (num_observations, num_features).
        """
        return inference.predict(self.fitted(), self.rows(X)).values

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of rows, in nats: higher is better.

        Args:
            X: rows with the columns of the fit.
            y: not used.

        Returns:
            Nats per row.
        """
        return float(inference.log_density(self.fitted(), self.rows(X)).mean())


class MixtureEstimator(_ScoredRows):
    """`zoo.Mixture` as an estimator: ``transform`` gives the shares of components, ``predict`` the component.

    Args:
        num_components: K, the number of components or the truncation of the Dirichlet process.
        concentration: alpha.
        weight_prior: ``"dirichlet"`` or ``"stick_breaking"``.
        components: a prior of `zoo.conjugate`; None: Gaussians with full covariance.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.

    Example:
        >>> import numpy as np
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> x = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([[0.0], [9.0]], 20, axis=0)
        >>> pipeline = make_pipeline(StandardScaler(), MixtureEstimator(num_components=2, seed=1))
        >>> len(set(pipeline.fit_predict(x)))
        2
    """

    _model = "Mixture"
    _misses_cells = False

    def __init__(
        self,
        num_components: int = 8,
        *,
        concentration: float = 1.0,
        weight_prior: str = "dirichlet",
        components: Any = None,
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_components = num_components
        self.concentration = concentration
        self.weight_prior = weight_prior
        self.components = components
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit, and the component of each fitted row.

        Args:
            X: rows.
            y: not used.

        Returns:
            Shape (num_observations,).
        """
        return self.fit(X).predict(X)


class DEPCAMEstimator(_ScoredRows):
    """`zoo.DEPCAM` as an estimator: ``transform`` gives shares of components, ``predict`` rows without gaps.

    Args:
        num_components: K.
        num_latents: of each component.
        family: of the cells.
        repulsion: of the components.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.
    """

    _model = "DEPCAM"

    def __init__(
        self,
        num_components: int = 3,
        num_latents: int = 1,
        *,
        family: Any = "gaussian",
        repulsion: float = 1.0,
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_components = num_components
        self.num_latents = num_latents
        self.family = family
        self.repulsion = repulsion
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options


class PPCAEstimator(_ScoredRows):
    """`zoo.PPCA` as an estimator: ``transform`` gives latents, ``predict`` rows without gaps.

    Args:
        num_latents: K.
        loading_prior: ``"flat"``, ``"gaussian"`` or ``"ard"``.
        noise: ``"isotropic"`` or ``"diagonal"`` (factor analysis).
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.

    Example:
        >>> import numpy as np
        >>> from sklearn.model_selection import GridSearchCV
        >>> z = np.random.default_rng(0).normal(size=(60, 1))
        >>> x = z @ np.ones((1, 4)) + 0.1 * np.random.default_rng(1).normal(size=(60, 4))
        >>> GridSearchCV(PPCAEstimator(), {"num_latents": [1, 3]}).fit(x).best_params_
        {'num_latents': 1}
    """

    _model = "PPCA"

    def __init__(
        self,
        num_latents: int = 1,
        *,
        loading_prior: str = "flat",
        noise: str = "isotropic",
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_latents = num_latents
        self.loading_prior = loading_prior
        self.noise = noise
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options


class EPCAEstimator(_ScoredRows):
    """`zoo.EPCA` as an estimator: ``transform`` gives latents, ``predict`` rows without gaps.

    Args:
        num_latents: K.
        family: of the cells: ``"gaussian"``, ``"bernoulli"``, ``"poisson"``, ...
        beta: of the joint prior; 0 for Gaussian priors.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.
    """

    _model = "EPCA"

    def __init__(
        self,
        num_latents: int = 1,
        *,
        family: Any = "gaussian",
        beta: float = 0.0,
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_latents = num_latents
        self.family = family
        self.beta = beta
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options


class KernelPCAEstimator(ZooEstimator):
    """`zoo.KernelPCA` as a transformer; the model scores a Gram matrix, so rows have no density.

    Args:
        num_latents: K.
        kernel: a kernel of `zoo.kernels` or its name.
        noise_variance: in feature space; None: estimated, where that has finitely many dimensions.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.
    """

    _model = "KernelPCA"
    _misses_cells = False

    def __init__(
        self,
        num_latents: int = 1,
        *,
        kernel: Any = "rbf",
        noise_variance: float | None = 0.01,
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_latents = num_latents
        self.kernel = kernel
        self.noise_variance = noise_variance
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options
