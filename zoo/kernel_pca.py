r"""Probabilistic kernel PCA: principal components in the feature space of a kernel.

Rows are mapped to a feature space and centred there; K is their centred Gram matrix, and only inner products
are known. In the letters of Yu (2006, section 5.2) the rows of Z are coordinates in a low-dimensional space,
and the Gram matrix is scored as that of m Gaussian columns with covariance Z Z' + s2 I::

    z_i  ~ flat, or ~ Normal(0, tau2 I),                                  i = 1..N
    K    scored by  -(m/2) log det(Z Z' + s2 I) - tr{(Z Z' + s2 I)^-1 K} / 2

=======  ======================  =======  ================================================================
letter   site                    shape    support
=======  ======================  =======  ================================================================
Z        ``latents``             (N, K)   real
s2       ``noise_variance``      ()       positive; a site only where it is not given
Z'Z      ``explained_variances`` (K,)     deterministic: its eigenvalues, descending
K        ``gram``                --       a factor: the Gram matrix is scored, not drawn
=======  ======================  =======  ================================================================

The number of degrees of freedom m is N - 1, the dimension of the space that N centred rows span;
``degrees_of_freedom=N`` is the thesis's choice. With ``s2`` given and m = N the score is, up to a constant,
the likelihood of probabilistic PCA in the feature space (5.24) with loadings W for which W'W has the
eigenvalues of Z'Z. **This is not a density of x**: the map into the feature space is neither onto nor volume
preserving, so `log_density` is not offered.

The maximum is known (Theorem 5.2.1): with eigenvalues :math:`\lambda_j` and eigenvectors :math:`v_j` of K,
:math:`Z = V (\Lambda/m - s^2)_+^{1/2} R` for any rotation R. Components with :math:`\lambda_j \le m s^2`
vanish, which the text's "any s2 leads to (5.18)" overlooks.

Without ``noise_variance`` the dimension M of the feature space must be finite: then ``s2`` is a site, the
score has the determinant of all M dimensions, -(m/2) (M - N) log s2 more, and its maximum
:math:`s^2 = \sum_{j>K} \lambda_j / \{m (M - K)\}` is (5.19). In infinitely many dimensions it is 0, and s2
has to be given.

Symmetry: Z R with R orthogonal has the same score (rotation).

The flat prior has no proper posterior unless m > N + K - 1: far out the score falls like :math:`|z|^{-m}` in
every column, and volume grows like :math:`|z|^{N-1}`. NUTS, HMC and SVI therefore ask for
``latent_variance`` (tau2); EM maximises the score and ``closed_form`` the posterior with either prior.

References: Yu (2006), chapter 5; Schoelkopf, Smola and Mueller (1998), "Nonlinear component analysis as a
kernel eigenvalue problem"; Lawrence (2005), "Probabilistic non-linear principal component analysis with
Gaussian process latent variable models", for the score.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array

from zoo import checks
from zoo.kernels import Kernel, as_kernel
from zoo.kernels.gram import announce_cost, centred_cross, centred_matrix, check_gram
from zoo.model import Model, in_current_precision, static
from zoo.shapes import Covariances, PerRow, Rows, Scores
from zoo.sparse import is_sparse

__all__ = ["KernelPCA", "gram_score"]

SAMPLERS = ("nuts", "hmc", "svi")


@dataclass(frozen=True, eq=False)
class KernelPCA(Model):
    """Probabilistic kernel PCA.

    Attributes:
        num_latents: K, the number of components; less than the number of rows.
        kernel: a kernel of `zoo.kernels`, or its name: ``"linear"``, ``"rbf"``, ``"polynomial"``,
            ``"precomputed"`` (x is then the Gram matrix itself, not centred).
        noise_variance: s2 > 0, in units of the kernel. None: estimated, where the feature space has finitely
            many dimensions.
        degrees_of_freedom: m > 0. None: one less than the number of rows.
        latent_variance: tau2, the prior variance of the entries of Z. None: a flat prior.
        standardize: whether the kernel is of columns measured in their standard deviations: for columns
            in different units. Scores have no unit, and are those of the hand-standardised table.
        column_scale: the columns' scales, shape (num_features,), used with ``standardize``; None: their
            standard deviations.

    Example:
        >>> import numpy as np, zoo
        >>> model = zoo.KernelPCA(num_latents=3, kernel="rbf", noise_variance=0.01)
        >>> model.with_sizes_from(np.random.default_rng(0).normal(size=(50, 2))).kernel.length_scale.shape
        ()
    """

    num_latents: int = static(default=2)
    kernel: Kernel = "linear"
    noise_variance: Array | None = None
    degrees_of_freedom: Array | None = None
    latent_variance: Array | None = None
    standardize: bool = static(default=False)
    column_scale: Array | None = None

    dims = {
        "latents": ("observation", "latent"),
        "noise_variance": (),
        "explained_variances": ("rank",),
        "eigenvalues": ("latent",),
        "signal_variances": ("latent",),
        "coefficients": ("observation", "latent"),
        "gram_means": ("observation",),
        "gram_products": ("observation", "latent"),
        "x": ("observation", "feature"),
    }
    symmetries = ("rotation",)
    methods = ("closed_form", "em", "nuts", "hmc", "svi")
    scores_rows = False
    projects_by_draws = False
    unit_free_sites = ("explained_variances",)  # of kernels without a unit, the only ones that draws allow
    needs_fitted_rows = True
    latent_site = "latents"

    @property
    def isotropic_parts(self) -> tuple[bool, ...]:
        """Whether the kernel weighs all columns alike, as a linear one and an RBF of one length scale do."""
        return (self.kernel.weighs_columns_alike and not self.standardize,)

    @property
    def units(self) -> Mapping[str, tuple[Any, Any]]:
        """The columns' scales, with ``standardize``."""
        return {"x": (self.column_scale, 0.0)} if self.standardize and self.column_scale is not None else {}

    @property
    def part_weights(self) -> Mapping[str, Any]:
        """The score is of the Gram matrix and no density of the rows: their unit does not change it."""
        return {"x": 0.0}

    def in_standard_units(self) -> Self:
        """The plain model of x / column_scale."""
        return self.replaced(standardize=False, column_scale=None) if self.units else self

    def standard_rows(self, x: Rows) -> Rows:
        """The rows that the kernel is of.

        Args:
            x: shape (num_observations, num_features), in the units of the data.

        Returns:
            The shape of ``x``.
        """
        if not self.units:
            return x
        return x / (self if isinstance(x, np.ndarray) else in_current_precision(self)).column_scale

    def __call__(self, x: Rows | None = None, *, num_observations: int | None = None) -> None:
        """The NumPyro program, which cannot draw rows.

        Args:
            x: data, shape (num_observations, num_features).
            num_observations: refused.

        Returns:
            Nothing, so no shape: the score enters as a factor.

        Raises:
            ValueError: no data.
        """
        if x is None:
            raise ValueError(
                "KernelPCA scores the Gram matrix of given rows and is no distribution of rows: "
                "its prior is improper and there is nothing to draw without x"
            )
        prior = in_current_precision(self)
        if self.standardize:
            self.require("column_scale")
        gram = centred_matrix(prior.kernel, self.standard_rows(x))
        noise_variance = prior.noise_variance
        if noise_variance is None:
            positive = dist.ImproperUniform(dist.constraints.positive, (), ())
            noise_variance = numpyro.sample("noise_variance", positive)
        with numpyro.plate("observations", x.shape[0]):
            latents = numpyro.sample("latents", prior.latents_prior())
        numpyro.deterministic("explained_variances", jnp.linalg.eigvalsh(latents.T @ latents)[::-1])
        dimension, freedom = self.score_dimension(*x.shape), prior.freedom(x.shape[0])
        numpyro.factor("gram", gram_score(latents, noise_variance, gram, freedom, dimension))

    def latents_prior(self) -> dist.Distribution:
        """The prior of a row of Z.

        Returns:
            Distribution with event shape (num_latents,); improper where ``latent_variance`` is None.
        """
        if self.latent_variance is None:
            return dist.ImproperUniform(dist.constraints.real_vector, (), (self.num_latents,))
        scale = jnp.sqrt(self.latent_variance) * jnp.ones(self.num_latents)
        return dist.Normal(0.0, scale).to_event(1)

    def freedom(self, num_observations: int) -> Array:
        """The number m of degrees of freedom.

        Args:
            num_observations: N, read where the field is None.

        Returns:
            A scalar: the field, or N - 1.
        """
        return num_observations - 1.0 if self.degrees_of_freedom is None else self.degrees_of_freedom

    def score_dimension(self, num_observations: int, num_features: int) -> float | Array:
        """The number of dimensions of the determinant: N where s2 is given, M where it is estimated.

        Args:
            num_observations: N.
            num_features: of the rows, from which the kernel knows M.

        Returns:
            A scalar.
        """
        if self.noise_variance is not None:
            return float(num_observations)
        return 1.0 * self.kernel.feature_dimension(num_features)

    @property
    def prior(self) -> str:
        """``"improper"``: a kernel without rows cannot be drawn from."""
        return "improper"

    @classmethod
    def from_data(cls, x: Any, **overrides: Any) -> Self:
        """The model with the kernel's parameters read off the rows where they are None."""
        return cls(**overrides).with_sizes_from(x)

    def with_sizes_from(self, x: Any) -> Self:
        """The model with the kernel's parameters read off the rows where they are None.

        ``noise_variance`` and ``degrees_of_freedom`` stay None: estimated, and N - 1.

        Raises:
            TypeError: sparse rows.
        """
        _refuse_sparse(x)
        rows, read = checks.as_matrix(x), {}
        if self.standardize:
            if self.column_scale is None:
                checks.check_finite(rows)
            read["column_scale"] = checks.column_scale(rows, self.column_scale)
            rows = rows / read["column_scale"]
        kernel = self.kernel.filled(rows)
        if kernel is self.kernel and (not read or self.column_scale is not None):
            return self
        return self.replaced(kernel=kernel, **read)

    def encoded(self, *data: Any) -> tuple[Self, tuple]:
        """The model and its rows.

        Raises:
            TypeError: sparse rows.
        """
        for part in data:
            _refuse_sparse(part)
        return self, data

    def continuing(self, former: Self) -> Self:
        """The model with the former fit's length scale and column scales, where they are not given."""
        kernel = self.kernel.continuing(former.kernel)
        model = self if kernel is self.kernel else self.replaced(kernel=kernel)
        is_open = self.standardize and former.standardize and self.column_scale is None
        return model.replaced(column_scale=former.column_scale) if is_open else model

    def __post_init__(self) -> None:
        """Replace a kernel's name by the kernel, then store and validate the fields."""
        object.__setattr__(self, "kernel", as_kernel(self.kernel))
        super().__post_init__()

    @property
    def cell_units(self) -> tuple[str]:
        """Any unit and any origin, if the kernel has its length from the data."""
        return ("location_scale",)

    def relation_of(self, name: str, method: str) -> str:
        """What happens to a fit under a change of the data; see `zoo.model.Model.relation_of`."""
        if name == "columns_rescaled" and self.standardize:
            return "same"
        if self.kernel.is_precomputed and name in ("rows_permuted", "columns_permuted", "fitted_rows"):
            return "no: the data are kernel values of the rows with themselves"
        if name in ("shifted", "other_units") and not self.kernel.ignores_origin:
            return "no: the kernel has an origin"
        if name == "fitted_rows" and method in ("nuts", "hmc", "svi"):
            return "no: draws of the latents have no coefficients to project new rows with"
        is_given = self.noise_variance is not None or self.latent_variance is not None
        if name in ("rescaled", "other_units") and self.kernel.has_unit and is_given:
            return "no: a variance is given in the unit of the kernel"
        return super().relation_of(name, method)

    @property
    def takes_missing(self) -> bool:
        """No: a kernel is of whole rows."""
        return False

    def validate(self) -> None:
        """Raise ValueError if a field is outside its domain."""
        checks.check_whole("num_latents", self.num_latents)
        for name in ("noise_variance", "degrees_of_freedom", "latent_variance"):
            if getattr(self, name) is not None:
                checks.check_positive(name, getattr(self, name))
        checks.check_flag("standardize", self.standardize)
        if self.column_scale is not None:
            checks.check_positive_columns("column_scale", self.column_scale, None)
        if self.standardize and self.kernel.is_precomputed:
            raise ValueError(
                "standardize=True is of rows, and a precomputed kernel has none: divide the columns by their "
                "standard deviations before the Gram matrix is made, and leave standardize out"
            )
        if self.noise_variance is None and self.kernel.feature_dimension(1) in (math.inf, None):
            reason = (
                "does not say how many dimensions its feature space has"
                if self.kernel.is_precomputed
                else "has infinitely many dimensions, in which the estimate of the noise is 0"
            )
            raise ValueError(
                f"noise_variance must be given with the kernel {type(self.kernel).__name__}: it {reason}; "
                f"such as "
                "noise_variance=0.01"
            )

    def check(self, x: np.ndarray) -> None:
        """Raise ValueError if ``x`` does not suit the model; announce the cost of a large Gram matrix."""
        x = checks.as_matrix(x)
        if self.kernel.is_precomputed:
            check_gram(x)
        checks.check_finite(x)
        # the centred Gram matrix of N rows has N - 1 components
        checks.check_num_latents(self.num_latents, {"rows": len(x)}, below=True)
        if self.noise_variance is None and self.num_latents >= self.kernel.feature_dimension(x.shape[1]):
            raise ValueError(
                f"num_latents must be below the dimension of the feature space, "
                f"{self.kernel.feature_dimension(x.shape[1])}, or no noise is left to estimate; "
                f"got {self.num_latents}: lower it, or give noise_variance"
            )
        announce_cost(x.shape[0])

    def check_new(self, x: np.ndarray) -> None:
        """Raise ValueError if new rows have cells that are not finite."""
        checks.check_finite(checks.as_matrix(x))

    def log_likelihood(self, values: Mapping[str, Array], x: Rows) -> PerRow:
        """Raise ValueError, because the model has no density of rows.

        Args:
            values: of the sites.
            x: rows.

        Returns:
            Nothing, so no shape.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "KernelPCA scores a Gram matrix and has no density of rows: the map into feature space is "
            "neither onto nor volume preserving; compare models by their components, or use zoo.PPCA"
        )

    def scores(self, values: Mapping[str, Array], x: Rows, *, kind: str = "latent") -> Scores:
        r"""Coordinates of rows from their centred kernel values :math:`\hat k(x)` with the fitted rows.

        ``"orthonormal"``: :math:`a_j^T \hat k(x)`, the coordinates of kernel PCA, where
        :math:`\hat\Phi^T a_j` are directions of length one. ``"latent"``: :math:`E[z_j \mid x] = \sqrt{l_j}\,
        a_j^T \hat k(x) / (l_j + s^2)` (5.14), whitened and shrunk and not the "exact projection" of section
        5.2.4: with m = N it is :math:`\sqrt N \lambda_j^{-1} (1 - N s^2 / \lambda_j)^{1/2} v_j^T \hat k(x)`,
        the rotation across components, not rows (the text's eigen-function has it the other way).

        Args:
            values: an estimate: ``coefficients`` (a), ``signal_variances`` (l), ``noise_variance``,
                ``gram_means``, and the fitted rows, ``fitted_x``.
            x: rows; for a precomputed kernel their kernel values with the fitted ones.
            kind: which.

        Returns:
            Shape (num_observations, num_latents).

        Raises:
            ValueError: draws without coefficients, or other columns.
        """
        if "coefficients" not in values:
            raise ValueError(
                "draws of the latents have no coefficients to project new rows with: fit by closed_form or em"
            )
        if not self.kernel.is_precomputed and x.shape[1] != values["fitted_x"].shape[1]:
            raise ValueError(
                f"x must have the {values['fitted_x'].shape[1]} columns that were fitted; got {x.shape[1]}"
            )
        kernel = in_current_precision(self.kernel)
        rows, fitted = map(self.standard_rows, (x, values["fitted_x"]))
        crossed = centred_cross(kernel, rows, fitted, values["gram_means"])
        coordinates = crossed @ values["coefficients"]
        if kind == "orthonormal":
            return coordinates
        variances = values["signal_variances"]
        return coordinates * (jnp.sqrt(variances) / (variances + values["noise_variance"]))

    def scores_covariance(self, values: Mapping[str, Array], x: Rows) -> Covariances:
        """Posterior covariance of the latents, the same for all rows: ``s2 / (l + s2)`` on the diagonal."""
        noise_variance = values["noise_variance"]
        shares = noise_variance / (values["signal_variances"] + noise_variance)
        return jnp.broadcast_to(jnp.diag(shares), (x.shape[0], shares.size, shares.size))

    def origin(self, x: np.ndarray, *, always: bool = False) -> tuple[np.ndarray | None]:
        """The columns' means where kernel values depend on differences of rows alone."""
        return (checks.column_moments(x)[0] if always and self.kernel.is_shift_invariant else None,)

    def check_method(self, method: str) -> None:
        """Refuse samplers where the posterior is improper.

        Raises:
            ValueError: a sampler, and a flat prior of the latents.
        """
        if method in SAMPLERS and self.latent_variance is None and self.degrees_of_freedom is None:
            raise ValueError(
                f"{method} needs a prior of the latents: with a flat one the posterior of N rows has no "
                "finite mass; give latent_variance (about the largest eigenvalue of the Gram matrix over N)"
            )


def _refuse_sparse(x: Any) -> None:
    """Raise TypeError for sparse rows."""
    if is_sparse(x):
        raise TypeError(
            "KernelPCA takes dense rows; of sparse ones give the Gram matrix, (x @ x.T).toarray(), with "
            'kernel="precomputed"'
        )


def gram_score(latents: Array, noise_variance: Array, gram: Array, freedom: Array, dimension: Array) -> Array:
    """The score of a centred Gram matrix, in nats, without the constants of a Wishart density.

    Args:
        latents: Z, shape (num_observations, num_latents).
        noise_variance: s2.
        gram: K, shape (num_observations, num_observations).
        freedom: m.
        dimension: how many dimensions the determinant is over.

    Returns:
        A scalar, in nats.
    """
    num_latents = latents.shape[1]
    inner = latents.T @ latents + noise_variance * jnp.eye(num_latents)
    log_det = jnp.linalg.slogdet(inner)[1] + (dimension - num_latents) * jnp.log(noise_variance)
    explained = jnp.trace(jnp.linalg.solve(inner, latents.T @ (gram @ latents)))
    return -0.5 * freedom * log_det - 0.5 * (jnp.trace(gram) - explained) / noise_variance
