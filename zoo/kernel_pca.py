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
vanish, so that not "any such" s2 leads to (5.18), as section 5.2.2 says.

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
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro import sample

from zoo import checks
from zoo.coordinates import Freedom, Unit
from zoo.fields import flag, part, positive, scale_of, whole
from zoo.kernels import Kernel, as_kernel
from zoo.kernels.answers import KernelPCAAnswers
from zoo.kernels.gram import announce_cost, centred_matrix, check_gram, gram_score
from zoo.linear_gaussian.rows import flat
from zoo.model import Model, Roles, Table
from zoo.programs import local
from zoo.shapes import Rows

GRAM = 'of sparse rows give the Gram matrix, ({name} @ {name}.T).toarray(), with kernel="precomputed"'


OF_KERNEL: dict[str, Any] = {
    "convert": as_kernel,
    "fill": lambda model, x: model.kernel.filled(x.rows),
}


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

    num_latents: int = whole(2)
    kernel: Kernel = part("linear", **OF_KERNEL)
    noise_variance: Array | None = positive()
    degrees_of_freedom: Array | None = positive()
    latent_variance: Array | None = positive()
    standardize: bool = flag(inside=False)
    column_scale: Array | None = scale_of()

    def program(self, x: Rows, rows: numpyro.plate) -> None:
        """Coordinates of each row; then the score of the Gram matrix."""
        gram, noise = centred_matrix(self.kernel, x), self.sample_noise()
        with rows:
            z = local("latents", self.latents_prior(), sums_out=False)
        numpyro.deterministic("explained_variances", jnp.linalg.eigvalsh(z.T @ z)[::-1])
        dimension, freedom = self.score_dimension(*x.shape), self.freedom(rows.size)
        numpyro.factor("gram", gram_score(z, noise, gram, freedom, dimension))

    def sample_noise(self) -> Array:
        """The variance of the noise.

        Returns:
            A scalar: the field, or a site with a flat prior.
        """
        given = self.noise_variance
        return sample("noise_variance", flat(positive=True)) if given is None else given

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

    data = (Table("x", missing=False, dense=GRAM, needs=2, latents=("rows",), weight=0.0),)
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
    # variances have no unit where kernels have none, the only ones that draws allow
    roles = Roles(latent="latents", unit_free=("explained_variances",))
    answers = KernelPCAAnswers

    @property
    def units(self) -> Mapping[str, Unit]:
        """Rows, fitted ones too."""
        rows = Unit(1, (-1,), is_location=True)
        return {"x": rows, "fitted_x": rows}

    @property
    def coordinate_freedom(self) -> tuple[Freedom | None]:
        """Any origin where the kernel ignores it; a scale belongs to the kernel."""
        return (Freedom("columns" if self.standardize else None, self.kernel.is_shift_invariant),)

    @property
    def scale_remedies(self) -> tuple[str]:
        """`standardize`, if the kernel weighs columns alike, as a linear one and an RBF of one length do."""
        is_alike = self.kernel.weighs_columns_alike and not self.standardize
        return ("give standardize=True" if is_alike else "",)

    @property
    def prior(self) -> str:
        """``"improper"``: a kernel without rows cannot be drawn from."""
        return "improper"

    def validate(self) -> None:
        """Raise ValueError if the kernel does not go with other fields."""
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

    def check(self, x: Rows) -> None:
        """Raise ValueError if ``x`` does not suit the model; announce the cost of a large Gram matrix."""
        super().check(x)
        num_rows, num_features = np.shape(x)
        if self.kernel.is_precomputed:
            check_gram(checks.as_matrix(x))
        if self.noise_variance is None and self.num_latents >= self.kernel.feature_dimension(num_features):
            raise ValueError(
                f"num_latents must be below the dimension of the feature space, "
                f"{self.kernel.feature_dimension(num_features)}, or no noise is left to estimate; "
                f"got {self.num_latents}: lower it, or give noise_variance"
            )
        announce_cost(num_rows)
