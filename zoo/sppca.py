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

With ``loading_prior="gaussian"`` loadings ~ Normal(0, v), means ~ Normal(m, c) and noise variances ~
InverseGamma(a, b), in the units of the data. What is not given is read off x and off y separately: v is the
mean variance of the columns, m their means (0 beside a given c), c is 100 v, and b is a times their mean
variance (or that of each output); so a fit in metres and one in millimetres are the same. Utilities of probit
outputs have no unit: theirs are as of outputs with mean 0 and variance 1.

With ``standardize``, for columns in different units, the program is of columns in their standard deviations
s_d, those of x, and of y where it holds real numbers. Noise variances and all variances and rates of the
priors are then of these; everything else is in the units of the data.

Departures from the source. Probit outputs are its future work. The thesis fixes mu_y at the mean of the
labelled rows (7.7), which maximises the likelihood only when every row is labelled; ``center="joint"``
estimates it with the other parameters and ``center="plugin"`` does as the thesis. Noise floors are part of
the model: the likelihood has no maximum if there are as many latents as the rank of outputs of deficient rank
(one-of-C columns).

References: Yu, Yu, Tresp, Kriegel and Wu (2006), "Supervised probabilistic principal component analysis";
Yu (2006), chapter 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro import plate, sample

from zoo.coordinates import Freedom, Unit
from zoo.fields import Given, choice, flag, numbers, part, positive, scale_of, size, size_of, static
from zoo.kernels import Kernel
from zoo.linear_gaussian.rows import flat, standard_normal
from zoo.linear_gaussian.supervised import Block, FeatureSpace, Primal, Probit, Real, block_prior
from zoo.linear_gaussian.supervised_answers import RealAnswers
from zoo.linear_gaussian.supervised_intake import DENSE, FACTS, SupervisedIntake
from zoo.model import NUMBERS, Roles, Table
from zoo.programs import local
from zoo.shapes import Outputs, Rows


