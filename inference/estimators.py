"""The models as scikit-learn estimators: for a ``Pipeline``, a ``GridSearchCV``, or whatever expects one.

An estimator holds what a model and a call of `inference.fit` are told, fits when asked, and keeps the whole
fit as ``tree_``, so that everything else here works on it: ``summary(estimator.tree_)``, reports, plots. A
point or a draw of q is not hidden behind it: ``transform``, ``predict`` and ``score`` are those of
`inference`, posterior means over whatever the method gives.

scikit-learn is not needed by the rest of the library: ``pip install 'probabilistic-model-zoo[sklearn]'``.

``score`` is the mean log density of the rows in nats (R squared for a regressor, accuracy for a classifier),
so that cross-validation over ``num_components`` or ``num_latents`` chooses the model that predicts best.
"""

from inference.output_estimators import PairedRegressor, SPPCAClassifier, SPPCARegressor
from inference.row_estimators import (
    DEPCAMEstimator,
    EPCAEstimator,
    KernelPCAEstimator,
    MixtureEstimator,
    PPCAEstimator,
)

__all__ = [
    "DEPCAMEstimator",
    "EPCAEstimator",
    "KernelPCAEstimator",
    "MixtureEstimator",
    "PPCAEstimator",
    "PairedRegressor",
    "SPPCAClassifier",
    "SPPCARegressor",
]
