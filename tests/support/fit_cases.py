"""Small fits of every model by every method and by the ways through ``fit``, and what tells them apart.

Each is a name in ``CASES``; ``fitted`` runs it, always with the same numbers, and ``outline`` makes of its
groups a few numbers, which are compared to rounding.
"""

import json
import os
import signal
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer import init_to_uniform
from numpyro.infer.util import compute_log_probs

import inference
import zoo
from inference.coordinates import inward
from inference.methods import FOR_EVERY_MODEL
from inference.precision import in_precision
from tests.support import relation_cases
from tests.support.fit_requests import request_of
from tests.tools.recording import REFERENCE
from zoo.answers import completions_of
from zoo.exponential_family import Gaussian

GROUPS = (
    "posterior",
    "variational",
    "trace",
    "sample_stats",
    "log_likelihood",
    "observed_data",
    "constant_data",
)
CHAINS = {"num_chains": 2, "num_warmup": 10, "num_samples": 15}
PLAIN = {"split_merge": 0}  # a blocked sweep of a mixture without moves, which compiles sooner
STEPS = {"max_iterations": 8, "tolerance": 0, "num_samples": 10}
SETTINGS = {
    **dict.fromkeys(("gibbs", "collapsed_gibbs", "tempered"), CHAINS),
    **dict.fromkeys(("nuts", "hmc"), CHAINS | {"num_warmup": 12, "num_samples": 8}),
    **dict.fromkeys(("closed_form", "morp", "kernel_cca"), {}),
}

_rng = np.random.default_rng(20)
X = _rng.normal(size=(30, 2)) @ _rng.normal(size=(2, 4)) + 0.4 * _rng.normal(size=(30, 4)) + [3.0, 0, -2, 1]
Y = X[:, :1] - X[:, 1:2] + 0.3 * _rng.normal(size=(30, 1))
HOLES = np.where(_rng.uniform(size=X.shape) < 0.1, np.nan, X)
HALF = np.where(np.arange(30)[:, None] < 20, Y, np.nan)
BITS = (X > X.mean(0)).astype(float)
LABELS = (Y > Y.mean()).astype(float)
COUNTS = _rng.poisson(_rng.gamma(0.6, 2.0, size=(24, 9)))
COUNTS[:, 0] += 1
WEIGHT = _rng.uniform(0.5, 2.0, size=30)
PROPER = {"loading_prior": "gaussian", "noise_concentration": 2.0, "noise_rate": 1.0}


def _mixture(**fields):
    return lambda: zoo.Mixture.from_data(X, num_components=4, concentration=1.0, **fields)


def _lda(**fields):
    return lambda: zoo.LDA.from_data(COUNTS, num_topics=3, **fields)


def _pcp(**fields):
    return lambda: zoo.PCP.from_data(COUNTS, num_topics=3, num_clusters=4, **fields)


def _ppca(**fields):
    return lambda: zoo.PPCA(num_latents=2, **fields)


_ppca_proper = _ppca(loc_mean=np.zeros(4), loc_variance=4.0, **PROPER)

_ppca_student = _ppca(loc_mean=np.zeros(4), loc_variance=4.0, degrees_of_freedom=4.0, **PROPER)


def _sppca(**fields):
    return lambda: zoo.SPPCA(num_latents=2, **fields)


_sppca_proper = _sppca(loading_variance=1.0, loc_variance=4.0, **PROPER)
_probit = _sppca(loading_variance=1.0, loc_variance=4.0, output_likelihood="probit", **PROPER)


def _kernel_pca(**fields):
    return lambda: zoo.KernelPCA(num_latents=2, kernel="rbf", noise_variance=0.05, **fields)


def _epca(family="bernoulli", **fields):
    return lambda: zoo.EPCA(family=family, num_latents=2, loc_variance=1.0, **fields)


def _ecca(families=("bernoulli", "bernoulli"), **fields):
    return lambda: zoo.Paired.ecca(families, 1, (1, 1), loc_variance=1.0, **fields)


def _depcam(**fields):
    return lambda: zoo.DEPCAM(num_components=2, num_latents=1, repulsion=1.0, sparsity=1.0, **fields)


def _mcfa(**fields):
    return lambda: zoo.MCFA(num_components=2, num_latents=1, weight_prior="stick_breaking", **fields)


