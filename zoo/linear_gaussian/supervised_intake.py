"""How SPPCA takes its data and its fields: sizes, classes, priors and kernels, and what does not suit."""

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from jax import Array

from zoo import checks
from zoo.fields import Part
from zoo.intake.tables import as_cells, check_fit, check_latents
from zoo.kernels import as_kernel
from zoo.kernels.gram import check_gram, scored_dimension
from zoo.linear_gaussian.class_labels import are_labels, class_names, code_labels
from zoo.linear_gaussian.probit import check_probit_outputs
from zoo.linear_gaussian.units import BROAD, of_prior
from zoo.model import Model
from zoo.sparse import SparseMatrix, as_rows, is_sparse

if TYPE_CHECKING:
    from zoo.sppca import SPPCA

DENSE = "missing outputs are NaN, and cells that are not stored are zeros"


def _scales(model: "SPPCA", x: Any, y: Any) -> np.ndarray:
    """Mean variances of inputs and outputs, of their moments; utilities have 1."""
    return np.array([x.scale, y.scale if model.output_likelihood == "gaussian" else 1.0])


def _places(model: "SPPCA", x: Any, y: Any) -> np.ndarray:
    """Means of the columns of inputs and outputs, of their moments; utilities have 0."""
    return np.concatenate([x.means, y.means * (model.output_likelihood == "gaussian")])


def _rates(model: "SPPCA", x: Any, y: Any) -> np.ndarray:
    """Rates of the noise of inputs and outputs, or of each output, of their moments."""
    of_y = _scales(model, x, y)[1:]
    if model.output_noise == "per_output":
        of_y = y.variances if model.output_likelihood == "gaussian" else np.ones_like(y.variances)
    return model.noise_concentration * np.append(x.scale, of_y)


def _dimension(model: "SPPCA", x: Part, y: Part) -> int | None:
    """The dimension of the kernel's feature space, as a row's density has it; None: there is no kernel."""
    num_rows, num_features = x.rows.shape
    if model.kernel is None:
        return None
    return scored_dimension(model.kernel.feature_dimension(num_features), num_rows)


def _columns(model: "SPPCA") -> dict[str, int | str]:
    sizes = model.num_features, model.num_outputs
    return {"each column of x and then of y": "num_columns" if None in sizes else sum(sizes)}


def _noises(model: "SPPCA") -> dict[str, int]:
    by_output = model.output_noise == "per_output" and model.num_outputs is not None
    return {"x and y": 2} | ({"x and each output": 1 + model.num_outputs} if by_output else {})


_PARTS: dict[str, Any] = {"dims": lambda model: {"x and y": 2}, "or_one": True}
# facts of fields: of the prior, and of what a kernel decides
FACTS: dict[str, Any] = {
    # a feature space draws no inputs under either prior
    "loading_prior": {"proper_with": "='gaussian'", "is_used": lambda model: model.kernel is None},
    "loading_variance": _PARTS | of_prior("variance_units", _scales),
    "loc_mean": {"dims": _columns, "or_one": True}
    | {"otherwise": lambda model: None if model.loc_variance is None else 0.0}
    | of_prior("place_units", _places),
    "loc_variance": _PARTS | of_prior("variance_units", lambda *data: BROAD * _scales(*data)),
    "noise_rate": {"dims": _noises, "or_one": True} | of_prior("noise_units", _rates),
    "kernel": {"convert": as_kernel, "fill": lambda model, x, y: model.kernel.filled(x.rows)},
    "feature_dimension": {"least": 0, "read": _dimension},
}


