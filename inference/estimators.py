"""The models as scikit-learn estimators, for a ``Pipeline`` or a ``GridSearchCV``.

An estimator holds the fields of a model and the arguments of `inference.fit`, and keeps the whole fit as
``tree_``, so that everything else here works on it: ``summary(estimator.tree_)``, reports, plots.
``transform``, ``predict`` and ``score`` are those of `inference`: posterior means under the draws or q.

scikit-learn is not needed by the rest of the library: ``pip install 'probabilistic-model-zoo[sklearn]'``.

``score`` is the mean log density of the rows in nats (R squared for a regressor, accuracy for a classifier),
so that cross-validation over ``num_components`` or ``num_latents`` chooses the model that predicts best.

Every estimator is a dataclass: its fields are its parameters, which scikit-learn reads off the signature of
the generated ``__init__``. A new estimator names its model, the commonest fields of that model, and no more.
"""

import inspect
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import base
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

import zoo
from inference.fitting.front_door import fit
from inference.prediction import log_density, predict, transform
from inference.results.files import model_of

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

_SHARED = {  # parameters of every estimator, and their meaning
    "method": "as in `inference.fit`.",
    "seed": "as in `inference.fit`.",
    "fields": "further fields of the model, by name.",
    "options": "further arguments of `inference.fit`, by name.",
}


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator(base.ClassNamePrefixFeaturesOutMixin, base.TransformerMixin, base.BaseEstimator):
    """Base of all estimators; the fields that all share close the Args of each docstring."""

    _model: ClassVar[str]
    _takes_gaps: ClassVar[bool] = True
    method: str = "auto"
    seed: int = 0
    fields: Mapping[str, Any] | None = None
    options: Mapping[str, Any] | None = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        text, example, code = inspect.cleandoc(cls.__doc__ or "").partition("\n\nExample:")
        if "\nArgs:" in text:
            described = (f"\n    {name}: {meaning}" for name, meaning in _SHARED.items())
            cls.__doc__ = text + "".join(line for line in described if line not in text) + example + code

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the model to rows, and to outputs or labels of those that have them.

        Args:
            X: rows, shape (num_observations, num_features); NaN is a missing cell where the model takes gaps.
            y: of a regressor the outputs, shape (num_observations,) or (num_observations, num_outputs), NaN
                where unlabelled; of a classifier the labels, shape (num_observations,); otherwise not used.

        Returns:
            The estimator itself, with the fit as ``tree_``.

        Raises:
            ValueError: the data do not suit the model, or ``y`` is missing or of one class where it is used.
        """
        data = self._data(X, y)
        parameters = self.get_params(deep=False)
        fields = {name: value for name, value in parameters.items() if name not in _SHARED}
        model = getattr(zoo, self._model)(**fields | dict(self.fields or {}))
        options = {"progress": False} | dict(self.options or {})
        self.tree_ = fit(model, *data, method=self.method, seed=self.seed, **options)
        self.n_iter_ = int(self.tree_.attrs["num_iterations"])
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Posterior mean scores of rows: latents, or the shares of components (`inference.transform`).

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations, num_latents) or (num_observations, num_components).
        """
        rows = self._rows(X)
        return transform(self.tree_, rows).values

    @property
    def _n_features_out(self) -> int:
        """Number of columns of `transform`, by which scikit-learn names them."""
        model = model_of(self.tree_)
        return model.num_components if "component" in model.score_dims else model.num_latents

    def _data(self, X: Any, y: Any) -> tuple[np.ndarray, ...]:
        """Arguments of `inference.fit` after the model, checked."""
        return (self._rows(X, reset=True),)

    def _rows(self, X: Any, *, reset: bool = False) -> np.ndarray:
        """Rows as float64; those to be fitted (``reset``) decide the columns, others must have the same."""
        if not reset:
            check_is_fitted(self)
        finite = "allow-nan" if self._takes_gaps else True
        least = {"ensure_min_samples": 2, "ensure_min_features": 2} if reset else {}
        return validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, **least)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps
        return tags


class _RowEstimator(_Estimator):
    """An estimator whose model has a density of rows, and predicts their missing parts."""

    def predict(self, X: Any) -> np.ndarray:
        """The component of each row, or the rows with their missing cells filled in.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,), or (num_observations, num_features).
        """
        rows = self._rows(X)
        return predict(self.tree_, rows).values

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of rows, in nats: higher is better.

        Args:
            X: rows with the columns of the fit.
            y: not used.

        Returns:
            Nats per row.
        """
        rows = self._rows(X)
        return float(log_density(self.tree_, rows).mean())


@dataclass(eq=False, repr=False)
class MixtureEstimator(_RowEstimator):
    """`zoo.Mixture` as an estimator: ``transform`` gives the shares of components, ``predict`` the component.

    Args:
        num_components: K, the number of components or the truncation of the Dirichlet process.
        concentration: alpha.
        weight_prior: ``"dirichlet"`` or ``"stick_breaking"``.
        components: a prior of `zoo.conjugate`; None: Gaussians with full covariance.

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
    _takes_gaps = False
    num_components: int = 8
    _: KW_ONLY
    concentration: float = 1.0
    weight_prior: str = "dirichlet"
    components: Any = None

    def fit_predict(self, X: Any, y: Any = None) -> np.ndarray:
        """Fit the model and return the component of each fitted row.

        Args:
            X: rows.
            y: not used.

        Returns:
            Shape (num_observations,).
        """
        return self.fit(X).predict(X)


