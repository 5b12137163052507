"""How SPPCA takes its data and its fields: sizes, classes, priors and kernels, and what does not suit."""

import math
from typing import Any, Self

import numpy as np

from zoo import checks
from zoo.intake.tables import as_cells, check_fit, check_latents
from zoo.kernels import as_kernel
from zoo.kernels.gram import check_gram, scored_dimension
from zoo.linear_gaussian.class_labels import CODINGS, are_labels, class_names, code_labels
from zoo.linear_gaussian.probit import check_probit_outputs
from zoo.linear_gaussian.units import taken_over
from zoo.model import Model
from zoo.sparse import as_rows, is_sparse

__all__ = ["DENSE", "SupervisedIntake"]

DENSE = "missing outputs are NaN, and cells that are not stored are zeros"

CHOICES = {
    "output_likelihood": ("gaussian", "probit"),
    "output_noise": ("shared", "per_output"),
    "center": ("joint", "plugin"),
    "loading_prior": ("flat", "gaussian"),
    "label_coding": CODINGS,
}
BROAD = 100.0  # variance of the means' prior, in mean variances of the columns
PRIOR_FIELDS = (
    "column_scale_x", "column_scale_y", "loading_variance", "loc_mean", "loc_variance", "noise_rate",
)  # fmt: skip
PROBIT_METHODS = ("ep", "gibbs", "nuts", "hmc", "svi")
_COMPLETE_ROWS = ("closed_form", "morp", "kernel_cca")  # methods that need every cell of x


