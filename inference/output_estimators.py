"""scikit-learn estimators of models of rows and outputs: regressors and a classifier that project too."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import xarray as xr
from sklearn.base import ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

import inference
from inference.estimator import ZooEstimator

__all__ = ["PairedRegressor", "SPPCAClassifier", "SPPCARegressor"]


class _Outputs(MultiOutputMixin, RegressorMixin, ZooEstimator):
    """A regressor: real outputs, or the columns of another view, predicted from rows."""

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to rows and outputs.

        Args:
            X: inputs, shape (num_observations, num_features).
            y: outputs, shape (num_observations,) or (num_observations, num_outputs); NaN where unlabelled.

        Returns:
            The estimator itself, with the fit as ``tree_``.

        Raises:
            ValueError: there are no outputs.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        rows = self.rows(X, reset=True)
        outputs = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y"
        )
        check_consistent_length(rows, outputs)
        self._is_vector = outputs.ndim == 1
        return self.fit_model(rows, outputs[:, None] if self._is_vector else outputs)

    def predict(self, X: Any) -> np.ndarray:
        """Expected outputs of rows.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,) or (num_observations, num_outputs), as ``y`` had.
        """
        values = self._predicted(self.fitted(), self.rows(X))
        return values[:, 0] if self._is_vector else values

    def _predicted(self, tree: xr.DataTree, rows: np.ndarray) -> np.ndarray:
        return inference.predict(tree, rows).values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.regressor_tags.poor_score = True  # one direction by default
        return tags


class SPPCARegressor(_Outputs):
    """`zoo.SPPCA` as a regressor and transformer; a NaN in ``y`` is an output to be predicted.

    Args:
        num_latents: K.
        output_noise: ``"shared"`` or ``"per_output"``.
        kernel: None, or a kernel of `zoo.kernels` or its name.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.
    """

    _model = "SPPCA"

    def __init__(
        self,
        num_latents: int = 1,
        *,
        output_noise: str = "shared",
        kernel: Any = None,
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_latents = num_latents
        self.output_noise = output_noise
        self.kernel = kernel
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options


class PairedRegressor(_Outputs):
    """`zoo.Paired` with two views: the second is predicted from the first by what they share.

    Args:
        num_shared: latents of both views.
        num_specific: latents of each view's own.
        families: of the cells of each view.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.
    """

    _model = "Paired"

    def __init__(
        self,
        num_shared: int = 1,
        *,
        num_specific: Any = (0, 0),
        families: Any = ("gaussian", "gaussian"),
        method: str = "map",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_shared = num_shared
        self.num_specific = num_specific
        self.families = families
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options

    def _predicted(self, tree: xr.DataTree, rows: np.ndarray) -> np.ndarray:
        return inference.predict(tree, rows, what="y_1").values


class SPPCAClassifier(ClassifierMixin, ZooEstimator):
    """`zoo.SPPCA` as a classifier and transformer: class labels are columns of its outputs.

    Args:
        num_latents: K.
        kernel: None, or a kernel of `zoo.kernels` or its name.
        label_coding: ``"one_of_c"`` or ``"reduced"``.
        method: as in `inference.fit`.
        seed: as in `inference.fit`.
        fields: further fields of the model, by name.
        options: further arguments of `inference.fit`, by name.
    """

    _model = "SPPCA"

    def __init__(
        self,
        num_latents: int = 1,
        *,
        kernel: Any = None,
        label_coding: str = "one_of_c",
        method: str = "auto",
        seed: int = 0,
        fields: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.num_latents = num_latents
        self.kernel = kernel
        self.label_coding = label_coding
        self.method = method
        self.seed = seed
        self.fields = fields
        self.options = options

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the model to rows and their labels.

        Args:
            X: inputs, shape (num_observations, num_features).
            y: labels, shape (num_observations,).

        Returns:
            The estimator itself, with the fit as ``tree_``.

        Raises:
            ValueError: there are no labels, or only one class.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        least = {"ensure_min_samples": 2, "ensure_min_features": 2, "ensure_all_finite": "allow-nan"}
        rows, labels = validate_data(self, X, y, dtype=np.float64, **least)
        check_classification_targets(labels)
        self.classes_, coded = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold more than one class; every label is {self.classes_[0]!r}")
        return self.fit_model(rows, coded)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations, num_classes), in the order of ``classes_``.
        """
        return inference.predict(self.fitted(), self.rows(X), what="classes").values

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,).
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # one direction by default
        return tags
