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

Any pattern of missing cells is allowed: a row's density is that of its observed cells. With the latents
integrated out, x has its marginal density and y its conditional density given the observed cells of x.

With a ``kernel`` x is replaced by a feature vector phi(x) and W_x = Phi' B (7.13): ``coefficients`` B of
shape (N, K) replace ``loadings_x``, and x is centred in feature space and enters only through its Gram
matrix. In an infinite-dimensional space the constant (M/2) log(2 pi sx2) is left out and sx2 must be given.

A scipy sparse x (TF-IDF) stays sparse; its unstored cells are zeros, not missing ones (flat prior, ``em``).

Class labels (`zoo.linear_gaussian.class_labels`) become one 0/1 column per class.

With ``output_likelihood="probit"`` outputs are 0 or 1: ``utilities`` u_i = W_y z_i + mu_y + Normal(0, I_L),
(N, L), take the place of y_i above, an output is 1 where its utility is positive, and of classes the one
with the largest utility occurs (`zoo.linear_gaussian.probit`). There is no ``noise_variance_y``: the
utilities' noise is 1. ``explicit`` draws the utilities; those of missing outputs are N(0, 1) there and have
no effect, so a sampler need not keep them. Otherwise they are integrated out, and so are the latents if a row
has a single decision (a binary output, two classes); with several outputs or classes the latents stay in the
program. All this also holds with a kernel, since outputs depend on x only through the latents, whose
distribution given x is Gaussian in feature space too; then the prior is flat (``ep``).

New rows may come with or without outputs; a missing y counts as one whose cells are all missing. In feature
space a row is its kernel values with the fitted rows, which come with the parameters as ``fitted_x`` (the
rows themselves), ``gram_means`` (to centre kernel values) and ``gram_products`` (G B); without them the rows
are the fitted ones. With m = E[z | observed] and V its covariance, a cell that is not observed has mean
w'm + mu and variance w'Vw plus its noise variance.

Symmetry: W_x R and W_y R with R orthogonal give the same density (rotation). The program leaves W free.

Departures from the source. Probit outputs are its future work. The thesis fixes mu_y at the mean of the
labelled rows (7.7), which maximises the likelihood only when every row is labelled; ``center="joint"``
estimates it with the other parameters and ``center="plugin"`` does as the thesis. Noise floors are part of
the model: the likelihood has no maximum if there are as many latents as the rank of outputs of deficient rank
(one-of-C columns).

References: Yu, Yu, Tresp, Kriegel and Wu (2006), "Supervised probabilistic principal component analysis";
Yu (2006), chapter 7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks
from zoo.kernels import Kernel, as_kernel
from zoo.kernels.gram import (
    FeatureRows,
    centred_cross,
    centred_diagonal,
    centred_matrix,
    check_gram,
    feature_rows,
    given_latents,
    scored_dimension,
)
from zoo.linear_gaussian import probit
from zoo.linear_gaussian.axes import signs_of
from zoo.linear_gaussian.class_labels import CODINGS, Label, are_labels, class_names, code_labels
from zoo.linear_gaussian.probit import (
    DecidedOutputs,
    ProbitOutputs,
    ProbitRows,
)
from zoo.linear_gaussian.rows import (
    LinearGaussianRows,
    RowsGivenOthers,
    ShiftedRows,
    latents_covariance,
    latents_mean,
    log_density,
    reduced,
)
from zoo.linear_gaussian.units import taken_over, units_of
from zoo.model import Model, in_current_precision, static
from zoo.shapes import (
    Covariances,
    Loadings,
    Outputs,
    PerColumn,
    PerFeature,
    PerOutput,
    PerRow,
    Predicted,
    Rows,
    Scores,
)
from zoo.sparse import SparseMatrix, as_rows, is_sparse
from zoo.suitable_fields import density_fields
from zoo.supports.in_units import InUnits

__all__ = ["SPPCA", "BlockPrior"]

CENTERS = ("joint", "plugin")
LOADING_PRIORS = ("flat", "gaussian")
OUTPUT_LIKELIHOODS = ("gaussian", "probit")
OUTPUT_NOISES = ("shared", "per_output")
SMALLEST_SHARE = 1e-6  # of a class, whose estimate by a normal may lie below 0
BROAD = 100.0  # variance of the means' prior, in mean variances of the columns
PRIOR_FIELDS = (
    "column_scale_x", "column_scale_y", "loading_variance", "loc_mean", "loc_variance", "noise_rate",
)  # fmt: skip
PROBIT_METHODS = ("ep", "gibbs", "nuts", "hmc", "svi")
_COMPLETE_ROWS = ("closed_form", "morp", "kernel_cca")  # methods that need every cell of x


class BlockPrior(NamedTuple):
    """The proper prior of the inputs, or of the outputs.

    Attributes:
        loading_variance: of every loading, shape ().
        loc_mean: of the means, shape () or (columns,).
        loc_variance: of every mean, shape ().
        noise_concentration: of the noise variance, shape ().
        noise_rate: of the noise variance, shape (), or of each output, (num_outputs,) or (1,).
    """

    loading_variance: Array
    loc_mean: Array
    loc_variance: Array
    noise_concentration: Array
    noise_rate: Array


