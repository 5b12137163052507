"""The models as scikit-learn estimators, for a ``Pipeline`` or a ``GridSearchCV``.

An estimator holds the fields of a model and the arguments of `inference.fit`, and keeps the whole fit as
``tree_``, so that everything else here works on it: ``summary(estimator.tree_)``, reports, plots.
``transform``, ``predict`` and ``score`` are those of `inference`: posterior means under the draws or q.

scikit-learn is not needed by the rest of the library: ``pip install 'probabilistic-model-zoo[sklearn]'``.

Parameters have scikit-learn's names: ``random_state``, ``n_init``, ``max_iter`` and ``tol`` are the
arguments ``seed``, ``num_restarts``, ``max_iterations`` and ``tolerance`` of `inference.fit`, and
``settings`` holds the others. A table of numbers is fitted as an array, whatever its columns count, and names
its rows and columns in ``tree_``; one with other columns is passed on as it is, for the model to take or
refuse.

``score`` is the mean log density of the rows in nats (R squared for a regressor, accuracy for a classifier),
so that cross-validation over ``num_components`` or ``num_latents`` chooses the model that predicts best.

Every estimator is a dataclass: its fields are its parameters, which scikit-learn reads off the signature of
the generated ``__init__``. A new estimator names its model, the commonest fields of that model, and no more.
"""

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from sklearn import base
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import Tags, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

import zoo
from inference.extension import new_rows
from inference.fitting.front_door import fit
from inference.precision import double_precision
from inference.prediction import log_density, predict, transform
from inference.results.files import model_of
from inference.results.groups import group_of
from inference.settings import COMMON, Settings
from inference.symmetry import align_rotation
from zoo.checks import as_column, check_whole, keep_labels, shown
from zoo.exponential_family import Gaussian
from zoo.intake.frames import as_frame

__all__ = [
    "DEPCAMEstimator",
    "EPCAEstimator",
    "KernelPCAEstimator",
    "MCFAEstimator",
    "MixtureEstimator",
    "PPCAEstimator",
    "PairedRegressor",
    "SPPCAClassifier",
    "SPPCARegressor",
]

_SHARED = {  # parameters of every estimator, and their meaning
    "method": "as in `inference.fit`.",
    "random_state": "a whole number or a ``RandomState``; None draws a seed from NumPy's global state.",
    "n_init": "starts of an ascent, of which the best is kept; None: as many as model and method need.",
    "max_iter": "most steps of an ascent.",
    "tol": "gain of the objective in nats per row; five consecutive steps below it mean convergence.",
    "fields": "further fields of the model, by name.",
    "settings": "further arguments of `inference.fit`, by name: ``keep``, a method's options, ...",
}
_SAMPLED_AT_ONCE = 2**24  # cells of replicated data