def _sparse_matrix():
    from scipy import sparse

    return sparse.csr_matrix(np.where(np.abs(X) > 1, X, 0))


_PAIR = (BITS[:, :2], BITS[:, 2:])
_WORDS = ("ball", "goal", "team", "engine", "wheel", "road", "tree", "leaf", "root")
_TEXTS = [" ".join(word for word, n in zip(_WORDS, row, strict=True) for _ in range(n)) for row in COUNTS]

# name: model, data, method, options beyond the settings of the method
CASES = {
    **{
        f"mixture {m}": (_mixture(), (X,), m, PLAIN if m == "gibbs" else {})
        for m in ("vb", "gibbs", "collapsed_gibbs", "em", "nuts", "hmc", "svi")
    },
    "mixture tempered": (_mixture(), (X,), "tempered", {"num_temperatures": 3, "split_merge": 1}),
    **{f"ppca {m}": (_ppca(), (X,), m, {}) for m in ("closed_form", "em")},
    **{f"ppca {m}": (_ppca_proper, (X,), m, {}) for m in ("vb", "gibbs", "nuts", "hmc", "svi")},
    **{f"kernelpca {m}": (_kernel_pca(), (X,), m, {}) for m in ("closed_form", "em")},
    **{f"kernelpca {m}": (_kernel_pca(latent_variance=0.5), (X,), m, {}) for m in ("nuts", "hmc", "svi")},
    **{f"sppca {m}": (_sppca_proper, (X, Y), m, {}) for m in ("em", "vb", "nuts", "hmc", "svi")},
    **{f"sppca {m}": (_sppca(center="plugin"), (X, Y), m, {}) for m in ("closed_form", "morp")},
    "sppca kernel_cca": (lambda: zoo.SPPCA(num_latents=1), (X, Y), "kernel_cca", {}),
    **{f"sppca {m}": (_probit, (X, LABELS), m, {}) for m in ("gibbs", "ep")},
    **{f"epca {m}": (_epca(beta=0.5), (BITS,), m, {}) for m in ("map", "gibbs", "vb", "nuts", "hmc", "svi")},
    **{f"paired {m}": (_ecca(beta=0.5), _PAIR, m, {}) for m in ("map", "gibbs", "vb", "nuts", "hmc", "svi")},
    "paired closed_form": (
        lambda: zoo.Paired.ecca(("gaussian", "gaussian"), 1, (0, 0)),
        (X[:, :2], X[:, 2:]),
        "closed_form",
        {},
    ),
    **{
        f"depcam {m}": (_depcam(offset_variance=1.0, concentration=2.0), (BITS,), m, {})
        for m in ("em", "vb", "map", "nuts", "hmc", "svi")
    },
    **{f"mcfa {m}": (_mcfa(), (X,), m, {}) for m in ("vb", "gibbs", "map", "nuts", "hmc", "svi")},
    **{
        f"lda {m}": (_lda(), (COUNTS,), m, {})
        for m in ("vb", "collapsed_gibbs", "gibbs", "nuts", "hmc", "svi")
    },
    **{f"plsi {m}": (lambda: zoo.PLSI(num_topics=3), (COUNTS,), m, {}) for m in ("em", "nuts", "hmc", "svi")},
    **{
        f"pcp {m}": (_pcp(), (COUNTS,), m, {})
        for m in ("vb", "collapsed_gibbs", "gibbs", "nuts", "hmc", "svi")
    },
    # The ways through the driver
    "mixture vb converged": (_mixture(), (X,), "vb", {"max_iterations": 500, "tolerance": 1e-6}),
    "mixture vb restarts": (_mixture(), (X,), "vb", {"num_restarts": 3}),
    "mixture vb moves": (
        _mixture(),
        (X,),
        "vb",
        {"moves": ("merge", "birth"), "max_iterations": 60, "tolerance": 1e-4},
    ),
    "mixture vb weights": (_mixture(), (X,), "vb", {"sample_weight": WEIGHT}),
    "mixture vb learn": (
        _mixture(),
        (X,),
        "vb",
        {"learn": ("concentration", "loc", "scale_matrix"), "max_iterations": 15},
    ),
    "mixture vb batches": (_mixture(), (X,), "vb", {"batch_size": 12}),
    "mixture vb chunks": (_mixture(), ("chunks",), "vb", {"batch_size": 12}),
    "mixture vb devices": (_mixture(), (X,), "vb", {"num_devices": 2}),
    "mixture vb float32": (_mixture(), (X,), "vb", {"dtype": "float32"}),
    "mixture vb kmeans": (_mixture(), (X,), "vb", {"init": "kmeans"}),
    "mixture vb dict": (_mixture(), (X,), "vb", {"init": {"responsibilities": np.eye(4)[np.arange(30) % 4]}}),
    "mixture em restarts": (_mixture(), (X,), "em", {"num_restarts": 3}),
    "mixture gibbs sequential": (_mixture(), (X,), "gibbs", PLAIN | {"chain_method": "sequential"}),
    "mixture gibbs parallel": (_mixture(), (X,), "gibbs", PLAIN | {"chain_method": "parallel"}),
    "mixture gibbs thinning": (_mixture(), (X,), "gibbs", PLAIN | {"thinning": 3}),
    "mixture gibbs resumed": (_mixture(), (X,), "gibbs", PLAIN | {"resumed": True, "num_samples": 4000}),
    "mixture vb resumed": (_mixture(), (X,), "vb", {"resumed": True, "max_iterations": 400_000}),
    "mixture nuts from vb": (_mixture(), (X,), "nuts", {"init": "mixture vb"}),
    "mixture dirichlet gibbs": (_mixture(weight_prior="dirichlet"), (X,), "gibbs", PLAIN),
    "mixture bernoulli vb": (
        lambda: zoo.Mixture.from_data(
            BITS, components=zoo.conjugate.BernoulliBeta.from_data(BITS), num_components=3
        ),
        (BITS,),
        "vb",
        {},
    ),
    "mixture multinomial vb": (
        lambda: zoo.Mixture.from_data(
            COUNTS, components=zoo.conjugate.MultinomialDirichlet.from_data(COUNTS), num_components=3
        ),
        (COUNTS,),
        "vb",
        {},
    ),
    "ppca em holes": (_ppca(), (HOLES,), "em", {}),
    "ppca vb ard": (
        _ppca(
            loading_prior="ard",
            loc_mean=np.zeros(4),
            loc_variance=4.0,
            noise_concentration=2.0,
            noise_rate=1.0,
        ),
        (HOLES,),
        "vb",
        {"num_restarts": 2},
    ),
    **{f"ppca {m} student": (_ppca_student, (HOLES,), m, {}) for m in ("em", "vb", "gibbs")},
    "sppca em half": (_sppca(), (X, HALF), "em", {}),
    "sppca em kernel": (_sppca(kernel="rbf", noise_variance_x=0.2), (X, Y), "em", {}),
    "sppca em sparse": (_sppca(), ("sparse", Y), "em", {}),
    "epca poisson map": (_epca("poisson"), (np.round(np.abs(X)),), "map", {"num_restarts": 2}),
    "epca gaussian gibbs": (_epca("gaussian"), (X,), "gibbs", {}),
    "paired gaussian vb": (_ecca(("gaussian", "bernoulli")), (X[:, :2], BITS[:, 2:]), "vb", {}),
    "paired full covariance vb": (
        lambda: zoo.Paired(
            families=(Gaussian(noise_variance=None), Gaussian(noise_variance=None)),
            num_shared=1,
            num_specific=(0, 0),
            specific="full_covariance",
        ),
        (X[:, :2], X[:, 2:]),
        "vb",
        {},
    ),
    "paired full covariance gibbs": (
        lambda: zoo.Paired(
            families=("gaussian", "gaussian"), num_shared=1, num_specific=(0, 0), specific="full_covariance"
        ),
        (X[:, :2], X[:, 2:]),
        "gibbs",
        {},
    ),
    "depcam gaussian em": (_depcam(family="gaussian"), (X,), "em", {}),
    "depcam poisson vb": (_depcam(family="poisson"), (np.round(np.abs(X)),), "vb", {}),
    "mcfa vb ard holes": (_mcfa(loading_prior="ard", noise="diagonal"), (HOLES,), "vb", {"num_restarts": 2}),
    "lda vb batches": (_lda(), (COUNTS,), "vb", {"batch_size": 8}),
    "lda vb restarts": (_lda(), (COUNTS,), "vb", {"num_restarts": 2}),
    "lda vb devices": (_lda(), (COUNTS,), "vb", {"num_devices": 2}),
    "lda vb texts": (lambda: zoo.LDA(num_topics=2), (_TEXTS,), "vb", {}),
    "pcp vb mean field": (_pcp(), (COUNTS,), "vb", {"family": "mean_field"}),
    "pcp vb devices": (_pcp(), (COUNTS,), "vb", {"num_devices": 2}),
    "pcp vb sticks": (_pcp(weight_prior="stick_breaking"), (COUNTS,), "vb", {"init": "random"}),
    "pcp vb lda": (_pcp(), (COUNTS,), "vb", {"init": "lda"}),
    "plsi em tempered": (lambda: zoo.PLSI(num_topics=3), (COUNTS,), "em", {"num_restarts": 2}),
}
GRADIENTS = ("nuts", "hmc", "svi")  # they compile longest, and what they call the other methods call too


