"""Every model by every method at tiny size, for the relations that must hold.

A case is a function of the data that makes the model, so that priors are read off whatever the relation makes
of the data. Tables share their shapes, so that relations share compiled programs.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

import zoo
from inference.calibration.relation_changes import RELATIONS
from zoo.conjugate import BernoulliBeta, ExponentialGamma, MultinomialDirichlet, NormalGamma, PoissonGamma
from zoo.coordinates.of_models import is_stated
from zoo.exponential_family import Gaussian
from zoo.exponential_family.cells import has_units
from zoo.kernels import Polynomial, Precomputed

_rng = np.random.default_rng(20)
X = _rng.normal(size=(20, 2)) @ _rng.normal(size=(2, 4)) + 0.4 * _rng.normal(size=(20, 4)) + [3.0, 0, -2, 1]
Y = np.column_stack([X[:, 0] - X[:, 1], X[:, 2]]) + 0.3 * _rng.normal(size=(20, 2))
BITS = (X > np.median(X, axis=0)).astype(float)
COUNTS = _rng.poisson(_rng.gamma(0.6, 2.0, size=(20, 6)))
COUNTS[:, 0] += 1
LABELS = np.array(["ash", "birch", "cedar"])[np.argsort(np.argsort(Y[:, 0])) * 3 // 20]
POSITIVE = np.exp(X / 4)

PATH = {"max_iterations": 4, "tolerance": 0.0, "num_samples": 4}
TOP = {"max_iterations": 2000, "tolerance": 0.0, "num_samples": 4}
#: Two ways to one top, which both are at long before: by one way all of LDA's and PCP's passes are made.
NEAR_TOP = TOP | {"max_iterations": 500}
#: Runs of SVI that are compared in distribution: near the optimum, where the data decide.
RUNS = {"max_iterations": 500, "tolerance": 0.0, "num_samples": 20, "step_size": 0.05}
#: Chains that are compared in distribution, which is the same on both sides after any number of steps.
GIBBS = {"num_chains": 32, "num_warmup": 20, "num_samples": 5}
_SHORT = {"num_chains": 32, "num_warmup": 60, "num_samples": 10}
HAMILTONIAN = {"nuts": _SHORT | {"max_tree_depth": 5}, "hmc": _SHORT | {"num_steps": 8}}
CHAINS = {"num_chains": 2, "num_warmup": 4, "num_samples": 4}
#: The path of a few steps is compared; two of these relations are of where it ends.
AT_THE_TOP = ("batches", "fitted_rows")


class Case(NamedTuple):
    """A form of a model, and data for it."""

    make: object
    data: tuple
    methods: tuple[str, ...]


def _components(family):
    return lambda x: zoo.Mixture(components=family.from_data(x), num_components=3, concentration=1.0)


def _flat_ppca(**fields):
    return lambda x: zoo.PPCA(num_latents=2, **fields)


_PROPER = {"loading_prior": "gaussian"}
_SAMPLERS = ("nuts", "hmc", "svi")

CASES = {
    "mixture": Case(
        lambda x: zoo.Mixture(num_components=3, concentration=1.0),
        (X,),
        ("vb", "gibbs", "collapsed_gibbs", "em", *_SAMPLERS),
    ),
    "mixture of cells": Case(_components(NormalGamma), (X,), ("vb", "gibbs", "collapsed_gibbs", "em")),
    "mixture of bits": Case(_components(BernoulliBeta), (BITS,), ("vb", "gibbs", "collapsed_gibbs", "em")),
    "mixture of waits": Case(_components(ExponentialGamma), (POSITIVE,), ("vb", "gibbs", "em")),
    "mixture of counts": Case(_components(PoissonGamma), (COUNTS,), ("vb", "gibbs")),
    "mixture of documents": Case(_components(MultinomialDirichlet), (COUNTS,), ("vb", "gibbs", "em")),
    "ppca": Case(_flat_ppca(), (X,), ("closed_form", "em")),
    "factor analysis": Case(_flat_ppca(noise="diagonal"), (X,), ("em",)),
    "ppca of student rows": Case(_flat_ppca(degrees_of_freedom=4.0), (X,), ("em",)),
    "ppca of student rows with priors": Case(
        _flat_ppca(degrees_of_freedom=4.0, **_PROPER), (X,), ("vb", "gibbs", "nuts")
    ),
    "ppca with priors": Case(_flat_ppca(**_PROPER), (X,), ("vb", "gibbs", *_SAMPLERS)),
    "ppca with ard": Case(_flat_ppca(loading_prior="ard"), (X,), ("vb", "nuts")),
    "kernelpca": Case(lambda x: zoo.KernelPCA(num_latents=2), (X,), ("closed_form", "em")),
    "kernelpca of rbf": Case(
        lambda x: zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.05),
        (X,),
        ("closed_form", "em"),
    ),
    "kernelpca with priors": Case(
        lambda x: zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.05, latent_variance=0.5),
        (X,),
        _SAMPLERS,
    ),
    "sppca": Case(lambda x, y: zoo.SPPCA(num_latents=2), (X, Y), ("em", "closed_form", "morp", "kernel_cca")),
    "sppca of rbf": Case(
        lambda x, y: zoo.SPPCA(num_latents=2, kernel="rbf", noise_variance_x=0.2), (X, Y), ("em",)
    ),
    "sppca with priors": Case(lambda x, y: zoo.SPPCA(num_latents=2, **_PROPER), (X, Y), ("vb", *_SAMPLERS)),
    "sppca of classes": Case(lambda x, y: zoo.SPPCA(num_latents=2), (X, LABELS), ("em",)),
    "sppca of probit classes": Case(
        lambda x, y: zoo.SPPCA(num_latents=2, output_likelihood="probit", **_PROPER),
        (X, LABELS),
        ("gibbs", "ep"),
    ),
    "epca": Case(
        lambda x: zoo.EPCA(family="bernoulli", num_latents=2, loc_variance=1.0, beta=0.5),
        (BITS,),
        ("map", "gibbs", "vb", *_SAMPLERS),
    ),
    "epca of numbers": Case(
        lambda x: zoo.EPCA(family="gaussian", num_latents=2), (X,), ("map", "gibbs", "vb")
    ),
    "epca of unknown noise": Case(
        lambda x: zoo.EPCA(family=Gaussian(noise_variance=None), num_latents=2), (X,), ("vb", "map")
    ),
    "epca of counts": Case(lambda x: zoo.EPCA(family="poisson", num_latents=2), (COUNTS,), ("map", "vb")),
    "paired": Case(
        lambda a, b: zoo.Paired.ecca(("bernoulli", "bernoulli"), 1, (1, 0), loc_variance=1.0, beta=0.5),
        (BITS[:, :2], BITS[:, 2:]),
        ("map", "gibbs", "vb", *_SAMPLERS),
    ),
    "paired of numbers": Case(
        lambda a, b: zoo.Paired.ecca(("gaussian", "gaussian"), 1, (0, 0)),
        (X[:, :2], X[:, 2:]),
        ("closed_form", "vb"),
    ),
    "paired with full covariances": Case(
        lambda a, b: zoo.Paired(
            families=(Gaussian(noise_variance=None),) * 2,
            num_shared=1,
            num_specific=(0, 0),
            specific="full_covariance",
        ),
        (X[:, :2], X[:, 2:]),
        ("vb", "gibbs"),
    ),
    "depcam": Case(
        lambda x: zoo.DEPCAM(num_components=2, num_latents=1, offset_variance=1.0, concentration=2.0),
        (BITS,),
        ("em", "vb", "map", *_SAMPLERS),
    ),
    "depcam of unknown noise": Case(
        lambda x: zoo.DEPCAM(family=Gaussian(noise_variance=None), num_components=2, num_latents=1),
        (X,),
        ("em", "vb"),
    ),
    "mcfa": Case(lambda x: zoo.MCFA(num_components=3, num_latents=2), (X,), ("vb", "gibbs", *_SAMPLERS)),
    "lda": Case(
        lambda counts: zoo.LDA(num_topics=2), (COUNTS,), ("vb", "collapsed_gibbs", "gibbs", *_SAMPLERS)
    ),
    "plsi": Case(lambda counts: zoo.PLSI(num_topics=2), (COUNTS,), ("em", *_SAMPLERS)),
    "pcp": Case(
        lambda counts: zoo.PCP(num_topics=2, num_clusters=3),
        (COUNTS,),
        ("vb", "collapsed_gibbs", "gibbs", *_SAMPLERS),
    ),
}


UNITS = ("shifted", "rescaled", "other_units")
MISSING = ("masked_array", "frame_nan", "frame_na", "row_masked")
_OF_UNITS = "no: priors have a unit, but those of unknown noise by default"
_IN_ITS_UNITS = "same, predictions in the new unit, objective up to a constant"
_OPTIMA, _PASSES = (
    "same where it ends, to the root of single precision",
    "to the tolerance of passes over documents",
)
_VOCABULARY = "no: the prior gives every word of the vocabulary a share"
_NOISY = "no: steps on batches are noisy, and end near the optimum of the whole"


def _no_cell_missing(method):
    return dict.fromkeys(MISSING, f"no: method {method!r} needs every cell")


def _of_mixture(model, method):
    yield True, {"row_masked": "same as a row of NaN"}
    is_shared = any(own and own.scale == "common" for own in model.coordinate_freedom)
    yield is_shared, {"columns_rescaled": "no: one variance for all columns"}
    new = "same in any order; stored are others: those of q, where new rows have predictive ones"
    yield method == "vb", {"fitted_rows": new}


def _of_local_pca(model, method):
    yield True, dict.fromkeys(UNITS, _OF_UNITS) | {"float32": _OPTIMA}
    free = ("columns_rescaled",) * model.standardize + ("shifted", "other_units") * model.offset
    read = "same where priors are read off the data, objective up to a constant"
    yield model.family.learns_noise, dict.fromkeys(("rescaled", *free), read)
    many = "no: there are many optima, and rounding decides which one is reached"
    yield method == "map", {"float32": many}
    last = "same as stored where it ends: the bounds of its cells are those of the last step"
    yield method == "vb", {"fitted_rows": last}


def _of_projections(model, method):
    yield True, dict.fromkeys(UNITS, _OF_UNITS) | {"float32": _OPTIMA}
    own = model.own_coordinates if model.unit is not None else None
    by_column = ("columns_rescaled",) * model.standardize
    is_bound = method in ("vb", "svi")
    said = "same, predictions in the new unit" if is_bound else _IN_ITS_UNITS
    yield (
        own is not None and all(map(has_units, model.part_families)),
        dict.fromkeys((*UNITS, *by_column), said),
    )


def _of_epca(model, method):
    yield from _of_projections(model, method)
    is_rate = is_stated(model) and model.is_negative and not model.family.is_mixed
    yield is_rate, dict.fromkeys(("rescaled", "columns_rescaled"), _IN_ITS_UNITS)


def _of_paired(model, method):
    yield from _of_projections(model, method)
    views = {"views_exchanged": "same, views in the new order"}
    yield True, views | {"row_masked": "same as a row of NaN in that view"}
    is_full = model.specific == "full_covariance"
    if method == "closed_form":  # a maximum of the likelihood, which no prior holds in its unit
        yield True, _no_cell_missing(method) | {"float32": "same"}
        yield True, {"shifted": "same, predictions in the new units"}
        given = "no: a noise variance is given in the units of the data"
        learns = all(family.learns_noise for family in model.families)
        yield (
            True,
            dict.fromkeys(
                ("rescaled", "other_units"), "same, predictions in the new unit" if learns else given
            ),
        )
        yield is_full, dict.fromkeys((*UNITS, "columns_rescaled"), "same, predictions in the new units")
    rows = "no: vb of full covariances takes rows of a view that are whole or missing"
    yield method == "vb" and is_full, dict.fromkeys(MISSING[:3], rows)


def _of_kernel_pca(model, method):
    given = model.noise_variance is not None or model.latent_variance is not None
    in_units = "no: a variance is given in the unit of the kernel"
    yield model.kernel.has_unit and given, dict.fromkeys(("rescaled", "other_units"), in_units)
    new = "no: draws of the latents have no coefficients to project new rows with"
    yield method in _SAMPLERS, {"fitted_rows": new}
    has_origin = isinstance(model.kernel, Polynomial | Precomputed)
    yield has_origin, dict.fromkeys(("shifted", "other_units"), "no: the kernel has an origin")
    yield model.standardize, {"columns_rescaled": "same"}


def _of_sppca(model, method):
    yield True, {"classes_reordered": "same, outputs in the new order", "sparse": "same where it ends"}
    scaled = ("rescaled", "other_units")
    yield method == "ep", {"classes_reordered": "same, outputs in the new order, to the error of quadrature"}
    yield method in ("em", "ep") and model.prior == "proper", dict.fromkeys(scaled, _IN_ITS_UNITS)
    has_inputs = model.kernel is None or model.kernel.linear_scale is not None  # with a density
    yield not has_inputs, dict.fromkeys(scaled, "same, density of y alone")
    yield model.kernel is not None, {"sparse": "no: a kernel takes dense rows, or their Gram matrix"}
    yield (
        method in ("closed_form", "morp", "kernel_cca"),
        dict.fromkeys(MISSING, f"no: method {method!r} needs every cell of x"),
    )
    yield method == "morp", dict.fromkeys(scaled, "same, scores in the new unit")
    yield model.label_coding == "reduced", {"classes_reordered": "no: the last class has no column"}
    yield model.classes is None, {"classes_reordered": "no: the outputs are numbers"}


def _of_topics(model, method):
    yield (
        True,
        {
            zoo.LDA: {
                "batches": _NOISY,
                "empty_document": "same, and its shares are the prior's",
                "unused_word": _VOCABULARY,
                "fitted_rows": f"same as stored, {_PASSES}",
            },
            zoo.PCP: {
                "batches": _NOISY,
                "empty_document": "no: an empty document joins a cluster, whose label is one more factor",
                "unused_word": _VOCABULARY,
            },
            zoo.PLSI: {
                "empty_document": "same",
                "unused_word": "same, with probability 0"
                if method == "em"
                else "no: under a flat prior every word of the vocabulary has a share in a draw",
                "fitted_rows": f"same as stored, {_PASSES}",
            },
        }[type(model)],
    )


#: What happens where units and cells of the model do not tell: (condition, phrases), of which the last holds.
_SAID = {
    zoo.Mixture: _of_mixture,
    zoo.PPCA: lambda model, method: [(method == "closed_form", _no_cell_missing(method))],
    zoo.MCFA: lambda model, method: [],
    zoo.KernelPCA: _of_kernel_pca,
    zoo.SPPCA: _of_sppca,
    zoo.EPCA: _of_epca,
    zoo.Paired: _of_paired,
    zoo.DEPCAM: _of_local_pca,
    zoo.LDA: _of_topics,
    zoo.PLSI: _of_topics,
    zoo.PCP: _of_topics,
}


def relation_of(model, method, name):
    """The relation by its name, with what happens to a fit of this model by this method."""
    relation = RELATIONS[name]
    for holds, phrases in _SAID[type(model)](model, method):
        if holds and name in phrases:
            relation = dataclasses.replace(relation, said=phrases[name])
    return relation


def options_of(method, relation, said=""):
    """The options of `fit` for a method and a relation, by name; what the table says of them."""
    if method in ("gibbs", "collapsed_gibbs", "nuts", "hmc"):
        if RELATIONS[relation].keeps_draws and (
            method in ("gibbs", "collapsed_gibbs") or not RELATIONS[relation].in_units
        ):
            return CHAINS
        return GIBBS if method.endswith("gibbs") else HAMILTONIAN[method]
    if method in ("closed_form", "morp", "kernel_cca"):
        return {}
    if method == "svi":
        is_matched = RELATIONS[relation].keeps_draws and not RELATIONS[relation].in_units
        return PATH if is_matched else RUNS
    if "tolerance of passes" in said and method == "vb":  # all passes over documents, in every step
        return NEAR_TOP | {"inner_tolerance": 0.0}
    if "where it ends" in said:
        return TOP
    return NEAR_TOP if relation in AT_THE_TOP else PATH
