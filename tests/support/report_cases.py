"""A fit of every model, quick and not run to its end, to make reports of."""

import functools
import warnings

import numpy as np
import pandas as pd

import inference
import zoo
from inference.report import report, report_comparison
from tests.support.people_tables import customers
from tests.support.text_cases import COUNTS

__all__ = ["BITS", "FITS", "PAGES", "ROWS", "finished", "fitted", "write_page_of"]

_RNG = np.random.default_rng(0)
ROWS = _RNG.normal(size=(24, 2)) @ _RNG.normal(size=(2, 4)) + 0.3 * _RNG.normal(size=(24, 4))
BITS = (ROWS > 0).astype(float)
FITS = {
    "mixture": (zoo.Mixture, {"num_components": 2}, (ROWS,), "em"),
    "ppca": (zoo.PPCA, {"num_latents": 2}, (ROWS,), "closed_form"),
    "kernelpca": (zoo.KernelPCA, {"num_latents": 2}, (ROWS,), "closed_form"),
    "sppca": (zoo.SPPCA, {"num_latents": 2, "center": "plugin"}, (ROWS, ROWS[:, :1]), "closed_form"),
    "epca": (zoo.EPCA, {"family": "bernoulli", "num_latents": 2}, (BITS,), "map"),
    "paired": (zoo.Paired.ecca, {}, (ROWS[:, :2], ROWS[:, 2:]), "closed_form"),
    "depcam": (zoo.DEPCAM, {"num_components": 2, "num_latents": 1}, (BITS,), "em"),
    "mcfa": (zoo.MCFA, {"num_components": 2, "num_latents": 2}, (ROWS,), "vb"),
    "lda": (zoo.LDA, {"num_topics": 2}, (COUNTS,), "vb"),
    "plsi": (zoo.PLSI, {"num_topics": 2}, (COUNTS,), "em"),
    "pcp": (zoo.PCP, {"num_topics": 2, "num_clusters": 2}, (COUNTS,), "vb"),
}


@functools.cache
def fitted(name):
    """A fit of a model, not run to its end."""
    make, fields, data, method = FITS[name]
    options = {} if method == "closed_form" else {"max_iterations": 5}
    options |= {"num_samples": 30} if method == "vb" else {}
    if name == "paired":
        model = make(("gaussian", "gaussian"), 1, (0, 0))
    else:
        model = make.from_data(*data, **fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(model, *data, method=method, progress=False, **options)


NAMED = pd.DataFrame(
    ROWS, [f"plant {i}" for i in range(24)], ["height", "leaf width", "leaf length", "weight"]
)
HOSTILE = [
    "<script>alert(1)</script>",
    "$x_{1$",
    '"><img src=http://127.0.0.1:9/a.png>',
    "a|b `c` & d" + "e" * 60,
]
TEXT = pd.DataFrame(COUNTS, columns=[f"word{i}" for i in range(COUNTS.shape[1])])
WHOLE = {  # fits that are run to their end, of tables with names
    "mixture": lambda: _run(zoo.Mixture, NAMED, num_components=3),
    "gibbs": lambda: _run(
        zoo.Mixture, NAMED, num_components=3, method="gibbs", num_samples=300, num_warmup=200
    ),
    "ppca": lambda: _run(zoo.PPCA, NAMED, num_latents=2, method="vb", loading_prior="ard"),
    "kernelpca": lambda: _run(zoo.KernelPCA, NAMED, num_latents=2),
    "sppca": lambda: _run(zoo.SPPCA, NAMED, NAMED[["weight"]], num_latents=2),
    "epca": lambda: _run(zoo.EPCA, NAMED > 0, family="bernoulli", num_latents=2),
    "paired": lambda: _run(
        zoo.Paired, NAMED.iloc[:, :2], NAMED.iloc[:, 2:], families=("gaussian", "gaussian")
    ),
    "depcam": lambda: _run(zoo.DEPCAM, NAMED > 0, num_components=2, num_latents=1),
    "mcfa": lambda: _run(zoo.MCFA, NAMED, num_components=3, num_latents=2),
    "lda": lambda: _run(zoo.LDA, TEXT, num_topics=2),
    "plsi": lambda: _run(zoo.PLSI, TEXT, num_topics=2),
    "pcp": lambda: _run(zoo.PCP, TEXT, num_topics=2, num_clusters=2),
    "customers": lambda: _of_customers(),
    "hostile": lambda: _run(zoo.PPCA, NAMED.set_axis(HOSTILE, axis=1), num_latents=2, method="closed_form"),
}
PAGES = (*WHOLE, "several")


def _run(model, *data, method="auto", num_samples=200, num_warmup=100, **fields):
    """A fit of a model, run to its end."""
    data = [table.astype(float) for table in data]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(
            model.from_data(*data, **fields),
            *data,
            method=method,
            num_samples=num_samples,
            num_warmup=num_warmup,
            progress=False,
        )


def _of_customers():
    """A mixture of a table of words, categories, dates, counts and numbers, with missing cells."""
    table, _ = customers(150)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return inference.fit(zoo.Mixture(num_components=6), table, num_samples=200, progress=False)


@functools.cache
def finished(name):
    """A fit of `WHOLE`."""
    return WHOLE[name]()


def write_page_of(name, folder):
    """Write a page: the report of a finished fit, or one on several fits of the same rows.

    Args:
        name: one of `PAGES`.
        folder: where.
    """
    path = folder / f"{name}.html"
    if name in WHOLE:
        return report(finished(name), path)
    other = _run(zoo.Mixture, NAMED, num_components=2)
    trees = {"gibbs": finished("gibbs"), "vb": finished("mixture"), "two components": other}
    return report_comparison(trees, path, held_out=(NAMED[:5],))
