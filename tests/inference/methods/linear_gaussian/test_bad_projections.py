"""What a user can get wrong with projections: one clear message each, from `fit` or a model's check."""

import numpy as np
import pytest
import scipy.sparse

from inference import fit
from zoo import DEPCAM, EPCA, PPCA, SPPCA, KernelPCA, Paired
from zoo.kernels import RBF

X = np.random.default_rng(0).normal(size=(12, 4))
Y = np.random.default_rng(1).normal(size=(12, 2))
INDEFINITE = np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


def with_(table, rows, columns, value):
    """A copy with some cells changed."""
    changed = table.copy()
    changed[rows, columns] = value
    return changed


ALL = slice(None)
WITH_NAN = scipy.sparse.csr_array(with_(np.eye(12, 4) + 1, 3, 2, np.nan))
ONE = ["a", "b"] * 5 + ["a", "c"]
GRAM = {"num_latents": 2, "kernel": "precomputed", "noise_variance_x": 0.1}
CASES = {
    "PPCA, K = N": (PPCA(num_latents=3), (X[:3],), "below the number of rows, 3; got 3: .*=2 or less"),
    "PPCA, prior of one row": (PPCA(loading_prior="ard"), (X[:1],), "at least 2 rows .*no variance.*got 1"),
    "PPCA, prior of no variance": (PPCA(loading_prior="gaussian"), (X * 0,), "column 0 of x is constant"),
    "PPCA, K = M": (PPCA(num_latents=4), (X,), "below the number of columns, 4; got 4"),
    "PPCA, one column": (PPCA(num_latents=1), (X[:, :1],), "a projection needs at least 2 columns; got 1"),
    "PPCA, constant": (PPCA(), (with_(X, ALL, 1, 5.0),), r"column 1 of x is constant \(5.0\)"),
    "PPCA, empty row": (PPCA(), (with_(X, 7, ALL, np.nan),), "row 7 of x is missing in all columns"),
    "PPCA, empty column": (PPCA(), (with_(X, ALL, 2, np.nan),), "column 2 of x is missing in all rows"),
    "PPCA, sparse NaN": (PPCA(), (WITH_NAN,), "row 3, column 2 is nan"),
    "SPPCA, K = N": (SPPCA(num_latents=3), (X[:3], Y[:3]), "below the number of rows, 3; got 3"),
    "SPPCA, K = M": (SPPCA(num_latents=4), (X, Y), "below the number of columns of x, 4; got 4"),
    "SPPCA, no output": (SPPCA(), (X, np.full((12, 2), np.nan)), "every cell of y is missing.*zoo.PPCA"),
    "SPPCA, no label": (SPPCA(), (X, [None] * 12), "every label of y is missing.*zoo.PPCA"),
    "SPPCA, one example": (SPPCA(), (X, ONE), "class 'c' of y has one example, row 11"),
    "SPPCA, constant x": (SPPCA(), (with_(X, ALL, 0, 1.0), Y), "column 0 of x is constant"),
    "SPPCA, constant y": (SPPCA(), (X, with_(Y, ALL, 1, 1.0)), "column 1 of y is constant"),
    "SPPCA, empty row": (
        SPPCA(),
        (with_(X, 4, ALL, np.nan), with_(Y, 4, ALL, np.nan)),
        "row 4 has no observed",
    ),
    "SPPCA, empty column": (SPPCA(), (with_(X, ALL, 3, np.nan), Y), "column 3 of x is missing in all rows"),
    "SPPCA, empty output": (SPPCA(), (X, with_(Y, ALL, 0, np.nan)), "column 0 of y is missing in all rows"),
    "SPPCA, other rows": (SPPCA(), (X, Y[:9]), "same rows; x has 12 and y has 9"),
    "SPPCA, sparse NaN": (SPPCA(), (WITH_NAN, Y), "row 3, column 2 is nan"),
    "SPPCA, skew Gram": (SPPCA(**GRAM), (X[:4] + np.arange(4), Y[:4]), "must be symmetric"),
    "SPPCA, indefinite": (SPPCA(**GRAM), (INDEFINITE, Y[:3]), "positive semi-definite"),
    "SPPCA, RBF": (SPPCA(kernel=RBF(1.0)), (X, Y), "infinitely many dimensions.*give noise_variance_x"),
    "kernel PCA, K = N": (KernelPCA(num_latents=12), (X,), "below the number of rows, 12; got 12"),
    "kernel PCA, skew Gram": (
        KernelPCA(kernel="precomputed", noise_variance=0.1),
        (X[:4] + np.arange(4),),
        "must be symmetric",
    ),
    "kernel PCA, indefinite": (
        KernelPCA(num_latents=1, kernel="precomputed", noise_variance=0.1),
        (INDEFINITE,),
        "positive semi-definite",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_clear_message(case):
    model, data, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        fit(model, *data, method="em")


ROW_TAKERS = {
    "ppca": (PPCA(), 1),
    "sppca": (SPPCA(), 2),
    "kernel_pca": (KernelPCA(num_latents=1), 1),
    "epca": (EPCA(family="gaussian", num_latents=1), 1),
    "paired": (Paired(families=("gaussian", "gaussian"), num_specific=(0, 0)), 2),
    "depcam": (DEPCAM(family="gaussian", num_components=1, num_latents=1), 1),
}


@pytest.mark.parametrize("num_rows", [0, 1])
@pytest.mark.parametrize("name", ROW_TAKERS)
def test_one_row_is_no_projection(name, num_rows):
    """Nor are none, and nobody is told to ask for no latents; every model of columns that projects."""
    model, num_parts = ROW_TAKERS[name]
    with pytest.raises(ValueError, match=f"at least 2 rows.*got {num_rows}$"):
        model.check(*(X[:num_rows], Y[:num_rows])[:num_parts])


def test_an_infinite_dimensional_kernel_needs_its_noise():
    with pytest.raises(ValueError, match="noise_variance must be given with the kernel RBF"):
        KernelPCA(kernel="rbf")