class SupervisedIntake(Model):
    """What `zoo.SPPCA` reads off inputs and outputs, and refuses."""

    kernel: Any
    num_features: int
    classes: tuple[str | int, ...] | None
    is_classes: bool
    standardize: bool
    label_coding: str
    loading_prior: str
    output_likelihood: str
    noise_floor: Array
    noise_variance_x: Array | None

    def with_sizes_from(self, x: Any, y: Any, sample_weight: np.ndarray | None = None) -> Self:
        """As of every model; a prior that is read off the data needs what a fit needs of them."""
        if self.loading_prior == "gaussian":
            x, y = as_cells(self, 0, x), as_cells(self, 1, y)
            self.check_new(x, y)
            self._check_observed(x, y)
        return super().with_sizes_from(x, y)

    def encoded(self, *data: Any) -> tuple[Self, tuple]:
        """The model with its classes, and the data with labels as 0/1 columns and sparse x as `SparseMatrix`.

        Real outputs of one dimension are one output, which has the name of a Series.

        Raises:
            TypeError: sparse outputs.
        """
        if is_sparse(data[0]):
            self._check_sparse()
        _, data = super().encoded(*data)
        if len(data) < 2 or data[1] is None:
            return self, data
        if not are_labels(data[1]):
            return self, (data[0], checks.as_column(data[1], "y"), *data[2:])
        classes = class_names(data[1]) if self.classes is None else self.classes
        y = code_labels(data[1], classes, self.label_coding)
        return self.replaced(classes=classes), (data[0], y, *data[2:])

    def _check_sparse(self) -> None:
        """Raise ValueError where the model does not take sparse inputs."""
        if self.kernel is not None:
            raise ValueError(
                "a kernel takes dense x: zoo.kernels.gram.gram_matrix makes the Gram matrix of sparse x, to "
                "be fitted with kernel='precomputed'"
            )
        for name, needed in (("loading_prior", "flat"), ("output_likelihood", "gaussian")):
            if getattr(self, name) != needed:
                raise ValueError(f"sparse x goes with {name}={needed!r}; got {getattr(self, name)!r}")

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        floors = np.broadcast_to(self.noise_floor, (2,)) if self.noise_floor.shape in ((), (2,)) else None
        if floors is None or not ((floors >= 0) & (floors < 1)).all():
            raise ValueError(
                f"noise_floor must be two shares of the variance, of x and of y, in [0, 1); "
                f"got {checks.shown(self.noise_floor)}"
            )
        object.__setattr__(self, "noise_floor", np.array(floors))
        if self.standardize and self.kernel is not None:
            raise ValueError(
                "standardize=True goes with kernel=None: divide the columns of x by their standard deviations"
            )
        if self.classes is not None:
            if np.ndim(self.classes) != 1 or len(self.classes) < 2 or isinstance(self.classes, dict):
                raise ValueError(
                    f"classes must be a tuple of two class labels or more; got {checks.shown(self.classes)}"
                )
            object.__setattr__(self, "classes", tuple(self.classes))
        if self.kernel is not None and self.loading_prior != "flat":
            raise ValueError(
                "with a kernel the loadings have no rows to put a prior on: loading_prior='flat'"
            )
        if self.output_likelihood == "gaussian":
            return
        if self.label_coding == "reduced" and self.classes is not None and len(self.classes) > 2:
            raise ValueError(
                f"probit utilities need a column for each of the {len(self.classes)} classes: "
                f"label_coding='one_of_c'"
            )

    def check(self, x: np.ndarray, y: np.ndarray) -> None:
        """Raise ValueError if the data do not suit the model."""
        rows, y = as_rows(x), checks.as_matrix(y, "y")
        self.check_new(rows, y)
        self._check_observed(rows, y)
        check_latents(self, (rows, y))

    def _check_observed(self, x: np.ndarray | SparseMatrix, y: np.ndarray) -> None:
        """Raise ValueError naming a column without variance or observed cell, or a row without any cell."""
        if len(y) and np.isnan(y).all():
            raise ValueError("every cell of y is missing: without outputs the model is zoo.PPCA")
        check_fit(self, (x, y))
        if self.kernel is not None and self.kernel.is_precomputed:
            check_gram(x)
        else:
            checks.check_not_constant(x)

    def check_new(self, *data: Any) -> None:
        """Raise ValueError if rows, new or fitted, do not suit the model."""
        if self.kernel is not None and np.isnan(x := checks.as_matrix(data[0])).any():
            row, column = np.argwhere(np.isnan(x))[0]
            raise ValueError(
                f"a kernel needs every cell of x; {checks.row_of(x, row)}, {checks.column_of(x, column)} is "
                f"missing: fill missing cells, or use kernel=None, which takes them"
            )
        super().check_new(*data)
        if self.output_likelihood == "probit" and data[1:] and data[1] is not None:
            check_probit_outputs(data[1], self.is_classes)

    def check_noise(self) -> None:
        """Raise ValueError if the noise of x would be estimated in a feature space of infinite dimension."""
        is_given = self.noise_variance_x is not None or self.kernel is None
        if not is_given and self.kernel.feature_dimension(1) == math.inf:
            raise ValueError(
                f"the feature space of {type(self.kernel).__name__} has infinitely many dimensions, in which "
                f"the estimate of the noise of x is zero: give noise_variance_x"
            )

    @property
    def scale_remedies(self) -> tuple[str, ...]:
        """With a kernel the columns are standardised by hand."""
        found = super().scale_remedies
        by_hand = "divide the columns by their standard deviations"
        return found if self.kernel is None else tuple(own and by_hand for own in found)