@dataclass(eq=False, repr=False, kw_only=True)
class _Estimator(base.ClassNamePrefixFeaturesOutMixin, base.TransformerMixin, base.BaseEstimator):
    """Base of all estimators; the fields that all share close the Args of each docstring."""

    _model: ClassVar[str]
    _takes_gaps: ClassVar[bool] = True
    _least_columns: ClassVar[int] = 2
    _expected: ClassVar[tuple[str, ...]] = ()  # beginnings of warnings that a default brings with it
    method: str | Settings = "auto"
    random_state: Any = 0
    n_init: int | None = None
    max_iter: int = 1000
    tol: float = 1e-6
    fields: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] | None = None

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
                where unlabelled; of a classifier the labels, shape (num_observations,), None, NaN or
                ``pandas.NA`` where unlabelled; otherwise not used.

        Returns:
            The estimator itself, with the fit as ``tree_``.

        Raises:
            ValueError: the data do not suit the model, or ``y`` is missing or of one class where it is used.
        """
        return self._fitted(self._data(X, y))

    def _fitted(self, data: tuple, **given: Any) -> Self:
        """The estimator with the fit of checked data."""
        parameters = self.get_params(deep=False)
        fields = {name: value for name, value in parameters.items() if name not in _SHARED}
        fields |= self._fields_from(data)
        model = getattr(zoo, self._model)(**fields | dict(self.fields or {}))
        settings = self._settings()
        if twice := settings.keys() & given.keys():
            raise ValueError(f"{min(twice)} is given to fit and among settings: give it once")
        with warnings.catch_warnings():
            for message in self._expected:
                warnings.filterwarnings("ignore", message=message)
            self.tree_ = fit(model, *data, method=self.method, **settings | given)
        self.n_iter_ = int(self.tree_.attrs["num_iterations"])
        return self

    def _fields_from(self, data: tuple) -> dict[str, Any]:
        """Fields of the model whose defaults follow the data."""
        return {}

    def _settings(self) -> dict[str, Any]:
        """Arguments of `inference.fit` besides model, data and method."""
        given = {"num_restarts": self.n_init, "max_iterations": self.max_iter, "tolerance": self.tol}
        settings = {name: value for name, value in given.items() if value != COMMON[name]}
        settings |= {"progress": False, "seed": _seed_of(self.random_state)}
        return settings | dict(self.settings or {})

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the columns of `transform`: ``latent0``, ... or ``component0``, ...

        Args:
            input_features: not used.

        Returns:
            Shape (num_latents,) or (num_components,).
        """
        check_is_fitted(self)
        dim = model_of(self.tree_).roles.scores[-1]
        return np.array([f"{dim}{place}" for place in range(self._n_features_out)], dtype=object)

    def bic(self, X: Any) -> float:
        """The Bayesian information criterion of rows, lower is better; of fits by maximum likelihood.

        Args:
            X: rows with the columns of the fit.

        Returns:
            -2 log likelihood + number of parameters * log(number of rows), in nats.
        """
        log_likelihood, number, num_rows = self._likelihood(X)
        return -2.0 * log_likelihood + number * np.log(num_rows)

    def aic(self, X: Any) -> float:
        """The Akaike information criterion of rows, lower is better; of fits by maximum likelihood.

        Args:
            X: rows with the columns of the fit.

        Returns:
            -2 log likelihood + 2 * number of parameters, in nats.
        """
        log_likelihood, number, _ = self._likelihood(X)
        return -2.0 * log_likelihood + 2.0 * number

    def _likelihood(self, X: Any) -> tuple[float, int, int]:
        """Log likelihood of rows, number of parameters, and number of rows."""
        rows = self._rows(X)
        if "num_parameters" not in self.tree_.attrs:
            raise ValueError(
                f"bic and aic need a fit by maximum likelihood; this one is by "
                f"{self.tree_.attrs['method']!r}: fit "
                "with method='em', or compare by score, which is of rows that were held out"
            )
        scores = log_density(self.tree_, rows).values
        return float(scores.sum()), int(self.tree_.attrs["num_parameters"]), len(scores)

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
        return model.num_components if "component" in model.roles.scores else model.num_latents

    def _data(self, X: Any, y: Any) -> tuple[np.ndarray, ...]:
        """Arguments of `inference.fit` after the model, checked."""
        return (self._rows(X, reset=True),)

    def _rows(self, X: Any, *, reset: bool = False) -> np.ndarray:
        """Rows as float64; those to be fitted (``reset``) decide the columns, others must have the same."""
        if not reset:
            check_is_fitted(self)
        X = as_frame(X)
        if _is_mixed(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X if reset else X[list(self.feature_names_in_)]
        finite = "allow-nan" if self._takes_gaps else True
        least = {"ensure_min_samples": 2, "ensure_min_features": self._least_columns} if reset else {}
        rows = validate_data(self, X, reset=reset, dtype=np.float64, ensure_all_finite=finite, **least)
        return _named(rows, X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps
        return tags


class _RowEstimator(_Estimator):
    """An estimator whose model has a density of rows, and predicts their missing parts."""

    def predict(self, X: Any) -> np.ndarray:
        """The cluster of each row, or the rows with their missing cells filled in.

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
        return float(self.score_samples(X).mean())

    def score_samples(self, X: Any) -> np.ndarray:
        """Log density of each row, in nats.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations,).
        """
        rows = self._rows(X)
        return log_density(self.tree_, rows).values

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw new rows from the fit: each at a draw of its parameters.

        Args:
            n_samples: number of rows.

        Returns:
            Shape (n_samples, num_features).

        Raises:
            ValueError: a number below 1, or a fit that cannot be drawn from.
        """
        check_is_fitted(self)
        check_whole("n_samples", n_samples)
        return _replicated(self.tree_, int(n_samples), np.random.default_rng(_seed_of(self.random_state)))


class _Clusterer(_RowEstimator):
    """An estimator whose model has clusters of rows."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability of each component for each row.

        Args:
            X: rows with the columns of the fit.

        Returns:
            Shape (num_observations, num_components), rows summing to one.
        """
        rows = self._rows(X)
        return predict(self.tree_, rows, what="probabilities").values

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fit the model and return the component of each fitted row.

        Args:
            X: rows.
            y: not used.
            **fit_params: further arguments of `fit`.

        Returns:
            Shape (num_observations,).
        """
        return self.fit(X, **fit_params).predict(X)


class _WeighsRows(_RowEstimator):
    """An estimator whose rows may count as more or fewer than one."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model to rows.

        Args:
            X: rows, shape (num_observations, num_features); NaN is a missing cell where the model takes gaps.
            y: not used.
            sample_weight: the number of rows that each counts as, shape (num_observations,); None: one.

        Returns:
            The estimator itself, with the fit as ``tree_``.

        Raises:
            ValueError: the data do not suit the model, or the method takes no weights.
        """
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        return self._fitted(self._data(X, y), **given)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean log density of rows, in nats: higher is better.

        Args:
            X: rows with the columns of the fit.
            y: not used.
            sample_weight: the number of rows that each counts as, shape (num_observations,); None: one.

        Returns:
            Nats per row.
        """
        return float(np.average(self.score_samples(X), weights=sample_weight))


@dataclass(eq=False, repr=False)
class MixtureEstimator(_Clusterer, _WeighsRows):
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
        >>> pipeline = make_pipeline(StandardScaler(), MixtureEstimator(num_components=2, random_state=1))
        >>> len(set(pipeline.fit_predict(x)))
        2
    """

    _least_columns = 1
    _model = "Mixture"
    _takes_gaps = False
    num_components: int = 8
    _: KW_ONLY
    concentration: float = 1.0
    weight_prior: str = "dirichlet"
    components: Any = None

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw new rows from the fit, and say which component each most probably is of.

        Args:
            n_samples: number of rows.

        Returns:
            The rows, shape (n_samples, num_features), and their components by `predict`, shape (n_samples,).
        """
        rows = super().sample(n_samples)
        return rows, predict(self.tree_, rows).values


@dataclass(eq=False, repr=False)
class DEPCAMEstimator(_Clusterer):
    """`zoo.DEPCAM` as an estimator: ``transform`` gives the shares of components, ``predict`` the component.

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


class _Projection:
    """What estimators of projections add: rows from latents."""

    _suffix: ClassVar[str] = ""

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """Expected rows at given latents: loadings times latents plus the location, in the units of the data.

        Args:
            Z: latents, shape (num_observations, num_latents), as `transform` gives them.

        Returns:
            Shape (num_observations, num_features).
        """
        check_is_fitted(self)
        latents = check_array(Z, dtype=np.float64)
        if latents.shape[1] != self._n_features_out:
            raise ValueError(
                f"Z must have {self._n_features_out} columns, one a latent; got {latents.shape[1]}"
            )
        return _rows_at(self.tree_, latents, self._suffix)


@dataclass(eq=False, repr=False)
class PPCAEstimator(_Projection, _WeighsRows):
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
class MCFAEstimator(_Projection, _Clusterer, _WeighsRows):
    """`zoo.MCFA` as an estimator: ``transform`` gives latents, ``predict`` the component.

    Args:
        num_components: M, the number of clusters or the truncation of the Dirichlet process.
        num_latents: K, fewer than features.
        concentration: alpha.
        weight_prior: ``"dirichlet"`` or ``"stick_breaking"``.
        noise: ``"isotropic"`` or ``"diagonal"``.
    """

    _model = "MCFA"
    num_components: int = 8
    num_latents: int = 1
    _: KW_ONLY
    concentration: float = 1.0
    weight_prior: str = "dirichlet"
    noise: str = "isotropic"


@dataclass(eq=False, repr=False)
class EPCAEstimator(_Projection, _RowEstimator):
    """`zoo.EPCA` as an estimator: ``transform`` gives latents, ``predict`` rows without gaps.

    Args:
        num_latents: K.
        family: of the cells: ``"gaussian"`` with noise that is estimated, in any unit, ``"bernoulli"``,
            ``"poisson"``, ..., or a family of `zoo.exponential_family`.
        beta: of the joint prior; 0 for Gaussian priors.
    """

    _model = "EPCA"
    num_latents: int = 1
    _: KW_ONLY
    family: Any = "gaussian"
    beta: float = 0.0

    def _fields_from(self, data: tuple) -> dict[str, Any]:
        """The family of real numbers whose noise is estimated."""
        return {"family": Gaussian(noise_variance=None)} if self.family == "gaussian" else {}


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
        return rows, _named(outputs[:, None] if self._is_vector else outputs, as_column(y))

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

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R squared of each output over the rows that have it, averaged over the outputs.

        Args:
            X: rows with the columns of the fit.
            y: their outputs, shaped as those of the fit, NaN where unlabelled.
            sample_weight: the number of rows that each counts as, shape (num_observations,); None: one.

        Returns:
            1 for a perfect prediction, 0 for one as good as the mean of each output.

        Raises:
            ValueError: an output that fewer than two rows have.
        """
        predicted = self.predict(X)
        outputs = check_array(y, dtype=np.float64, ensure_2d=False, ensure_all_finite="allow-nan")
        check_consistent_length(predicted, outputs)
        found = []
        for place, (own, guess) in enumerate(zip(*map(_columns, (outputs, predicted)), strict=True)):
            given = ~np.isnan(own)
            if given.sum() < 2:
                raise ValueError(
                    f"R squared takes two labelled rows or more; y has {given.sum()} in column {place}: "
                    "score rows whose outputs are known"
                )
            weight = None if sample_weight is None else np.asarray(sample_weight)[given]
            found.append(r2_score(own[given], guess[given], sample_weight=weight))
        return float(np.mean(found))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.regressor_tags.poor_score = True  # one direction by default
        return tags


@dataclass(eq=False, repr=False)
class SPPCARegressor(_Projection, _Regressor):
    """`zoo.SPPCA` as a regressor and transformer; a NaN in ``y`` is an output to be predicted.

    Args:
        num_latents: K.
        output_noise: ``"shared"`` or ``"per_output"``.
        kernel: None, or a kernel of `zoo.kernels` or its name.
    """

    _model = "SPPCA"
    _suffix = "_x"
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
        families: of the cells of each view; None: Gaussian with noise that is estimated, in any unit.
    """

    _model = "Paired"
    _predicted = "y_1"
    num_shared: int = 1
    _: KW_ONLY
    num_specific: Any = (0, 0)
    families: Any = None

    def _fields_from(self, data: tuple) -> dict[str, Any]:
        """The families of real numbers."""
        return {} if self.families is not None else {"families": (Gaussian(noise_variance=None),) * 2}


@dataclass(eq=False, repr=False)
class SPPCAClassifier(_Projection, base.ClassifierMixin, _Estimator):
    """`zoo.SPPCA` as a classifier and transformer: class labels are columns of its outputs.

    A row whose label is None, NaN or ``pandas.NA`` is unlabelled, as in `inference.fit`; -1 is a class.

    Args:
        num_latents: K; None: as many as classes, but fewer than features. The outputs' noise then lies at its
            floor, since so many latents can fit the columns of the classes, and no warning says so.
        kernel: None, or a kernel of `zoo.kernels` or its name.
        label_coding: ``"one_of_c"`` or ``"reduced"``.
    """

    _model = "SPPCA"
    _suffix = "_x"
    num_latents: int | None = None
    _: KW_ONLY
    kernel: Any = None
    label_coding: str = "one_of_c"

    def _data(self, X: Any, y: Any) -> tuple[np.ndarray, ...]:
        """Rows, and the number of each row's class."""
        _require(self, y)
        rows, (labels, given) = self._rows(X, reset=True), _labels_and_given(y)
        check_consistent_length(rows, given)
        check_classification_targets(labels)
        self.classes_, coded = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            only = f"every label is {shown(self.classes_[0])}" if len(labels) else "every label is missing"
            raise ValueError(f"y must hold more than one class; {only}")
        codes = np.full(len(given), -1)
        codes[given] = coded
        return rows, pd.Series(pd.Categorical.from_codes(codes, self.classes_), getattr(rows, "index", None))

    def _fields_from(self, data: tuple) -> dict[str, Any]:
        """The number of latents that tells the classes apart."""
        if self.num_latents is not None:
            return {}
        most = min(data[0].shape[0], data[0].shape[1]) - 1
        return {"num_latents": max(1, min(len(self.classes_), most))}

    @property
    def _expected(self) -> tuple[str, ...]:
        return () if self.num_latents is not None else (".* is at its floor", "the .+ outputs have rank")

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

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of labelled rows whose class is predicted.

        Args:
            X: rows with the columns of the fit.
            y: their labels, None, NaN or ``pandas.NA`` where a row has none, which is left out.
            sample_weight: the number of rows that each counts as, shape (num_observations,); None: one.

        Returns:
            Accuracy, from 0 to 1.

        Raises:
            ValueError: no row is labelled.
        """
        predicted, (labels, given) = self.predict(X), _labels_and_given(y)
        check_consistent_length(predicted, given)
        if not given.any():
            raise ValueError("accuracy takes labelled rows, and every label of y is missing: see predict")
        weight = None if sample_weight is None else np.asarray(sample_weight)[given]
        return float(accuracy_score(labels, predicted[given], sample_weight=weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # one direction by default
        return tags


def _named(array: np.ndarray, table: Any) -> np.ndarray:
    """The array, which keeps the names of the rows and columns of a table that it was read from."""
    if hasattr(table, "columns") and hasattr(table, "index") and table.columns.is_unique:
        keep_labels(array, table)
    return array


def _labels_and_given(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The labels that are not missing, and whether each row has one."""
    if isinstance(y, list | tuple) and pd.isna(cells := pd.Series(y, dtype=object)).any():
        y = cells  # NumPy would make the text "nan" of a missing label
    labels = column_or_1d(y, warn=True)
    given = ~pd.isna(labels)
    return (labels if given.all() else np.array(labels[given].tolist())), given


def _columns(outputs: np.ndarray) -> np.ndarray:
    """The columns of outputs that may be a vector, shape (num_outputs, num_observations)."""
    return outputs.reshape(len(outputs), -1).T


def _seed_of(random_state: Any) -> int:
    """The seed of a fit: a whole number as it is, else one drawn from the state."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))


def _is_mixed(X: Any) -> bool:
    """Whether this is a table with columns that are not numbers."""
    if not (hasattr(X, "dtypes") and hasattr(X, "iloc") and hasattr(X, "columns")):
        return False
    return any(getattr(kind, "kind", "O") not in "biufO" or kind == "category" for kind in X.dtypes) or any(
        getattr(kind, "kind", "O") == "O" and not _holds_numbers(X.iloc[:, place])
        for place, kind in enumerate(X.dtypes)
    )


def _holds_numbers(column: Any) -> bool:
    return all(isinstance(cell, Real | np.bool_) for cell in column.dropna())


def _replicated(tree: xr.DataTree, num_rows: int, rng: np.random.Generator) -> np.ndarray:
    """New rows, as evenly as can be from different draws."""
    model, posterior = model_of(tree), group_of(tree, "posterior")
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    dims = model.variable_dims[model.data_names[0]]
    fitted, width = (
        next(group.sizes[dim] for group in tree.children.values() if dim in group.sizes) for dim in dims
    )
    most = max(1, _SAMPLED_AT_ONCE // (fitted * width * chains))
    rows: list[np.ndarray] = []
    while (left := num_rows - sum(map(len, rows))) > 0:
        chosen = rng.permutation(draws)[: min(draws, most, -(-left // chains))]
        some = tree.copy()
        some["posterior"] = xr.DataTree(posterior.isel(draw=np.sort(chosen)))
        each = min(fitted, -(-left // (chains * len(chosen))))
        picked = np.concatenate(new_rows(some, int(rng.integers(2**31)), each))
        rows.append(picked[rng.permutation(len(picked))[:left]])
    return np.concatenate(rows)


@double_precision
def _rows_at(tree: xr.DataTree, latents: np.ndarray, suffix: str) -> np.ndarray:
    """Expected rows at given latents, by the estimate or the mean over aligned draws."""
    names = (f"loadings{suffix}", f"loc{suffix}")
    if names[0] not in group_of(tree, "posterior"):
        raise ValueError("with a kernel x is known in feature space alone: latents have no rows")
    model, aligned = model_of(tree), align_rotation(tree)
    held = group_of(aligned, "variational") if "variational" in aligned.children else {}
    if not all(name in held for name in names):
        held = group_of(aligned, "posterior").mean(("chain", "draw"))
    loadings, loc = (held[name].to_numpy() for name in names)
    if model.part_families[0] is None:
        return latents @ loadings.T + loc
    numbers = {name: jnp.asarray(value.to_numpy()) for name, value in held.items()}
    cells = model.cells(numbers | {"latents": jnp.asarray(latents)})
    return np.asarray(cells.mean_and_variance()[0])


def _require(estimator: _Estimator, y: Any) -> None:
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
