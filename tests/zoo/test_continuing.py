"""A fit that goes on with other rows has the prior that was read off the former ones."""

import jax
import numpy as np
import pytest

import zoo
from zoo.conjugate import GaussianWishart, NormalGamma, PoissonGamma
from zoo.exponential_family import Gaussian
from zoo.fields import continuing
from zoo.kernels import RBF

X = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 5.0, 0.2] + 4.0
COUNTS = np.random.default_rng(1).poisson(3.0, size=(30, 3)).astype(float)
OPEN = Gaussian(noise_variance=None)
CASES = {
    "mixture": (zoo.Mixture(), (X,)),
    "mixture with a prior given in part": (zoo.Mixture(GaussianWishart(mean_precision=0.5)), (X,)),
    "mixture of independent columns": (zoo.Mixture(NormalGamma()), (X,)),
    "mixture of counts": (zoo.Mixture(PoissonGamma()), (COUNTS,)),
    "epca": (zoo.EPCA(family=OPEN), (X,)),
    "epca standardised": (zoo.EPCA(family=OPEN, standardize=True), (X,)),
    "epca of sizes": (zoo.EPCA(family="exponential"), (np.abs(X),)),
    "epca with a kernel": (zoo.EPCA(family="poisson", beta=0.5), (COUNTS,)),
    "paired": (zoo.Paired(families=(OPEN, "poisson")), (X, COUNTS)),
    "depcam": (zoo.DEPCAM(family=OPEN), (X,)),
    "depcam with ard": (zoo.DEPCAM(family=OPEN, scale_prior="ard", standardize=True), (X,)),
    "mcfa": (zoo.MCFA(), (X,)),
    "kernel pca": (zoo.KernelPCA(kernel="rbf", noise_variance=0.1), (X,)),
    "sppca in a feature space": (zoo.SPPCA(kernel=RBF(), noise_variance_x=0.1), (X, X[:, :1])),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_read_off_the_former_rows_is_kept(name):
    """Every number of the model; planted: without the former the numbers are those of the new rows."""
    model, data = CASES[name]
    former = model.with_sizes_from(*data)
    more = tuple(part[5:20] for part in data)
    again = continuing(model, former).with_sizes_from(*more)
    kept, read = (jax.tree.leaves(own) for own in (again, former))
    assert len(kept) == len(read) and all(map(np.array_equal, kept, read))
    fresh = jax.tree.leaves(model.with_sizes_from(*more))
    assert not all(map(np.array_equal, fresh, read))


def test_nothing_is_kept_where_it_would_be_read_otherwise():
    former = zoo.EPCA.from_data(X, family=OPEN, standardize=True)
    assert continuing(zoo.EPCA(family=OPEN), former).unit is None
    poisson = zoo.Mixture.from_data(COUNTS, components=PoissonGamma())
    assert continuing(zoo.Mixture(), poisson).components is None