@dataclass(frozen=True, eq=False)
class SPPCA(Model):
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
            ~ Normal(0, loading_variance), means ~ Normal(loc_mean, loc_variance), noise variances
            ~ InverseGamma(noise_concentration, noise_rate), all in the units of the data. What is None is
            read off x and off y separately, so that a fit in metres and one in millimetres are the same;
            utilities of probit outputs have no unit: theirs are as of outputs with mean 0 and variance 1.
        loading_variance: of every entry of the loadings: one number, or that of x and that of y, shape (2,);
            None: the mean variance of the columns. Used with ``"gaussian"`` only, as the next four.
        loc_mean: prior mean of the means of [x, y], shape () or (M + L,). None: the columns' means, or 0
            where loc_variance is given.
        loc_variance: of every mean, shape () or (2,); None: 100 times the mean variance of the columns.
        noise_concentration: of the noise variances' prior.
        noise_rate: of the noise variances' prior, shape (), (2,) or, with ``"per_output"``, (1 + L,); None:
            ``noise_concentration`` times the mean variance of the columns, or the variance of each output.
        noise_variance_x: None: estimated. A number: given, which an infinite-dimensional kernel needs.
        standardize: whether each column of x, and of y where it holds real numbers, is measured in its
            standard deviation s_d: for columns in different units. The rows of the loadings, the spread of
            the means and the noise's standard deviation are then s_d times those of this program, noise
            variances and all variances and rates above are in units of s_d^2, and everything else stays in
            the units of the data.
        column_scale_x: s of x, shape (num_features,), used with ``standardize``; None: the columns' standard
            deviations over their observed cells.
        column_scale_y: s of y, shape (num_outputs,), likewise; None: ones where y holds labels or is probit.
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
    loading_variance: Array | None = None
    loc_mean: Array | None = None
    loc_variance: Array | None = None
    noise_concentration: Array = 1e-3
    noise_rate: Array | None = None
    noise_variance_x: Array | None = None
    standardize: bool = static(default=False)
    column_scale_x: Array | None = None
    column_scale_y: Array | None = None
    label_coding: str = static(default="one_of_c")
    classes: tuple[Label, ...] | None = static(default=None)
    num_features: int | None = static(default=None)
    num_outputs: int | None = static(default=None)
    feature_dimension: int | None = static(default=None)

    data_names = ("x", "y")
    label_parts = ("y",)
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
    relations = {
        "classes_reordered": "same, outputs in the new order",
    }
    takes_sparse = True
    methods = ("em", "closed_form", "vb", "nuts", "hmc", "svi", "morp", "kernel_cca", "gibbs", "ep")
    predicted_dims = ("observation", "output")
    num_needed = 1
    latent_site = "latents"
    loading_sites = {"loadings_x": "_x", "loadings_y": "_y"}

    def __call__(
        self, x: Rows | None = None, y: Outputs | None = None, *, num_observations: int | None = None
    ) -> tuple[Rows, Outputs]:
        """The NumPyro program: with ``x`` and ``y`` it conditions, with ``x`` alone it draws y given x.

        Without both it draws rows.

        Args:
            x: inputs, shape (num_observations, num_features), NaN where a cell is missing.
            y: outputs, shape (num_observations, num_outputs), NaN where one is missing.
            num_observations: how many rows to draw.

        Returns:
            Both tables, as given or drawn.
        """
        num_rows = self._num_rows(x, y, num_observations)
        if self.kernel is not None:
            return self._score_features(x, y)
        values = self._sample_block("x", self.num_features, x) | self._sample_block("y", self.num_outputs, y)
        if self.output_likelihood == "probit":
            return self._score_probit(values, num_rows, x, y)
        loadings, loc, noise = self.joint(values)
        with numpyro.plate("observations", num_rows):
            if x is None or self.draw_locals:
                z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
                cells = loc + z @ loadings.T
                inputs = slice(0, self.num_features), slice(self.num_features, None)
                return tuple(
                    _sample_cells(name, cells[:, block], noise[block], data)
                    for name, block, data in zip(("x", "y"), inputs, (x, y), strict=True)
                )
            m = self.num_features
            x = numpyro.sample("x", LinearGaussianRows(loadings[:m], loc[:m], noise[:m]), obs=x)
            return x, numpyro.sample("y", RowsGivenOthers(x, loadings, loc, noise), obs=y)

    def _score_features(self, x: Array, y: Array | None) -> tuple[Array, Array]:
        """The program in feature space: x is scored through its Gram matrix, then y given it."""
        if self.feature_dimension == 0:
            self._check_noise()
        gram = centred_matrix(in_current_precision(self.kernel), x)
        values = {"coefficients": numpyro.sample("coefficients", _improper((x.shape[0], self.num_latents)))}
        values |= self._sample_noise("x") | self._sample_block("y", self.num_outputs)
        with numpyro.plate("observations", x.shape[0]):
            is_probit = self.output_likelihood == "probit"
            if self.draw_locals or (is_probit and not self.sums_out_latents):
                z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
                space = (values["coefficients"], values["noise_variance_x"], self.feature_dimension)
                numpyro.factor("x", given_latents(z, gram, jnp.diag(gram), *space))
                predictor = values["loc_y"] + z @ values["loadings_y"].T
                if is_probit:
                    return x, numpyro.sample("y", self._decided(predictor, y), obs=y)
                return x, _sample_cells("y", predictor, self.noise_of_outputs(values), y)
            rows = self.rows_in_feature_space(values, x)
            numpyro.factor("x", rows.log_density)
            if is_probit:
                outputs = ProbitRows(values, self.is_classes, lambda _: rows).outputs_given_inputs(x)
                return x, numpyro.sample("y", outputs, obs=y)
            return x, numpyro.sample("y", self.outputs_given(values, rows), obs=y)

    def _score_probit(
        self, values: dict[str, Array], num_rows: int, x: Array | None, y: Array | None
    ) -> tuple[Array, Array]:
        """The program of rows with probit outputs, given the parameters."""
        w_x, loc_x, noise_x = values["loadings_x"], values["loc_x"], self.noise_of_inputs(values)
        with numpyro.plate("observations", num_rows):
            if x is not None and not self.draw_locals and self.sums_out_latents:
                x = numpyro.sample("x", LinearGaussianRows(w_x, loc_x, noise_x), obs=x)
                return x, numpyro.sample("y", self.probit_rows(values).outputs_given_inputs(x), obs=y)
            z = numpyro.sample("latents", dist.Normal(0.0, 1.0).expand([self.num_latents]).to_event(1))
            outputs = self._decided(values["loc_y"] + z @ values["loadings_y"].T, y)
            x = _sample_cells("x", loc_x + z @ w_x.T, noise_x, x)
            return x, numpyro.sample("y", outputs, obs=y)

    def _decided(self, predictor: Array, y: Array | None) -> dist.Distribution:
        """Probit outputs given the means of their utilities, which are drawn where the model is explicit."""
        if not self.draw_locals:
            return ProbitOutputs(predictor, self.is_classes)
        known = jnp.ones_like(predictor) if y is None else jnp.where(jnp.isnan(y), 0.0, 1.0)
        utilities = numpyro.sample("utilities", dist.Normal(predictor * known, 1.0).to_event(1))
        return DecidedOutputs(utilities, self.is_classes)

    def _sample_block(self, block: str, size: int, data: Array | None = None) -> dict[str, Array]:
        """Loadings, mean and noise variance of one block of columns from their prior."""
        shape = (size, self.num_latents)
        if self.loading_prior == "flat":
            origin, unit = units_of(None if block == "y" and self.output_likelihood == "probit" else data)
            loadings, loc = _improper(shape), _improper((size,))
        else:
            prior = self.prior_of(block)
            origin, unit = prior.loc_mean, jnp.sqrt(prior.loading_variance)
            columns = in_current_precision(self).column_scales[block] if self.standardize else jnp.ones(())
            loadings = dist.Normal(0.0, jnp.broadcast_to(unit * columns[..., None], shape)).to_event(2)
            loc = dist.Normal(origin, jnp.sqrt(prior.loc_variance) * columns).expand((size,)).to_event(1)
        drawn = {"loadings": InUnits(loadings, unit, jnp.zeros(())), "loc": InUnits(loc, unit, origin)}
        drawn = {f"{name}_{block}": numpyro.sample(f"{name}_{block}", of) for name, of in drawn.items()}
        has_noise = block == "x" or self.output_likelihood == "gaussian"
        return drawn | self._sample_noise(block, unit**2) if has_noise else drawn

    def _sample_noise(self, block: str, unit: Array | float = 1.0) -> dict[str, Array]:
        """The noise variance of a block of columns: given, or from its prior."""
        name = f"noise_variance_{block}"
        if block == "x" and self.noise_variance_x is not None:
            return {name: numpyro.deterministic(name, in_current_precision(self).noise_variance_x)}
        shape = (self.num_outputs,) if block == "y" and self.output_noise == "per_output" else ()
        if self.loading_prior == "flat":
            noise = _improper(shape, dist.constraints.positive)
        else:
            prior = self.prior_of(block)
            noise = dist.InverseGamma(prior.noise_concentration, prior.noise_rate).expand(shape)
            noise = noise.to_event(len(shape))
        return {name: numpyro.sample(name, InUnits(noise, jnp.asarray(unit)))}

    def prior_of(self, block: str) -> "BlockPrior":
        """The proper prior of one block of columns.

        Args:
            block: ``"x"`` or ``"y"``.

        Returns:
            Its numbers, in the current precision.
        """
        names = ("loading_variance", "loc_mean", "loc_variance", "noise_rate")
        self.require(*names)
        own, is_x = in_current_precision(self), block == "x"
        variance, mean, spread, rate = (jnp.asarray(getattr(own, name)) for name in names)
        if rate.ndim:
            per_output = not is_x and self.output_noise == "per_output"
            rate = rate[1:] if per_output else rate[0 if is_x else 1]
        return BlockPrior(
            variance if variance.ndim == 0 else variance[0 if is_x else 1],
            mean if mean.ndim == 0 else mean[: self.num_features] if is_x else mean[self.num_features :],
            spread if spread.ndim == 0 else spread[0 if is_x else 1],
            jnp.asarray(own.noise_concentration),
            rate,
        )

    def joint(self, values: Mapping[str, Array]) -> tuple[Loadings, PerColumn, PerColumn]:
        """Loadings, mean and noise variance of the columns of [x, y].

        Args:
            values: of the sites.

        Returns:
            Shapes (M + L, K), (M + L,) and (M + L,).
        """
        loadings = jnp.concatenate([values["loadings_x"], values["loadings_y"]])
        loc = jnp.concatenate([values["loc_x"], values["loc_y"]])
        noises = self.noise_of_inputs(values), self.noise_of_outputs(values)
        return loadings, loc, jnp.concatenate(noises)

    def noise_of_inputs(self, values: Mapping[str, Array]) -> PerFeature:
        """Noise variance of each column of x.

        Args:
            values: of the sites.

        Returns:
            Shape (M,).
        """
        noise = jnp.broadcast_to(values["noise_variance_x"], values["loc_x"].shape)
        return noise * in_current_precision(self).column_scales["x"] ** 2 if self.standardize else noise

    def noise_of_outputs(self, values: Mapping[str, Array]) -> PerOutput:
        """Noise variance of each output; of probit outputs' utilities it is 1.

        Args:
            values: of the sites.

        Returns:
            Shape (L,).
        """
        if self.output_likelihood == "probit":
            return jnp.ones_like(values["loc_y"])
        noise = jnp.broadcast_to(values["noise_variance_y"], values["loc_y"].shape)
        return noise * in_current_precision(self).column_scales["y"] ** 2 if self.standardize else noise

    def view_variances(self, values: Mapping[str, Array]) -> dict[str, tuple[Array, Array]]:
        """Explained variance and noise of inputs and outputs; see `zoo.model.Model.view_variances`."""
        noises = {"_x": self.noise_of_inputs, "_y": self.noise_of_outputs}
        sites = {site: suffix for site, suffix in self.loading_sites.items() if site in values}
        return {s: (jnp.sum(values[site] ** 2, axis=-1), noises[s](values)) for site, s in sites.items()}

    # Units

    @property
    def column_scales(self) -> Mapping[str, Array]:
        """The columns' scales of each block, with ``standardize``."""
        return {"x": self.column_scale_x, "y": self.column_scale_y}

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The columns' scales, with ``standardize``."""
        if not self.standardize or self.column_scale_x is None or self.column_scale_y is None:
            return {}
        scales = {}
        for block, s in self.column_scales.items():
            scales |= dict.fromkeys((block, f"loc_{block}", f"loc_{block}_mean"), s)
            scales |= dict.fromkeys((f"loadings_{block}", f"loadings_{block}_mean"), s[:, None])
            scales |= {
                f"loc_{block}_variance": s**2,
                f"loadings_loc_{block}_covariance": s[:, None] ** 2,
                f"loadings_{block}_covariance": s[:, None, None] ** 2,
            }
        return {name: (scale, 0.0) for name, scale in scales.items()}

    def in_standard_units(self) -> Self:
        """The plain model of the columns over their scales."""
        if not self.units:
            return self
        mean = self.loc_mean
        if mean is not None:
            mean = mean / jnp.concatenate([self.column_scale_x, self.column_scale_y])
        return self.replaced(standardize=False, column_scale_x=None, column_scale_y=None, loc_mean=mean)

    def predicted_part(self, what: str | None) -> str | None:
        """Inputs or outputs; probabilities of classes are no cells."""
        return {None: "y", "outputs": "y", "cells": "x", "classes": None}[what]

    @property
    def noise_factors(self) -> Mapping[str, Any]:
        """The squared scales of the columns of each block, with ``standardize``."""
        return {f"_{block}": s**2 for block, s in self.column_scales.items()} if self.units else {}

    @property
    def scale_remedy(self) -> str:
        """With a kernel the columns are standardised by hand."""
        if self.kernel is None:
            return super().scale_remedy
        return "divide the columns by their standard deviations"

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """Whether the noise of inputs and of real outputs is isotropic, not in units of the columns."""
        return (
            (self.kernel is None or self.kernel.weighs_columns_alike) and not self.standardize,
            self._scales_outputs and self.output_noise == "shared" and not self.standardize,
        )

    @property
    def _scales_outputs(self) -> bool:
        return self.output_likelihood == "gaussian" and self.classes is None

    def rows_in_feature_space(self, values: Mapping[str, Array], x: Array) -> FeatureRows:
        """Latents and density of rows given in feature space, without their outputs.

        Args:
            values: of the sites; if they hold the stored arrays of a fit, ``x`` are new rows.
            x: rows, shape (num_observations, M); of a precomputed kernel, its values with the fitted ones.

        Returns:
            Moments of the latents and log density of each row.
        """
        kernel, b = in_current_precision(self.kernel), values["coefficients"]
        space = values["noise_variance_x"], self.feature_dimension
        if "gram_means" not in values:
            gram = centred_matrix(kernel, x)
            return feature_rows(gram, jnp.diag(gram), gram @ b, b, *space)
        fitted = values["fitted_x"], values["gram_means"]
        cross = centred_cross(kernel, x, *fitted)
        itself = jnp.zeros(len(x)) if kernel.is_precomputed else centred_diagonal(kernel, x, *fitted)
        return feature_rows(cross, itself, values["gram_products"], b, *space)

    def outputs_given(self, values: Mapping[str, Array], rows: FeatureRows) -> ShiftedRows:
        """The outputs of rows given them in feature space.

        Args:
            values: of the sites.
            rows: of `rows_in_feature_space`.

        Returns:
            Distribution with batch shape (num_observations,) and event shape (num_outputs,).
        """
        w_y = values["loadings_y"]
        spread = w_y @ jnp.linalg.cholesky(rows.covariance)
        return ShiftedRows(rows.mean @ w_y.T, spread, values["loc_y"], self.noise_of_outputs(values))

    def probit_rows(self, values: Mapping[str, Array]) -> ProbitRows:
        """Densities, latents and probabilities of rows with probit outputs.

        Args:
            values: of the sites.

        Returns:
            The rows at these values.
        """
        if self.standardize:
            values = dict(values) | {"noise_variance_x": self.noise_of_inputs(values)}
        in_space = None if self.kernel is None else partial(self.rows_in_feature_space, values)
        return ProbitRows(values, self.is_classes, in_space)

    @property
    def is_classes(self) -> bool:
        """Whether the outputs are the columns of class labels, of which one is 1."""
        return self.classes is not None and self.num_outputs == len(self.classes)

    @property
    def sums_out_latents(self) -> bool:
        """Whether the program sums the latents out of probit outputs, which takes one decision a row."""
        return probit.num_decisions(self.num_outputs, self.is_classes) == 1

    @property
    def cell_units(self) -> tuple[str, str]:
        """Any unit and any origin; outputs that are classes, or 0 and 1, have none."""
        are_numbers = self.classes is None and self.output_likelihood == "gaussian"
        return "location_scale", "location_scale" if are_numbers else "none"

    @property
    def takes_missing(self) -> bool:
        """Whether cells of x may be missing: where it has no kernel."""
        return self.kernel is None

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

    @property
    def prior(self) -> str:
        """``"proper"`` with Gaussian loadings, else ``"improper"``."""
        return "proper" if self.loading_prior == "gaussian" else "improper"

    def _num_rows(self, x: Array | None, y: Array | None, num_observations: int | None) -> int:
        self.require("num_features", "num_outputs")
        if self.standardize:
            self.require("column_scale_x", "column_scale_y")
        if x is not None:
            return x.shape[0]
        if y is not None:
            raise ValueError("give x along with y")
        if self.kernel is not None:
            raise ValueError("with a kernel x is known by inner products alone: rows cannot be drawn")
        reason = "the prior is improper and cannot be drawn from: loading_prior='gaussian' makes it proper"
        return self.rows_to_draw(num_observations, reason=reason)

    @property
    def _has_gram_matrix(self) -> bool:
        """Whether x holds kernel values instead of rows."""
        return self.kernel is not None and self.kernel.is_precomputed

    def _check_noise(self) -> None:
        if self.noise_variance_x is None and self.kernel.feature_dimension(1) == math.inf:
            raise ValueError(
                f"the feature space of {type(self.kernel).__name__} has infinitely many dimensions, in which "
                f"the estimate of the noise of x is zero: give noise_variance_x"
            )

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
        model, (x, y) = cls(**overrides).encoded(x, y)
        x, y = as_rows(x), checks.as_matrix(y, "y")
        read = {"num_features": x.shape[1], "num_outputs": y.shape[1], "classes": model.classes}
        if model.standardize:
            scaled = {"x": x} | ({"y": y} if model._scales_outputs else {})
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
        checks.check_rows(x, 2, "the projection of one row is the row itself")
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

    @classmethod
    def suitable_fields(cls, data: Sequence[Any]) -> dict[str, Any]:
        """The number of latents; the data must have densities.

        Args:
            data: parts of the data, tables of two axes.

        Returns:
            Field name to value.
        """
        checks.check_num_parts(cls.__name__, len(data), 2)
        return density_fields(cls.__name__, data[0])

    def encoded(self, *data: Any) -> tuple[Self, tuple]:
        """The model with its classes, and the data with labels as 0/1 columns and sparse x as `SparseMatrix`.

        Real outputs of one dimension are one output, which has the name of a Series.

        Raises:
            TypeError: sparse outputs.
        """
        if data and is_sparse(data[0]):
            data = (self._sparse_inputs(data[0]), *data[1:])
        if any(map(is_sparse, data[1:])):
            raise TypeError(
                "y must be dense: missing outputs are NaN, and cells that are not stored are zeros"
            )
        if len(data) < 2 or data[1] is None:
            return self, data
        if not are_labels(data[1]):
            return self, (data[0], checks.as_column(data[1], "y"), *data[2:])
        classes = class_names(data[1]) if self.classes is None else self.classes
        y = code_labels(data[1], classes, self.label_coding)
        return self.replaced(classes=classes), (data[0], y, *data[2:])

    def _sparse_inputs(self, x: Any) -> SparseMatrix:
        """Convert sparse inputs, or raise ValueError where the model does not take them."""
        if self.kernel is not None:
            raise ValueError(
                "a kernel takes dense x: zoo.kernels.gram.gram_matrix makes the Gram matrix of sparse x, to "
                "be fitted with kernel='precomputed'"
            )
        for name, needed in (("loading_prior", "flat"), ("output_likelihood", "gaussian")):
            if getattr(self, name) != needed:
                raise ValueError(f"sparse x goes with {name}={needed!r}; got {getattr(self, name)!r}")
        return as_rows(x)

    def __post_init__(self) -> None:
        """Replace a kernel's name by the kernel, then store and validate the fields."""
        if self.kernel is not None:
            object.__setattr__(self, "kernel", as_kernel(self.kernel))
        super().__post_init__()

    def validate(self) -> None:
        """Raise ValueError or TypeError if a field is outside its domain."""
        checks.check_size("num_latents", self.num_latents)
        choices = {
            "output_likelihood": OUTPUT_LIKELIHOODS,
            "output_noise": OUTPUT_NOISES,
            "center": CENTERS,
            "loading_prior": LOADING_PRIORS,
            "label_coding": CODINGS,
        }
        for name, allowed in choices.items():
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
        checks.check_flag("standardize", self.standardize)
        for block, size in (("x", self.num_features), ("y", self.num_outputs)):
            if self.column_scales[block] is not None:
                checks.check_positive_columns(f"column_scale_{block}", self.column_scales[block], size)
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
        checks.check_rows(x, 2, "the projection of one row is the row itself")
        self._check_observed(x, y)
        if self._has_gram_matrix:
            check_gram(x)
        limits = {"rows": x.shape[0]} | ({"columns of x": x.shape[1]} if self.kernel is None else {})
        checks.check_num_latents(self.num_latents, limits, below=True)

    def _check_observed(self, x: np.ndarray, y: np.ndarray) -> None:
        """Raise ValueError naming a column without variance or observed cell, or a row without any cell."""
        if np.isnan(y).all():
            raise ValueError("every cell of y is missing: without outputs the model is zoo.PPCA")
        for name, part in (("x", x), ("y", y)):
            if isinstance(part, SparseMatrix):
                checks.check_not_constant(part, name)
                continue
            empty = np.flatnonzero(np.isnan(part).all(axis=0))
            if empty.size:
                leave = checks.without_columns(part, empty, name)
                raise ValueError(
                    f"{checks.column_of(part, empty[0])} of {name} has no observed cell; leave it out, "
                    f"{leave}"
                )
            if name == "y" or not self._has_gram_matrix:
                checks.check_not_constant(part, name)
        if isinstance(x, SparseMatrix):
            return
        empty = np.flatnonzero(np.isnan(x).all(axis=1) & np.isnan(y).all(axis=1))
        if empty.size:
            raise ValueError(
                f"{checks.row_of(x, empty[0])} has no observed cell in x or y; leave it out, "
                f"{checks.without_rows(x, empty)}, and likewise of y"
            )

    def check_new(self, x: np.ndarray, y: np.ndarray | None = None) -> None:
        """Raise ValueError if rows, new or fitted, do not suit the model."""
        for name, part, size in (("x", x, self.num_features), ("y", y, self.num_outputs)):
            if part is None:
                continue
            if size is not None and part.shape[1] != size:
                raise ValueError(
                    f"{name} must have {size} columns, as the model has; got {part.shape[1]}: give the "
                    f"columns "
                    "that it was made for, or leave the size out to have it read off the data"
                )
            if not isinstance(part, SparseMatrix):  # which is finite
                checks.check_infinite(part, name)
        if y is not None and y.shape[0] != x.shape[0]:
            raise ValueError(
                f"x and y must have the same rows; x has {x.shape[0]} and y has {y.shape[0]}: an output "
                f"that is "
                "not known is NaN"
            )
        if self.output_likelihood == "probit" and y is not None:
            probit.check_probit_outputs(y, self.is_classes)
        if self.kernel is not None and np.isnan(x).any():
            row, column = np.argwhere(np.isnan(x))[0]
            raise ValueError(
                f"a kernel needs every cell of x; {checks.row_of(x, row)}, {checks.column_of(x, column)} is "
                f"missing: fill missing cells, or use kernel=None, which takes them"
            )

    @property
    def location_sites(self) -> dict[str, tuple[int, slice]]:
        """The means of inputs and outputs, and their means under q."""
        sites = {"loc_x": 0, "loc_x_mean": 0, "loc_y": 1, "loc_y_mean": 1}
        return {name: (part, slice(None)) for name, part in sites.items()}

    def origin(
        self, x: Any, y: np.ndarray, *, always: bool = False
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The columns' means; in double precision nothing moves."""
        if not always:
            return None, None
        has_differences = self.kernel is None or self.kernel.is_shift_invariant
        moves_x = has_differences and not isinstance(x, SparseMatrix)
        moves_y = self.output_likelihood == "gaussian"
        return (
            checks.column_moments(x)[0] if moves_x else None,
            checks.column_moments(y)[0] if moves_y else None,
        )

    def shifted(self, by: tuple[np.ndarray | None, ...]) -> Self:
        """The prior mean of the means is moved."""
        if self.loc_mean is None:
            return self
        sizes = self.num_features, self.num_outputs
        moves = [np.zeros(size) if at is None else at for at, size in zip(by, sizes, strict=True)]
        return self.replaced(loc_mean=self.loc_mean + np.concatenate(moves))

    def check_method(self, method: str) -> None:
        """Refuse a method that does not go with the kernel, the outputs or the prior.

        Raises:
            ValueError: a sampler with a kernel, noise in a feature space of infinitely many dimensions that
                would be estimated, a method for outputs of the other likelihood, or a flat prior where a
                proper one is needed.
        """
        if self.kernel is not None and method in ("em", "ep"):
            self._check_noise()
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

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; each output has a noise variance with ``output_noise="per_output"``."""
        per_output = {"noise_variance_y": ("output",)} if self.output_noise == "per_output" else {}
        return dict(self.dims) | per_output

    @property
    def needs_fitted_rows(self) -> bool:
        """Whether new rows are represented by their kernel values with the fitted ones."""
        return self.kernel is not None

    @property
    def kept_locals(self) -> tuple[str, ...]:
        """Local latents that the program draws though `log_likelihood` has them integrated out."""
        keeps = self.output_likelihood == "probit" and not self.sums_out_latents
        return ("latents",) if keeps else ()

    # Rows at given parameters: densities, latents, outputs, missing cells

    def log_likelihood(
        self, values: Mapping[str, Array], x: Rows | SparseMatrix, y: Outputs | None = None
    ) -> PerRow:
        """Log density of each row over its observed cells, latents integrated out.

        Args:
            values: of the sites.
            x: inputs, shape (num_observations, M), NaN where a cell is missing.
            y: outputs, shape (num_observations, L), NaN where one is missing; without them, the density of x.

        Returns:
            Shape (num_observations,), in nats.

        Raises:
            ValueError: a precomputed kernel, which does not say a new row's inner product with itself.
        """
        if self._has_gram_matrix and "gram_means" in values:
            raise ValueError(
                "a precomputed kernel does not say the inner product of a new row with itself, which its "
                "density needs: give the kernel itself"
            )
        if self.output_likelihood == "probit":
            return self.probit_rows(values).log_likelihood(x, y)
        if self.kernel is None:
            *cells, log_factor = self._cells(values, x, y)
            return log_density(*cells) + log_factor
        rows = self.rows_in_feature_space(values, x)
        if y is None:
            return rows.log_density
        return rows.log_density + self.outputs_given(values, rows).log_prob(y)

    def local_conditionals(
        self, values: Mapping[str, Array], x: Rows | SparseMatrix, y: Outputs
    ) -> dict[str, dist.Distribution]:
        """The latents of each row given its observed cells and everything else.

        Args:
            values: of the sites.
            x: inputs, as in `log_likelihood`.
            y: outputs, as there.

        Returns:
            ``latents``, with event shape (K,); nothing where they are not summed out.
        """
        if self.output_likelihood == "probit":
            return {"latents": self.probit_rows(values).latents(x, y)} if self.sums_out_latents else {}
        mean, covariance = self._latents(values, x, y)
        return {"latents": dist.MultivariateNormal(mean, covariance, validate_args=False)}

    def derived(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The latents of the rows.

        Args:
            values: of the sites.

        Returns:
            ``latents``, shape (num_observations, K).
        """
        return {"latents": values["latents"]}

    def scores(
        self,
        values: Mapping[str, Array],
        x: Rows | SparseMatrix,
        y: Outputs | None = None,
        *,
        kind: str = "latent",
    ) -> Scores:
        """Coordinates of rows: posterior means of latents, or in an orthonormal basis of W_x.

        Args:
            values: parameters.
            x: inputs.
            y: outputs, where they are to be used: E[z | x, y]; without them E[z | x].
            kind: ``"latent"``, or ``"orthonormal"``: coordinates of x (missing cells at their expectation)
                about its mean in an orthonormal basis of W_x, by descending length.

        Returns:
            Shape (num_observations, K).
        """
        if kind == "latent":
            return self._latents(values, x, y)[0]
        if self.kernel is not None:
            return self._feature_coordinates(values, x)
        if self.units:
            values = {n: v / self.units[n][0] if n in self.units else v for n, v in values.items()}
            x, y = x / self.column_scale_x, None if y is None else y / self.column_scale_y
            return self.in_standard_units().scores(values, x, y, kind=kind)
        basis = jnp.linalg.svd(values["loadings_x"], full_matrices=False)[0]
        basis = basis * signs_of(basis)
        if isinstance(x, SparseMatrix):
            return x.times(basis) - values["loc_x"] @ basis
        completed = self.predicted(values, x, y, what="cells")[0]
        return (completed - values["loc_x"]) @ basis

    def scores_covariance(
        self, values: Mapping[str, Array], x: Rows | SparseMatrix, y: Outputs | None = None
    ) -> Covariances:
        """Posterior covariance of the latents of rows.

        Args:
            values: of the sites.
            x: inputs, as in `log_likelihood`.
            y: outputs, where they are to be used.

        Returns:
            Shape (num_observations, K, K).
        """
        return self._latents(values, x, y)[1]

    def predicted(
        self,
        values: Mapping[str, Array],
        x: Rows | SparseMatrix,
        y: Outputs | None = None,
        *,
        what: str = "outputs",
    ) -> tuple[Predicted, Predicted]:
        """Mean and variance of the missing outputs or cells of rows.

        Args:
            values: parameters.
            x: inputs.
            y: outputs; observed ones are used and keep their values.
            what: ``"outputs"``, ``"cells"`` (of x), or ``"classes"``: the probability of each class, whose
                variance is that of the indicator; 0 or 1 where the label is given. Of Gaussian outputs it is
                Bayes' rule, the class's share pi_c (from loc_y) times the density of x given its code e_c:
                p(c | x) ~ pi_c p(x | e_c) ~ pi_c p(e_c | x) / p(e_c). A row that tells nothing has the
                shares.

        Returns:
            Two arrays of shape (num_observations, L), or with M columns, or one a class.

        Raises:
            ValueError: cells of x, which are not known with a kernel.
        """
        if what == "classes":
            shares = self._class_probabilities(values, x, y)
            return shares, shares * (1 - shares)
        if what == "outputs" and self.output_likelihood == "probit":
            shares = self.probit_rows(values).probabilities(x, y)
            return shares, shares * (1 - shares)
        mean, covariance = self._latents(values, x, y)
        if what == "cells" and self.kernel is not None:
            raise ValueError("with a kernel x is known in feature space alone: it has no cells to predict")
        block, data = ("x", x) if what == "cells" else ("y", y)
        w, loc = values[f"loadings_{block}"], values[f"loc_{block}"]
        expected = loc + mean @ w.T
        noise = values[f"noise_variance_{block}"]
        if self.standardize:
            noise = (self.noise_of_inputs if block == "x" else self.noise_of_outputs)(values)
        variance = jnp.einsum("di,nij,dj->nd", w, covariance, w) + noise
        if data is None:
            return expected, variance
        if isinstance(data, SparseMatrix):  # nothing is missing
            return data.to_dense(), jnp.zeros(data.shape)
        known = ~jnp.isnan(data)
        return jnp.where(known, data, expected), jnp.where(known, 0.0, variance)

    def completions(self) -> dict[str, tuple[str, ...]]:
        """The quantities that `inference.predict` returns, the default first.

        Returns:
            Name to dims.
        """
        found: dict[str, Any] = {"outputs": ("observation", "output")}
        if self.kernel is None:
            found["cells"] = ("observation", "feature")
        return found if self.classes is None else found | {"classes": ("observation", "class")}

    def default_completion(self, *data: Any) -> str | None:
        """Classes where the outputs are labels, whose columns' expectations are no probabilities."""
        return None if self.classes is None else "classes"

    def _class_probabilities(self, values: Mapping[str, Array], x: Array, y: Array | None) -> Array:
        if self.classes is None:
            raise ValueError("the outputs of this model are numbers, not class labels")
        if self.output_likelihood == "probit":
            shares = self.probit_rows(values).probabilities(x, y)
            return shares if self.is_classes else jnp.concatenate([shares, 1 - shares], axis=1)
        mean, covariance = self._latents(values, x, None)
        w, noise, shares = values["loadings_y"], jnp.diag(self.noise_of_outputs(values)), values["loc_y"]
        codes = jnp.eye(len(self.classes))[:, : self.num_outputs]
        spread = jnp.einsum("li,nij,mj->nlm", w, covariance, w) + noise
        evidence = _log_kernel(codes, shares + mean @ w.T, spread)
        evidence -= _log_kernel(codes, shares[None], (w @ w.T + noise)[None])
        found = jax.nn.softmax(evidence + jnp.log(jnp.maximum(self._of_all(shares), SMALLEST_SHARE)), axis=-1)
        return found if y is None else jnp.where(jnp.isnan(y).any(1, keepdims=True), found, self._of_all(y))

    def _of_all(self, columns: Array) -> Array:
        """The numbers of all classes, the last of which the others determine where it has no column."""
        left = 1 - columns.sum(axis=-1, keepdims=True)
        return columns if self.num_outputs == len(self.classes) else jnp.concatenate([columns, left], axis=-1)

    def _latents(self, values: Mapping[str, Array], x: Array, y: Array | None) -> tuple[Array, Array]:
        """Posterior mean and covariance of the latents of each row."""
        if self.output_likelihood == "probit" and y is not None:
            return self.probit_rows(values).latents_moments(x, y)
        if self.kernel is None:
            rows, loadings, loc, noise, _ = self._cells(values, x, y)
            return latents_mean(rows, loadings, loc, noise), latents_covariance(rows, loadings, noise)
        rows = self.rows_in_feature_space(values, x)
        shared = jnp.broadcast_to(rows.covariance, (*rows.mean.shape, rows.mean.shape[1]))
        if y is None:
            return rows.mean, shared
        root, w_y = jnp.linalg.cholesky(rows.covariance), values["loadings_y"]
        noise, loc = self.noise_of_outputs(values), values["loc_y"]
        moved = latents_mean(y - rows.mean @ w_y.T, w_y @ root, loc, noise)
        covariance = root @ latents_covariance(y, w_y @ root, noise) @ root.T
        return rows.mean + moved @ root.T, covariance

    def _feature_coordinates(self, values: Mapping[str, Array], x: Array) -> Array:
        """Coordinates of rows in an orthonormal basis of W_x in feature space."""
        rows, b = self.rows_in_feature_space(values, x), values["coefficients"]
        projected = values["gram_products"] if "gram_products" in values else None
        if projected is None:
            projected = centred_matrix(in_current_precision(self.kernel), x) @ b
        inner = b.T @ projected
        lengths, turn = jnp.linalg.eigh((inner + inner.T) / 2)
        noise = values["noise_variance_x"]
        right = rows.mean @ (inner + noise * jnp.eye(len(inner)))  # W' phi(x), undone of its shrinkage
        return (right @ turn / jnp.sqrt(jnp.maximum(lengths, 1e-300)))[:, ::-1]

    def _cells(
        self, values: Mapping[str, Array], x: Array, y: Array | None
    ) -> tuple[Array, Array, Array, Array, Array | float]:
        """Rows of [x, y], or of x alone, with loadings, mean and noise of their columns.

        Sparse inputs come reduced; last comes the term to add to the log density of each row, otherwise 0.
        """
        joint, m, log_factor = self.joint(values), self.num_features, 0.0
        known, others = [part[:m] for part in joint], [part[m:] for part in joint]
        if isinstance(x, SparseMatrix):
            x, *known, log_factor = reduced(x, *known)
        if y is None:
            return x, *known, log_factor
        both = map(jnp.concatenate, zip(known, others, strict=True))
        return jnp.concatenate([x, y], axis=1), *both, log_factor


def _log_kernel(codes: Array, mean: Array, covariance: Array) -> Array:
    """Log density of each code under a normal for each row, up to a term of the row: (rows, codes)."""
    residual = codes[None] - mean[:, None]
    solved = jnp.swapaxes(jnp.linalg.solve(covariance, jnp.swapaxes(residual, 1, 2)), 1, 2)
    return -0.5 * jnp.sum(residual * solved, axis=2)


def _improper(shape: tuple[int, ...], support: Any = dist.constraints.real) -> dist.Distribution:
    """A flat density over arrays of that shape."""
    return dist.ImproperUniform(dist.constraints.independent(support, len(shape)), (), shape)


def _sample_cells(name: str, loc: Array, noise_variance: Array, data: Array | None) -> Array:
    """Sample independent cells about their means, shape (num_observations, columns), leaving NaN out."""
    cells = dist.Normal(loc, jnp.sqrt(noise_variance))
    if data is None:
        return numpyro.sample(name, cells.to_event(1))
    return numpyro.sample(name, cells.mask(~jnp.isnan(data)).to_event(1), obs=jnp.nan_to_num(data))