def of_relations(case, method):
    """The name here of a fit whose changed data the relations are about."""
    return f"relations, {case}: {method}"


#: A case of each model that tempers a sampler of its own.
TEMPERED = {"ppca": "ppca with priors", "sppca": "sppca with priors"}
TEMPERED |= {model: model for model in ("mixture", "mcfa", "lda", "pcp")}
#: Of each hand-written method of a model the first case.
OWN = {
    (type(case.make(*case.data)).__name__.lower(), method): (name, method)
    for name, case in reversed(relation_cases.CASES.items())
    for method in case.methods
    if method not in FOR_EVERY_MODEL
} | {(model, "tempered"): (case, "tempered") for model, case in TEMPERED.items()}

for _case, (_make, _data, _methods) in relation_cases.CASES.items():
    _options = {m: relation_cases.options_of(m, "rows_permuted") for m in _methods if m not in GRADIENTS}
    if _case in TEMPERED.values():
        _options["tempered"] = relation_cases.CHAINS
    for _method, _own in _options.items():
        CASES[of_relations(_case, _method)] = (partial(_make, *_data), _data, _method, _own)
#: Fits whose answers are recorded too.
ANSWERED = {of_relations(*own) for own in OWN.values()}
#: Where an answer compiles for a second or more of the processor: those that are asked.
FEW = {
    ("depcam", "em"): ("log_density", "cells"),
    ("depcam", "vb"): ("transform", "clusters", "reconstruction"),
    ("epca", "gibbs"): ("cells",),
    ("epca", "vb"): ("transform", "log_density"),
    ("lda", "collapsed_gibbs"): ("transform",),
    ("lda", "gibbs"): ("log_density",),
    ("paired", "gibbs"): ("y_1",),
    ("paired", "vb"): ("transform", "y_0"),
    ("paired of numbers", "closed_form"): ("log_density", "y_1"),
    ("sppca of probit classes", "ep"): ("log_density", "outputs"),
    ("sppca of probit classes", "gibbs"): ("cells",),
}
FEW = {of_relations(*own): names for own, names in FEW.items()}