@dataclass(eq=False, repr=False)
class DEPCAMEstimator(_RowEstimator):
    """`zoo.DEPCAM` as an estimator: ``transform`` gives shares of components, ``predict`` rows without gaps.

    Args:
        num_components: K.
        num_latents: of each component.
        family: of the cells.
        repulsion: of the components.
    """

    _model = "DEPCAM"
    num_components: int = 3
    num_latents: int = 1
    _: KW_ONLY
    family: Any = "gaussian"
    repulsion: float = 1.0


@dataclass(eq=False, repr=False)
class PPCAEstimator(_RowEstimator):
    """`zoo.PPCA` as an estimator: ``transform`` gives latents, ``predict`` rows without gaps.

    Args:
        num_latents: K.
        loading_prior: ``"flat"``, ``"gaussian"`` or ``"ard"``.
        noise: ``"isotropic"`` or ``"diagonal"`` (factor analysis).

    Example:
        >>> import numpy as np
        >>> from sklearn.model_selection import GridSearchCV
        >>> z = np.random.default_rng(0).normal(size=(60, 1))
        >>> x = z @ np.ones((1, 4)) + 0.1 * np.random.default_rng(1).normal(size=(60, 4))
        >>> GridSearchCV(PPCAEstimator(), {"num_latents": [1, 3]}).fit(x).best_params_
        {'num_latents': 1}
    """

    _model = "PPCA"
    num_latents: int = 1
    _: KW_ONLY
    loading_prior: str = "flat"
    noise: str = "isotropic"


@dataclass(eq=False, repr=False)
class EPCAEstimator(_RowEstimator):
    """`zoo.EPCA` as an estimator: ``transform`` gives latents, ``predict`` rows without gaps.

    Args:
        num_latents: K.
        family: of the cells: ``"gaussian"``, ``"bernoulli"``, ``"poisson"``, ...
        beta: of the joint prior; 0 for Gaussian priors.
    """

    _model = "EPCA"
    num_latents: int = 1
    _: KW_ONLY
    family: Any = "gaussian"
    beta: float = 0.0


@dataclass(eq=False, repr=False)
class KernelPCAEstimator(_Estimator):
    """`zoo.KernelPCA` as a transformer; the model scores a Gram matrix, so rows have no density.

    Args:
        num_latents: K.
        kernel: a kernel of `zoo.kernels` or its name.
        noise_variance: in feature space; None: estimated, where that has finitely many dimensions.
    """

    _model = "KernelPCA"
    _takes_gaps = False
    num_latents: int = 1
    _: KW_ONLY
    kernel: Any = "rbf"
    noise_variance: float | None = 0.01


class _Regressor(base.MultiOutputMixin, base.RegressorMixin, _Estimator):
    """A regressor: real outputs, or the columns of another view, predicted from rows."""

    _predicted: ClassVar[str | None] = None  # `what` of `inference.predict`

    def _data(self, X: Any, y: Any) -> tuple[np.ndarray, ...]:
        """Rows and outputs."""
        _require(self, y)
        rows = self._rows(X, reset=True)
        outputs = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y"
        )
        check_consistent_length(rows, outputs)
        self._is_vector = outputs.ndim == 1
        return rows, outputs[:, None] if self._is_vector else outputs

    def predict(self, X: Any) -> np.ndarray:
        """Expected outputs of rows.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,) or (num_observations, num_outputs), as ``y`` had.
        """
        rows = self._rows(X)
        values = predict(self.tree_, rows, what=self._predicted).values
        return values[:, 0] if self._is_vector else values

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.regressor_tags.poor_score = True  # one direction by default
        return tags


@dataclass(eq=False, repr=False)
class SPPCARegressor(_Regressor):
    """`zoo.SPPCA` as a regressor and transformer; a NaN in ``y`` is an output to be predicted.

    Args:
        num_latents: K.
        output_noise: ``"shared"`` or ``"per_output"``.
        kernel: None, or a kernel of `zoo.kernels` or its name.
    """

    _model = "SPPCA"
    num_latents: int = 1
    _: KW_ONLY
    output_noise: str = "shared"
    kernel: Any = None


@dataclass(eq=False, repr=False)
class PairedRegressor(_Regressor):
    """`zoo.Paired` with two views: the second is predicted from the first by their shared latents.

    Args:
        num_shared: latents of both views.
        num_specific: latents of one view alone, for each view.
        families: of the cells of each view.
        method: as in `inference.fit`.
    """

    _model = "Paired"
    _predicted = "y_1"
    num_shared: int = 1
    _: KW_ONLY
    num_specific: Any = (0, 0)
    families: Any = ("gaussian", "gaussian")
    method: str = "map"


@dataclass(eq=False, repr=False)
class SPPCAClassifier(base.ClassifierMixin, _Estimator):
    """`zoo.SPPCA` as a classifier and transformer: class labels are columns of its outputs.

    Args:
        num_latents: K.
        kernel: None, or a kernel of `zoo.kernels` or its name.
        label_coding: ``"one_of_c"`` or ``"reduced"``.
    """

    _model = "SPPCA"
    num_latents: int = 1
    _: KW_ONLY
    kernel: Any = None
    label_coding: str = "one_of_c"

    def _data(self, X: Any, y: Any) -> tuple[np.ndarray, ...]:
        """Rows, and the number of each row's class."""
        _require(self, y)
        least = {"ensure_min_samples": 2, "ensure_min_features": 2, "ensure_all_finite": "allow-nan"}
        rows, labels = validate_data(self, X, y, dtype=np.float64, **least)
        check_classification_targets(labels)
        self.classes_, coded = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold more than one class; every label is {self.classes_[0]!r}")
        return rows, coded

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each class.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations, num_classes), in the order of ``classes_``.
        """
        rows = self._rows(X)
        return predict(self.tree_, rows, what="classes").values

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,).
        """
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(axis=1)]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # one direction by default
        return tags


def _require(estimator: _Estimator, y: Any) -> None:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