class SupervisedIntake(Model):
    """What `zoo.SPPCA` reads off inputs and outputs, and refuses."""

    @classmethod
    def from_data(cls, x: Any, y: Any = None, **overrides: Any) -> Self:
        """The model with sizes, classes and the kernel's parameters read off the data.

        ``overrides`` are fields.

        Raises:
            ValueError: there are no outputs.
        """
        if y is None:
            raise ValueError("SPPCA takes inputs x and outputs y: give both (on the command line: --y)")
        model, (x, y) = cls(**overrides).encoded(x, y)
        x, y = as_cells(model, 0, x), as_cells(model, 1, y)
        read = cls.sizes_of((x, y)) | {"classes": model.classes}
        if model.standardize:
            scaled = {"x": x} | ({"y": y} if model.has_numbers else {})
            for name, part in scaled.items():
                given = overrides.get(f"column_scale_{name}")
                read[f"column_scale_{name}"] = checks.column_scale(part, given, name)
            read.setdefault("column_scale_y", np.ones(y.shape[1]))
        if model.kernel is not None:
            overrides["kernel"] = model.kernel.filled(x)
            read["feature_dimension"] = scored_dimension(model.kernel.feature_dimension(x.shape[1]), len(x))
        if model.loading_prior == "gaussian":
            scales = [read.get("column_scale_x", 1.0), read.get("column_scale_y", 1.0)]
            standard = (x / scales[0], y / scales[1]) if model.standardize else (x, y)
            read |= model._prior_from(*standard)
            if model.standardize:
                read["loc_mean"] = read["loc_mean"] * np.concatenate(scales)
            if model.loc_mean is not None:  # 0, beside a given variance
                read["loc_mean"] = model.loc_mean
        return cls(**read | {name: value for name, value in overrides.items() if value is not None})

    def _prior_from(self, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        """The numbers of the proper prior that are read off the data."""
        self.check_new(x, y)
        self._check_observed(x, y)
        variances, means = np.nanvar(x, axis=0), np.nanmean(x, axis=0)
        of_y, y_means = np.ones(y.shape[1]), np.zeros(y.shape[1])
        if self.output_likelihood == "gaussian":
            of_y, y_means = np.nanvar(y, axis=0), np.nanmean(y, axis=0)
        scales = np.array([variances.mean(), of_y.mean()])
        rates = np.append(scales[:1], of_y if self.output_noise == "per_output" else scales[1:])
        return {
            "loading_variance": scales,
            "loc_mean": np.concatenate([means, y_means]),
            "loc_variance": BROAD * scales,
            "noise_rate": self.noise_concentration * rates,
        }

    def continuing(self, former: Self) -> Self:
        """The model with the prior that the former fit read off its rows, where it is not given."""
        if self.loading_prior == "flat" or former.loading_prior != self.loading_prior:
            return self
        return self.replaced(**taken_over(self, former, PRIOR_FIELDS))

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

    def __post_init__(self) -> None:
        """Replace a kernel's name by the kernel, then store and validate the fields."""
        if self.kernel is not None:
            object.__setattr__(self, "kernel", as_kernel(self.kernel))
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        checks.check_size("num_latents", self.num_latents)
        for name, allowed in CHOICES.items():
            checks.check_choice(name, getattr(self, name), allowed)
        checks.check_positive("noise_concentration", self.noise_concentration)
        outputs = {}
        if self.output_noise == "per_output" and self.num_outputs is not None:
            outputs = {"x and each output": (1 + self.num_outputs,)}
        for name, shapes in (("loading_variance", {}), ("loc_variance", {}), ("noise_rate", outputs)):
            if getattr(self, name) is not None:
                checks.check_positive_cells(name, getattr(self, name), {"x and y": (2,)} | shapes)
        self._check_loc_mean()
        floors = np.broadcast_to(self.noise_floor, (2,)) if self.noise_floor.shape in ((), (2,)) else None
        if floors is None or not ((floors >= 0) & (floors < 1)).all():
            raise ValueError(
                f"noise_floor must be two shares of the variance, of x and of y, in [0, 1); "
                f"got {checks.shown(self.noise_floor)}"
            )
        object.__setattr__(self, "noise_floor", np.array(floors))
        if self.noise_variance_x is not None:
            checks.check_positive("noise_variance_x", self.noise_variance_x)
        for block, size in (("x", self.num_features), ("y", self.num_outputs)):
            if (scale := getattr(self, f"column_scale_{block}")) is not None:
                checks.check_positive_columns(f"column_scale_{block}", scale, size)
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

    def _check_loc_mean(self) -> None:
        """Raise ValueError for a wrong prior mean; beside a variance that is given it is 0."""
        if self.loc_mean is None:
            if self.loc_variance is not None:
                object.__setattr__(self, "loc_mean", np.zeros(()))
            return
        sizes = self.num_features, self.num_outputs
        wanted = None if None in sizes else ((), (sum(sizes),))
        if not np.isfinite(self.loc_mean).all() or (wanted and self.loc_mean.shape not in wanted):
            raise ValueError(
                "loc_mean must be a finite number, or one for each column of x and then of y; "
                f"got shape {self.loc_mean.shape}"
            )

    def check(self, x: np.ndarray, y: np.ndarray) -> None:
        """Raise ValueError if the data do not suit the model."""
        x, y = as_rows(x), checks.as_matrix(y, "y")
        self.check_new(x, y)
        self._check_observed(x, y)
        check_latents(self, (x, y))

    def _check_observed(self, x: np.ndarray, y: np.ndarray) -> None:
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

    def check_method(self, method: str) -> None:
        """Refuse a method that does not go with the kernel, the outputs or the prior.

        Raises:
            ValueError: a sampler with a kernel, noise in a feature space of infinitely many dimensions that
                would be estimated, a method for outputs of the other likelihood, or a flat prior where a
                proper one is needed.
        """
        if self.kernel is not None and method in ("em", "ep"):
            self.check_noise()
        if self.kernel is not None and method == "gibbs":
            raise ValueError("method 'gibbs' needs kernel=None, like every sampler")
        if self.kernel is not None and method in ("nuts", "hmc", "svi"):
            raise ValueError(
                f"{method} has no posterior to explore with a kernel: the coefficients of N rows have a flat "
                f"prior; use method={self.auto_method()!r}, or kernel=None"
            )
        if self.standardize and method in ("morp", "kernel_cca"):
            raise ValueError(
                f"standardize=True is part of the noise model, which {method!r} does not have: divide the "
                "columns by their standard deviations"
            )
        is_probit = self.output_likelihood == "probit"
        if is_probit and method not in PROBIT_METHODS:
            known = PROBIT_METHODS if self.kernel is None else PROBIT_METHODS[:1]
            raise ValueError(
                f"method {method!r} is for output_likelihood='gaussian'; probit outputs have "
                f"{', '.join(known)}"
            )
        if not is_probit and method == "ep":
            raise ValueError("method 'ep' is for output_likelihood='probit'; Gaussian outputs have 'em'")
        if self.loading_prior == "flat" and (method == "gibbs" or (is_probit and method != "ep")):
            raise ValueError(
                f"method {method!r} needs a proper prior: loading_prior='gaussian'; got loading_prior='flat'"
            )

    def auto_method(self, *data: Any) -> str:
        """The method ``"em"``, or ``"ep"`` with probit outputs.

        Args:
            *data: the tables; not read.

        Returns:
            ``"ep"`` or ``"em"``.
        """
        return "ep" if self.output_likelihood == "probit" else "em"

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        if name == "classes_reordered" and self.classes is None:
            return "no: the outputs are numbers"
        if name == "classes_reordered" and self.label_coding == "reduced":
            return "no: the last class has no column"
        if method == "morp" and name in ("rescaled", "other_units"):
            return "same, scores in the new unit"
        if name in ("masked_array", "frame_nan", "frame_na", "row_masked") and method in _COMPLETE_ROWS:
            return f"no: method {method!r} needs every cell of x"
        if self.kernel is not None and name == "sparse":
            return "no: a kernel takes dense rows, or their Gram matrix"
        if name == "sparse":  # the outputs of sparse rows start from sweeps of their own
            return "same where it ends"
        has_inputs = self.kernel is None or self.kernel.linear_scale is not None  # with a density
        if name in ("rescaled", "other_units") and not has_inputs:
            return "same, density of y alone"
        if method in ("em", "ep") and self.prior == "proper" and name in ("rescaled", "other_units"):
            return "same, predictions in the new unit, objective up to a constant"
        if method == "ep" and name == "classes_reordered":
            return "same, outputs in the new order, to the error of quadrature"
        return super().relation_of(name, method)

    def check_noise(self) -> None:
        """Raise ValueError if the noise of x would be estimated in a feature space of infinite dimension."""
        is_given = self.noise_variance_x is not None or self.kernel is None
        if not is_given and self.kernel.feature_dimension(1) == math.inf:
            raise ValueError(
                f"the feature space of {type(self.kernel).__name__} has infinitely many dimensions, in which "
                f"the estimate of the noise of x is zero: give noise_variance_x"
            )

    @property
    def scale_remedy(self) -> str:
        """With a kernel the columns are standardised by hand."""
        if self.kernel is None:
            return super().scale_remedy
        return "divide the columns by their standard deviations"