@dataclass(frozen=True, eq=False)
class SPPCA(SupervisedIntake):
    """Supervised PCA (every row labelled) and semi-supervised PCA (NaN in ``y``): one linear-Gaussian model.

    Attributes:
        num_latents: K, fewer than rows and than input features.
        kernel: None, or one of `zoo.kernels` or its name: x in a feature space (dual), every cell there.
        output_likelihood: ``"gaussian"``, or ``"probit"`` for 0/1 outputs and class labels.
        output_noise: ``"shared"``: one variance for all outputs; ``"per_output"``: one each.
        center: mean of the outputs: ``"joint"``: estimated; ``"plugin"``: of their observed cells (7.7).
        noise_floor: least noise variance of x and y in mean variances, shape (2,); part of the likelihood.
        loading_prior: ``"flat"`` (improper; maximum likelihood), or ``"gaussian"``, with the next five.
        loading_variance: v, one number or that of x and that of y, shape (2,).
        loc_mean: m of the means of [x, y], shape () or (M + L,).
        loc_variance: c, shape () or (2,).
        noise_concentration: a.
        noise_rate: b, shape (), (2,) or, with ``"per_output"``, (1 + L,).
        noise_variance_x: None: estimated. A number: given, which an infinite-dimensional kernel needs.
        standardize: whether columns are measured in their standard deviations.
        column_scale_x: s of x, shape (num_features,), with ``standardize``; None: read off the cells.
        column_scale_y: s of y, shape (num_outputs,), likewise; ones where y holds labels or is probit.
        label_coding: of class labels: ``"one_of_c"``, or ``"reduced"``: without the last class's column.
        classes: the classes in the order of their columns; read off labels.
        num_features, num_outputs: M and L; read off the data.
        feature_dimension: that the density counts with a kernel: 0 infinitely many, N - 1 unknown.

    Example:
        >>> import numpy as np, zoo
        >>> x, y = np.random.default_rng(0).normal(size=(2, 20, 3))
        >>> zoo.SPPCA.from_data(x, y, num_latents=2).num_outputs
        3
    """

    num_latents: int = size(2)
    kernel: Given[Kernel | str | None, Kernel] = part(**FACTS["kernel"])
    output_likelihood: str = choice("gaussian", "probit")
    output_noise: str = choice("shared", "per_output")
    center: str = choice("joint", "plugin")
    noise_floor: Array = (1e-6, 1e-3)
    loading_prior: str = choice("flat", "gaussian", **FACTS["loading_prior"])
    loading_variance: Array | None = positive(**FACTS["loading_variance"])
    loc_mean: Array | None = numbers(**FACTS["loc_mean"])
    loc_variance: Array | None = positive(**FACTS["loc_variance"])
    noise_concentration: Array = positive(1e-3)
    noise_rate: Array | None = positive(**FACTS["noise_rate"])
    noise_variance_x: Array | None = positive(unit="given_noise_unit")
    standardize: bool = flag(inside=False)
    column_scale_x: Array | None = scale_of()
    column_scale_y: Array | None = scale_of(1, "output", "output_scale_unit")
    label_coding: str = choice("one_of_c", "reduced")
    classes: tuple[str | int, ...] | None = static(None)
    num_features: int | None = size_of("x")
    num_outputs: int | None = size_of("y")
    feature_dimension: int | None = size(**FACTS["feature_dimension"])

    def program(self, x: Rows | None, y: Outputs | None, rows: plate) -> tuple[Rows, Outputs]:
        """Parameters of inputs and outputs; then latents, inputs and outputs of each row."""
        inputs, outputs = self.inputs, self.outputs
        of_x, of_y = self.block("x", self.num_features), self.block("y", self.num_outputs)
        values = inputs.sample(of_x, rows.size) | outputs.sample(of_y)
        with rows:
            z = local("latents", standard_normal(self.num_latents), sums_out=outputs.has_marginal)
            x = sample("x", inputs.rows(values, z), obs=x)
            return x, sample("y", outputs.rows(values, inputs, x, y, z), obs=y)

    def block(self, name: str, size: int) -> Block:
        """Priors of loadings, mean and noise variance of the columns of ``"x"`` or of ``"y"``.

        Args:
            name: of the part.
            size: number of its columns.

        Returns:
            Distributions.
        """
        k, noises = self.num_latents, (size,) if name == "y" and self.output_noise == "per_output" else ()
        if self.loading_prior == "flat":
            return Block(flat(size, k), flat(size), flat(*noises, positive=True))
        prior = block_prior(self, name)
        loadings = dist.Normal(0.0, jnp.sqrt(prior.loading_variance)).expand([size, k]).to_event(2)
        loc = dist.Normal(prior.loc_mean, jnp.sqrt(prior.loc_variance)).expand([size]).to_event(1)
        noise = dist.InverseGamma(prior.noise_concentration, prior.noise_rate).expand(noises)
        return Block(loadings, loc, noise.to_event(len(noises)))

    @property
    def inputs(self) -> Primal | FeatureSpace:
        """Cells, or rows in feature space."""
        return Primal(self) if self.kernel is None else FeatureSpace(self)

    @property
    def outputs(self) -> Real | Probit:
        """Real numbers, or zeros and ones that utilities decide."""
        return Real(self) if self.output_likelihood == "gaussian" else Probit(self)

    data = (
        Table("x", sparse="reals", needs=2, latents=("rows", "columns")),
        Table("y", (*NUMBERS, "class_labels"), dense=DENSE, optional=True, varies=True),
    )
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
    methods = (
        "em",
        "closed_form",
        "vb",
        "nuts",
        "hmc",
        "svi",
        "morp",
        "kernel_cca",
        "gibbs",
        "ep",
        "tempered",
    )
    roles = Roles(latent="latents", loadings={"loadings_x": "_x", "loadings_y": "_y"})
    answers = RealAnswers

    @property
    def units(self) -> Mapping[str, Unit]:
        """Rows, means, loadings and noise variances of inputs, and of outputs that are numbers."""
        units = {"x": _place(0), "loc_x": _place(0), "loadings_x": Unit(1, (-2,))}
        if self.kernel is None or self.kernel.weighs_columns_alike:
            units["noise_variance_x"] = self.noise_units[0]
        if not self.has_numbers:
            return units
        units |= {"y": _place(1), "loc_y": _place(1), "loadings_y": Unit(1, (-2,), part=1)}
        return units | {"noise_variance_y": self.noise_units[1]}

    @property
    def output_scale_unit(self) -> Unit:
        """Of the deviations of the outputs."""
        return Unit(int(self.has_numbers), (-1,), part=1)

    @property
    def place_units(self) -> tuple[Unit, Unit]:
        """Of the means of inputs and outputs."""
        return _place(0), _place(1) if self.has_numbers else self.output_scale_unit

    @property
    def noise_units(self) -> tuple[Unit, Unit]:
        """Of the noise variances of inputs and outputs."""
        powers = [0 if self.standardize else 2, 0 if self.standardize or not self.has_numbers else 2]
        per_output = (-1,) if self.output_noise == "per_output" else ()
        return Unit(powers[0]), Unit(powers[1], per_output, part=1)

    @property
    def variance_units(self) -> tuple[Unit, ...]:
        """Of one variance of inputs and one of outputs."""
        return tuple(own._replace(axes=()) for own in self.noise_units)

    @property
    def given_noise_unit(self) -> Unit | None:
        """Of the noise variance of the inputs, where it is given."""
        return None if self.noise_variance_x is None else self.noise_units[0]

    @property
    def coordinate_freedom(self) -> tuple[Freedom | None, ...]:
        """With a kernel no scale, since its values have units of their own, and an origin if it has none."""
        if self.kernel is None:
            return super().coordinate_freedom
        shift = Freedom(None) if self.kernel.is_shift_invariant else None
        return shift, shift if self.has_numbers else None

    @property
    def has_numbers(self) -> bool:
        """Whether the outputs are numbers with a unit, neither labels nor zeros and ones."""
        return self.output_likelihood == "gaussian" and self.classes is None

    @property
    def is_classes(self) -> bool:
        """Whether the outputs are the columns of class labels, of which one is 1."""
        return self.classes is not None and self.num_outputs == len(self.classes)

    @property
    def prior(self) -> str:
        """``"proper"`` with Gaussian loadings, else ``"improper"``."""
        return "proper" if self.loading_prior == "gaussian" else "improper"

    @property
    def variable_dims(self) -> Mapping[str, tuple[str, ...]]:
        """The dims of all variables; each output has a noise variance with ``output_noise="per_output"``."""
        per_output = {"noise_variance_y": ("output",)} if self.output_noise == "per_output" else {}
        return dict(self.dims) | per_output


def _place(part: int) -> Unit:
    return Unit(1, (-1,), is_location=True, part=part)