def fitted(name):
    """The fit of a case."""
    make, data, method, options = CASES[name]
    options = SETTINGS.get(method, STEPS) | options
    data = tuple(
        {"chunks": lambda: iter(np.array_split(X, 5)), "sparse": _sparse_matrix()}.get(part, part)
        if isinstance(part, str)
        else part
        for part in data
    )
    if isinstance(options.get("init"), str) and options["init"] in CASES:
        options = options | {"init": fitted(options["init"])}
    resumed = options.pop("resumed", False) if "resumed" in options else False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = {"method": method, "seed": 3, "progress": False, **options}
        return _resumed(make(), data, call) if resumed else inference.fit(make(), *data, **call)


def _resumed(model, data, call):
    """A run that Ctrl-C cuts, once its checkpoint is there or after some seconds, and the same call again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.npz")
        stop_reason = ""
        for seconds in (3, 6, 12):  # compiling may take longer than the first: nothing is lost then
            done = threading.Event()
            threading.Thread(target=_interrupt, args=(path, seconds, done), daemon=True).start()
            try:
                stop_reason = inference.fit(model, *data, checkpoint=path, **call).attrs["stop_reason"]
                done.set()
                break
            except KeyboardInterrupt:
                continue
        if "interrupted" not in stop_reason:
            raise RuntimeError(f"the run was not interrupted ({stop_reason}): make it longer")
        return inference.fit(model, *data, checkpoint=path, **call)


def _interrupt(path, seconds, done):
    deadline = time.monotonic() + seconds
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    if not done.is_set():
        os.kill(os.getpid(), signal.SIGINT)


def outline(tree):
    """Four numbers of each variable of each group.

    How many values are finite, their mean, their root mean square, and their mean when each is multiplied by
    the cosine of its place, which a change of order changes.
    """
    return {
        group: {
            str(name): numbers
            for name in sorted(map(str, tree[group].data_vars))
            if (numbers := _four_numbers(tree[group][name].to_numpy())) is not None
        }
        for group in GROUPS
        if group in tree.children
    }


def answers(name, tree):
    """Four numbers of each answer about four rows, one of which lacks a cell where the model fills it in."""
    model = inference.model_of(tree)
    completions = completions_of(model)
    rows = tuple(part[3:7] for part in CASES[name][1])
    if completions and not name.endswith(("morp", "kernel_cca")):  # which need every cell
        rows = _lacking(rows)
    asks = {"transform": inference.transform, "log_density": inference.log_density}
    asks |= {what: partial(inference.predict, what=what) for what in completions}
    found = {}
    for asked in FEW.get(name, asks):
        with suppress(ValueError):  # a projection that is no density, and predicts nothing
            answer = asks[asked](tree, *rows)
            found[asked] = _four_numbers(answer.to_numpy())
            if "standard_deviation" in answer.coords:
                found[f"{asked} standard_deviation"] = _four_numbers(answer["standard_deviation"].to_numpy())
    return found


def _four_numbers(values):
    if values.dtype.kind not in "biuf":
        return None
    values = values.astype(float).ravel()
    place = np.cos(np.arange(values.size))
    finite = np.isfinite(values)
    kept = np.where(finite, values, 0.0)
    count = max(int(finite.sum()), 1)
    mean, square, turned = kept.sum() / count, np.sqrt((kept**2).sum() / count), (kept * place).sum() / count
    return [int(finite.sum()), float(mean), float(square), float(turned)]


def log_densities(name):
    """Those of the programs that a case is about, at a point; None where its data are no arrays.

    Of the model as `fit` reads it; and of the model in the coordinates of a fit, with a cell missing (NaN or
    -inf where it cannot miss one) and in its explicit form.
    """
    make, data, method, _ = CASES[name]
    if any(isinstance(part, str) for part in data):
        return None
    with warnings.catch_warnings(), in_precision():
        warnings.simplefilter("ignore")
        request = request_of(make(), *data, method=method, seed=3)
        inner = inward(request)
        programs = [(request.model, request.data), (inner.model, _lacking(inner.data))]
        return [_log_density(*own) for own in [*programs, (inner.model.explicit, inner.data)]]


def _log_density(program, data):
    point = handlers.seed(program, jax.random.key(1))
    logs, _ = compute_log_probs(handlers.substitute(point, substitute_fn=init_to_uniform), data, {}, {})
    return float(sum(own.sum() for own in logs.values()))


def _lacking(data):
    """The data, a cell of each table of numbers missing."""
    return tuple(
        np.where(np.arange(part.size).reshape(part.shape) == 1, np.nan, part)
        if isinstance(part, np.ndarray) and part.dtype.kind == "f"
        else part
        for part in data
    )


@cache
def _record(file="same_numbers"):
    return json.loads((REFERENCE / f"{file}.json").read_text(encoding="utf-8"))


def differences_to_rounding(name, tree=None, has_answers=False):
    """Where a fit, or this one, differs from its record by more than rounding, without or with answers."""
    tree = fitted(name) if tree is None else tree
    found, told = outline(tree), _record()["fits"][name]["outline"]
    if has_answers:
        found["answers"] = answers(name, tree)
        told = told | {"answers": _record("answers")["fits"][name]}
    differing = [f"{group}: none in one of them" for group in found.keys() ^ told.keys()]
    for group in found.keys() & told.keys():
        names = found[group].keys() ^ told[group].keys()
        differing += [f"{group}.{variable}: none in one of them" for variable in names]
        for variable in found[group].keys() - names:
            before = [float(number) for number in told[group][variable].split()]
            now = found[group][variable]
            error = np.max(np.abs(np.subtract(now, before)[1:])) / max(before[2], 1e-6)
            if now[0] != before[0] or not error < (1e-3 if "float32" in name else 1e-5):
                differing.append(f"{group}.{variable}: {before} -> {now}")
    return differing
