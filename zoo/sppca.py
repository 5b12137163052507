r"""Supervised and semi-supervised probabilistic PCA (SPPCA, S2PPCA).

Generative process, in the letters of Yu (2006, chapter 7)::

    z_i   ~ Normal(0, I_K),                               i = 1..N
    x_i   = W_x z_i + mu_x + noise,   noise ~ Normal(0, sx2 I_M)
    y_i   = W_y z_i + mu_y + noise,   noise ~ Normal(0, sy2 I_L)

=======  ======================  ==========  ====================================================
letter   site                    shape       support
=======  ======================  ==========  ====================================================
W_x      ``loadings_x``          (M, K)      real
W_y      ``loadings_y``          (L, K)      real
mu_x     ``loc_x``               (M,)        real
mu_y     ``loc_y``               (L,)        real
sx2      ``noise_variance_x``    ()          positive
sy2      ``noise_variance_y``    () or (L,)  positive; one each with ``output_noise="per_output"``
z_i      ``latents``             (N, K)      real; summed out unless ``explicit``
x_i      ``x``                   (N, M)      data; NaN is a missing cell
y_i      ``y``                   (N, L)      data; a row of NaN is unlabelled (S2PPCA)
=======  ======================  ==========  ====================================================

Any pattern of missing cells is honoured: a row's density is that of its observed cells. With the latents
summed out, x is scored by its marginal and y by its conditional given the observed cells of x.

With a ``kernel`` x stands for a feature vector phi(x) and W_x = Phi' B (7.17): ``coefficients`` B of shape
(N, K) take the place of ``loadings_x``, x is centred in feature space and scored through its Gram matrix
alone. In an infinite-dimensional space the constant (M/2) log(2 pi sx2) is left out and sx2 must be given.

A scipy sparse x (TF-IDF) stays sparse; its unstored cells are zeros, not missing ones (flat prior, ``em``).

Class labels (`zoo.class_labels`) become one 0/1 column a class.

With ``output_likelihood="probit"`` outputs are 0 or 1: ``utilities`` u_i = W_y z_i + mu_y + Normal(0, I_L),
(N, L), take the place of y_i above, an output is 1 where its utility is positive, and the class with the
largest utility is the one (`zoo.probit_rows`). They go with the primal model; with a kernel they are refused.

Symmetry: W_x R and W_y R with R orthogonal give the same density (rotation). The program leaves W free.

Departures from the source. Probit outputs are its future work. The thesis keeps mu_y at the mean of the
labelled rows (7.7), which is the maximum of the likelihood only when every row is labelled;
``center="joint"`` estimates it with the rest and ``center="plugin"`` is the text. Noise floors are part of
the model: the likelihood has no maximum where outputs of deficient rank (one-of-C columns) meet as many
latents.

References: Yu, Yu, Tresp, Kriegel and Wu (2006), "Supervised probabilistic principal component analysis";
Yu (2006), chapter 7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo.argument_checks import check_choice, check_num_parts, check_positive, check_size
from zoo.class_labels import CODINGS, Label, are_labels, class_names, code_labels
from zoo.conditional_rows import RowsGivenOthers, ShiftedRows
from zoo.feature_space import centred, given_latents, scored_dimension
from zoo.gram_matrices import check_gram
from zoo.kernels import Kernel, Precomputed, as_kernel
from zoo.linear_gaussian import LinearGaussianRows
from zoo.model import Model, in_current_precision, static
from zoo.probit_outputs import check_probit_outputs
from zoo.probit_rows import sample_cells
from zoo.sparse_matrix import as_rows, is_sparse
from zoo.suitable_fields import density_fields
from zoo.supervised_data import check_latents_fit, check_observed, check_pair, sparse_inputs
from zoo.supervised_rows import SupervisedRows
from zoo.validation import as_matrix

__all__ = ["SPPCA"]

CENTERS = ("joint", "plugin")
LOADING_PRIORS = ("flat", "gaussian")
OUTPUT_LIKELIHOODS = ("gaussian", "probit")
OUTPUT_NOISES = ("shared", "per_output")


@dataclass(frozen=True, eq=False)
class SPPCA(SupervisedRows, Model):
    """Supervised PCA (every row labelled) and semi-supervised PCA (NaN in ``y``): one linear-Gaussian model.

    Attributes:
        num_latents: K, fewer than rows and than input features.
        kernel: None: x as it is (primal). A kernel of `zoo.kernels`, or its name: x in a feature space
            (dual); every cell of x must be there.
        output_likelihood: ``"gaussian"``, or ``"probit"`` for outputs that are 0 or 1 and for class labels.
        output_noise: ``"shared"``: one variance for all outputs; ``"per_output"``: one each.
        center: ``"joint"``: the mean of the outputs is estimated with the rest; ``"plugin"``: it is the mean
            of their observed cells (7.7).
        noise_floor: smallest noise variance of x and of y as a share of the mean variance of their columns,
            shape (2,); part of the model wherever the likelihood is maximised.
        loading_prior: ``"flat"`` (improper; maximum likelihood), or ``"gaussian"``: loadings
            ~ Normal(0, loading_variance), means ~ Normal(0, loc_variance), noise variances
            ~ InverseGamma(noise_concentration, noise_rate), all in the units of the data.
        loading_variance: of every entry of both loadings; used with ``"gaussian"`` only, as the next three.
        loc_variance: of every mean.
        noise_concentration: of the noise variances' prior.
        noise_rate: of the noise variances' prior.
        noise_variance_x: None: estimated. A number: given, which an infinite-dimensional kernel needs.
        label_coding: of class labels: ``"one_of_c"`` or ``"reduced"`` (without the last class's column).
        classes: the classes in the order of their columns; read off labels.
        num_features: M; read off the data.
        num_outputs: L; read off the data.
        feature_dimension: with a kernel: dimensions of feature space as the density counts them, 0 where they
            are infinite, N - 1 where they are not known.

    Example:
        >>> import numpy as np, zoo
        >>> x, y = np.random.default_rng(0).normal(size=(2, 20, 3))
        >>> zoo.SPPCA.from_data(x, y, num_latents=2).num_outputs
        3
    """

    num_latents: int = static(default=2)
    kernel: Kernel | str | None = None
    output_likelihood: str = static(default="gaussian")
    output_noise: str = static(default="shared")
    center: str = static(default="joint")
    noise_floor: Array = (1e-6, 1e-3)
    loading_prior: str = static(default="flat")
    loading_variance: Array = 1.0
    loc_variance: Array = 100.0
    noise_concentration: Array = 1e-3
    noise_rate: Array = 1e-3
    noise_variance_x: Array | None = None
    label_coding: str = static(default="one_of_c")
    classes: tuple[Label, ...] | None = static(default=None)
    num_features: int | None = static(default=None)
    num_outputs: int | None = static(default=None)
    feature_dimension: int | None = static(default=None)

    data_names = ("x", "y")
    dims = {
        "loadings_x": ("feature", "latent"),
        "loadings_y": ("output", "latent"),
        "loc_x": ("feature",),
        "loc_y": ("output",),
        "noise_variance_x": (),
        "noise_variance_y": (),
        "coefficients": ("observation", "latent"),
        "gram_means": ("observation",),
        "gram_products": ("observation", "latent"),
        "latents": ("observation", "latent"),
        "latents_covariance": ("observation", "latent", "latent_2"),
        "utilities": ("observation", "output"),
        "x": ("observation", "feature"),
        "y": ("observation", "output"),
    }
    symmetries = ("rotation",)
    methods = ("em", "closed_form", "vb", "nuts", "hmc", "svi", "morp", "kernel_cca", "gibbs", "ep")
    predicted_dims = ("observation", "output")
    num_needed = 1
    latent_site = "latents"
    loading_sites = {"loadings_x": "_x", "loadings_y": "_y"}

    def __call__(
        self, x: Array | None = None, y: Array | None = None, *, num_observations: int | None = None
    ) -> Any:
        """The NumPyro program: with ``x`` and ``y`` it conditions, with ``x`` alone it draws y given x.

        Without both it draws rows.

        Args:
            x: inputs, shape (num_observations, num_features), NaN where a cell is missing.
            y: outputs, shape (num_observations, num_outputs), NaN where one is missing.
            num_observations: how many rows to draw.

        Returns:
            Both tables, or what was drawn in their place.
        """
        num_rows = self._num_rows(x, y, num_observations)
        if self.kernel is not None:
            return self._score_features(x, y)
        values = self._sample_block("x", self.num_features) | self._sample_block("y", self.num_outputs)
        if self.output_likelihood == "probit":
            return self._score_probit(values, num_rows, x, y)
        loadings, loc, noise = self.joint(values)
        with numpyro.plate("observations", num_rows):
            if x is None or self.draw_locals:
                z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
                cells = loc + z @ loadings.T
                inputs = slice(0, self.num_features), slice(self.num_features, None)
                return tuple(
                    sample_cells(name, cells[:, block], noise[block], data)
                    for name, block, data in zip(("x", "y"), inputs, (x, y), strict=True)
                )
            m = self.num_features
            x = numpyro.sample("x", LinearGaussianRows(loadings[:m], loc[:m], noise[:m]), obs=x)
            return x, numpyro.sample("y", RowsGivenOthers(x, loadings, loc, noise), obs=y)

    def _score_features(self, x: Array, y: Array | None) -> tuple[Array, Array]:
        """The program in feature space: x is scored through its Gram matrix, then y given it."""
        if self.feature_dimension == 0:
            self._check_noise()
        gram = centred(in_current_precision(self.kernel).matrix(x, x))
        values = {"coefficients": numpyro.sample("coefficients", _improper((x.shape[0], self.num_latents)))}
        values |= self._sample_noise("x") | self._sample_block("y", self.num_outputs)
        w_y, noise_y = values["loadings_y"], self.noise_of_outputs(values)
        with numpyro.plate("observations", x.shape[0]):
            if self.draw_locals:
                z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
                own = (values["coefficients"], values["noise_variance_x"], self.feature_dimension)
                numpyro.factor("x", given_latents(z, gram, jnp.diag(gram), *own))
                return x, sample_cells("y", values["loc_y"] + z @ w_y.T, noise_y, y)
            rows = self.rows_in_feature_space(values, x)
            numpyro.factor("x", rows.log_density)
            spread = w_y @ jnp.linalg.cholesky(rows.covariance)
            given_x = ShiftedRows(rows.mean @ w_y.T, spread, values["loc_y"], noise_y)
            return x, numpyro.sample("y", given_x, obs=y)

    def _sample_block(self, block: str, size: int) -> dict[str, Array]:
        """Loadings, mean and noise variance of one block of columns from their prior."""
        prior, shape = in_current_precision(self), (size, self.num_latents)
        if self.loading_prior == "flat":
            loadings, loc = _improper(shape), _improper((size,))
        else:
            loadings = dist.Normal(0.0, jnp.sqrt(prior.loading_variance)).expand(shape).to_event(2)
            loc = dist.Normal(0.0, jnp.sqrt(prior.loc_variance)).expand((size,)).to_event(1)
        drawn = {"loadings": loadings, "loc": loc}
        drawn = {f"{name}_{block}": numpyro.sample(f"{name}_{block}", own) for name, own in drawn.items()}
        has_noise = block == "x" or self.output_likelihood == "gaussian"
        return drawn | self._sample_noise(block) if has_noise else drawn

    def _sample_noise(self, block: str) -> dict[str, Array]:
        """The noise variance of a block of columns: given, or from its prior."""
        name, prior = f"noise_variance_{block}", in_current_precision(self)
        if block == "x" and self.noise_variance_x is not None:
            return {name: numpyro.deterministic(name, prior.noise_variance_x)}
        shape = (self.num_outputs,) if block == "y" and self.output_noise == "per_output" else ()
        if self.loading_prior == "flat":
            return {name: numpyro.sample(name, _improper(shape, dist.constraints.positive))}
        own = dist.InverseGamma(prior.noise_concentration, prior.noise_rate)
        return {name: numpyro.sample(name, own.expand(shape).to_event(len(shape)))}

    # Sizes, labels, checks

    @classmethod
    def from_data(cls, x: Any, y: Any = None, **overrides: Any) -> Self:
        """The model with sizes, classes and the kernel's parameters read off the data.

        ``overrides`` are fields.

        Raises:
            ValueError: there are no outputs.
        """
        if y is None:
            raise ValueError("SPPCA takes inputs x and outputs y: give both (on the command line: --y)")
        model, (x, y) = cls(**overrides).coded(x, y)
        x, y = as_rows(x), as_matrix(y, "y")
        read = {"num_features": x.shape[1], "num_outputs": y.shape[1], "classes": model.classes}
        if model.kernel is not None:
            overrides["kernel"] = model.kernel.filled(x)
            read["feature_dimension"] = scored_dimension(model.kernel.feature_dimension(x.shape[1]), len(x))
        return cls(**read | {name: value for name, value in overrides.items() if value is not None})

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """The number of latents; the data must have densities.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        check_num_parts(cls.__name__, len(data), 2)
        return density_fields(cls.__name__, data[0])

    def coded(self, *data: Any) -> tuple[Self, tuple]:
        """The model that knows its classes, and the data with labels as columns (`zoo.class_labels`).

        A sparse x becomes a `zoo.sparse_matrix.SparseMatrix`.

        Raises:
            TypeError: sparse outputs.
        """
        if data and is_sparse(data[0]):
            data = (sparse_inputs(self, data[0]), *data[1:])
        if any(map(is_sparse, data[1:])):
            raise TypeError(
                "y must be dense: missing outputs are NaN, and cells that are not stored are zeros"
            )
        if len(data) < 2 or not are_labels(data[1]):
            return self, data
        classes = class_names(data[1]) if self.classes is None else self.classes
        y = code_labels(data[1], classes, self.label_coding)
        return self.replaced(classes=classes), (data[0], y, *data[2:])

    def __post_init__(self) -> None:
        """A kernel's name is the kernel; then as every model."""
        if self.kernel is not None:
            object.__setattr__(self, "kernel", as_kernel(self.kernel))
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        check_size("num_latents", self.num_latents)
        choices = {
            "output_likelihood": OUTPUT_LIKELIHOODS,
            "output_noise": OUTPUT_NOISES,
            "center": CENTERS,
            "loading_prior": LOADING_PRIORS,
            "label_coding": CODINGS,
        }
        for name, allowed in choices.items():
            check_choice(name, getattr(self, name), allowed)
        for name in ("loading_variance", "loc_variance", "noise_concentration", "noise_rate"):
            check_positive(name, getattr(self, name))
        floors = np.broadcast_to(self.noise_floor, (2,)) if self.noise_floor.shape in ((), (2,)) else None
        if floors is None or not ((floors >= 0) & (floors < 1)).all():
            raise ValueError(
                f"noise_floor must be two shares of the variance, of x and of y, in [0, 1); "
                f"got {self.noise_floor}"
            )
        object.__setattr__(self, "noise_floor", np.array(floors))
        if self.noise_variance_x is not None:
            check_positive("noise_variance_x", self.noise_variance_x)
        if self.classes is not None:
            object.__setattr__(self, "classes", tuple(self.classes))
        if self.kernel is not None:
            self._validate_kernel()
        if self.output_likelihood == "probit":
            self._validate_probit()

    def _validate_kernel(self) -> None:
        if self.loading_prior != "flat":
            raise ValueError(
                "with a kernel the loadings have no rows to put a prior on: loading_prior='flat'"
            )

    def check(self, x: np.ndarray, y: np.ndarray) -> None:
        """Raise ValueError if the data do not suit the model."""
        x, y = as_rows(x), as_matrix(y, "y")
        self.check_new(x, y)
        check_observed(x, y, check_x_columns=not isinstance(self.kernel, Precomputed))
        if isinstance(self.kernel, Precomputed):
            check_gram(x)
        check_latents_fit(self.num_latents, x.shape[0], x.shape[1] if self.kernel is None else None)

    def caution(self, method: str) -> None:
        """Refuse noise that cannot be estimated, and to sample what nothing but a flat prior holds.

        Raises:
            ValueError: a sampler, and a kernel.
        """
        if self.kernel is not None and method == "em":
            self._check_noise()
        if self.kernel is not None and method in ("nuts", "hmc", "svi"):
            raise ValueError(
                f"{method} has no posterior to explore with a kernel: the coefficients of N rows have a flat "
                f"prior; use method='em', or kernel=None"
            )
        self._check_method(method)

    def _check_noise(self) -> None:
        if self.noise_variance_x is None and self.kernel.feature_dimension(1) == math.inf:
            raise ValueError(
                f"the feature space of {type(self.kernel).__name__} has infinitely many dimensions, in which "
                f"the estimate of the noise of x is zero: give noise_variance_x"
            )

    def check_new(self, x: np.ndarray, y: np.ndarray | None = None) -> None:
        """Raise ValueError if rows, new or fitted, do not suit the model."""
        check_pair(x, y, self.num_features, self.num_outputs)
        if self.output_likelihood == "probit" and y is not None:
            check_probit_outputs(y, self.is_classes)
        if self.kernel is not None and np.isnan(x).any():
            row, column = np.argwhere(np.isnan(x))[0]
            raise ValueError(f"a kernel needs every cell of x; row {row}, column {column} is missing")

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; each output has a noise variance with ``output_noise="per_output"``."""
        per_output = {"noise_variance_y": ("output",)} if self.output_noise == "per_output" else {}
        return dict(self.dims) | per_output

    @property
    def needs_fitted_rows(self) -> bool:
        """Whether new rows are known by their kernel values with the fitted ones."""
        return self.kernel is not None

    @property
    def prior(self) -> str:
        """``"proper"`` with Gaussian loadings, else ``"improper"``."""
        return "proper" if self.loading_prior == "gaussian" else "improper"

    def _num_rows(self, x: Array | None, y: Array | None, num_observations: int | None) -> int:
        for name in ("num_features", "num_outputs"):
            if getattr(self, name) is None:
                raise ValueError(f"{name} is not set: give it, or make the model with SPPCA.from_data(x, y)")
        if x is not None:
            return x.shape[0]
        if y is not None:
            raise ValueError("give x along with y")
        if self.kernel is not None:
            raise ValueError("with a kernel x is known by inner products alone: rows cannot be drawn")
        if self.prior != "proper":
            raise ValueError(
                "the prior is improper and cannot be drawn from: loading_prior='gaussian' makes it proper"
            )
        if num_observations is None:
            raise ValueError("give x and y to condition on, or num_observations to draw")
        return num_observations


def _improper(shape: tuple[int, ...], support: Any = dist.constraints.real) -> dist.Distribution:
    """A flat density over arrays of that shape."""
    return dist.ImproperUniform(dist.constraints.independent(support, len(shape)), (), shape)
