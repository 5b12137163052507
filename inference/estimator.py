"""What every scikit-learn estimator of a model does alike: fit, transform, check what it is given."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

import inference
import zoo

__all__ = ["ZooEstimator"]

_NOT_FIELDS = ("method", "seed", "fields", "options")


class ZooEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What all estimators do alike; each class names its model and its commonest fields."""

    _model: ClassVar[str]
    _misses_cells: ClassVar[bool] = True
    method: str
    seed: int
    fields: Mapping[str, Any] | None
    options: Mapping[str, Any] | None

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to rows.

        Args:
            X: shape (num_observations, num_features); NaN is a missing cell where the model can miss one.
            y: not used.

        Returns:
            The estimator itself, with the fit as ``tree_``.
        """
        return self.fit_model(self.rows(X, reset=True))

    def transform(self, X: Any) -> np.ndarray:
        """Posterior mean scores of rows: latents, or the shares of components (`inference.transform`).

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations, num_latents) or (num_observations, num_components).
        """
        return inference.transform(self.fitted(), self.rows(X)).values

    @property
    def _n_features_out(self) -> int:
        """How many columns `transform` gives, which names them."""
        scores = inference.model_of(self.tree_)
        return scores.num_components if "component" in scores.score_dims else scores.num_latents

    def fit_model(self, *data: np.ndarray) -> Self:
        """Fit the model that the parameters say to data that were checked.

        Args:
            *data: what the model takes.

        Returns:
            The estimator itself.
        """
        names = [name for name in self.get_params(deep=False) if name not in _NOT_FIELDS]
        fields = {name: getattr(self, name) for name in names} | dict(self.fields or {})
        model = getattr(zoo, self._model)(**fields)
        options = {"progress": False} | dict(self.options or {})
        self.tree_ = inference.fit(model, *data, method=self.method, seed=self.seed, **options)
        self.n_iter_ = int(self.tree_.attrs["num_iterations"])
        return self

    def fitted(self) -> xr.DataTree:
        """The fit; scikit-learn's own error before there is one.

        Returns:
            The tree that `inference.fit` gave.
        """
        check_is_fitted(self)
        return self.tree_

    def rows(self, X: Any, *, reset: bool = False) -> np.ndarray:
        """Rows as float64, with the columns of the fit.

        Args:
            X: rows.
            reset: whether they are those to be fitted, which decide the columns.

        Returns:
            Shape (num_observations, num_features).
        """
        if not reset:
            check_is_fitted(self)
        finite = "allow-nan" if self._misses_cells else True
        least = {"ensure_min_samples": 2, "ensure_min_features": 2} if reset else {}
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, **least)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._misses_cells
        return tags
