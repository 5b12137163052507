"""What a report costs: of the faithful fit as a whole, and each picture of each model at 10 000 rows.

``python -m tests.benchmarks.report [faithful] [MODEL ...]`` adds to
tests/reference/benchmark_report.json. Seconds are of CPU
time (``time.process_time``), of the second of two calls: compiled programs are warm. The fits at 10 000 rows
are not run to their ends: pictures cost the same. Pictures of tables (`plot_agreement`, `plot_scores`,
`plot_methods`) get theirs ready made; `plot_dirichlet_process` draws 10 000 values for each panel.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import inference
import zoo
from inference import plots
from inference.diagnostics import compare
from inference.diagnostics.comparison import MethodScore, agreement
from inference.plots import comparison
from inference.report import report
from inference.report.page import to_png
from inference.topics.document_checks import check_documents
from tests.tools.recording import add_to_record

_ROWS = 10_000


def main(names: Sequence[str]) -> None:
    """Measure, print and record, each part as soon as it is known."""
    warnings.simplefilter("ignore")
    command = "python -m tests.benchmarks.report"
    if not names or "faithful" in names:
        add_to_record("benchmark_report", command, "matplotlib", report_of_faithful=_faithful())
    if not names or "tables" in names:
        figures = {"pictures_of_tables": _of_tables()}
        add_to_record("benchmark_report", command, "matplotlib", rows=_ROWS, **figures)
    for name, case in _cases().items():
        if not names or name in names:
            figures = {f"pictures_{name}": _pictures(*case)}
            add_to_record("benchmark_report", command, "matplotlib", rows=_ROWS, **figures)


def _faithful() -> dict[str, float]:
    faithful = zoo.datasets.load("faithful").frame()
    model = zoo.Mixture.from_data(faithful, num_components=20)
    tree = inference.fit(model, faithful, method="gibbs", num_warmup=500, num_samples=1000, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        seconds, out = _timed(lambda: report(tree, Path(folder) / "faithful.html"))
        size = out.stat().st_size / 1e6
    print(f"report of the faithful fit: {seconds:.1f} s, {size:.2f} MB", flush=True)
    return {"cpu_seconds": round(seconds, 2), "megabytes": round(size, 2)}


def _cases() -> dict[str, tuple]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(_ROWS, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(_ROWS, 6))
    rows[: _ROWS // 2] += 4.0
    bits = (rows > 0).astype(float)
    counts = rng.multinomial(20, rng.dirichlet(np.full(40, 0.3), 4)[rng.integers(4, size=_ROWS)])
    labels = (np.arange(_ROWS) < _ROWS // 2).astype(int)
    short, draws = {"max_iterations": 5}, {"num_samples": 500}
    projection = (plots.plot_loadings, plots.plot_biplot, plots.plot_model_graph)
    classes = ("plot_document_clusters", lambda tree: plots.plot_document_clusters(tree, labels))
    check = ("plot_document_check", lambda tree: plots.plot_document_check(check_documents(tree)))
    topics = (check, plots.plot_topics, plots.plot_objective, plots.plot_model_graph)
    clusters = (plots.plot_co_clustering, plots.plot_objective, plots.plot_model_graph)
    own = (
        plots.plot_hinton,
        plots.plot_loading_products,
        plots.plot_component_similarity,
        plots.plot_overlap,
    )
    return {
        "mixture": (
            zoo.Mixture.from_data(rows, num_components=5),
            (rows,),
            {"method": "vb"} | short | draws,
            (plots.plot_mixture, *clusters),
        ),
        "mixture_gibbs": (
            zoo.Mixture.from_data(rows, num_components=5),
            (rows,),
            {"method": "gibbs", "num_warmup": 50, "num_samples": 250, "num_chains": 4},
            (plots.plot_psrf_path, plots.plot_mixture, plots.plot_co_clustering),
        ),
        "mixture_em": (
            zoo.Mixture.from_data(rows, num_components=5),
            (rows,),
            {"method": "em"} | short,
            (plots.plot_em,),
        ),
        "ppca": (zoo.PPCA(num_latents=2), (rows,), {"method": "closed_form"}, projection),
        "sppca": (
            zoo.SPPCA(num_latents=2, center="plugin"),
            (rows, rows[:, :1]),
            {"method": "closed_form"},
            projection,
        ),
        "epca": (
            zoo.EPCA.from_data(bits, family="bernoulli", num_latents=2),
            (bits,),
            {"method": "map"} | short,
            projection,
        ),
        "paired": (
            zoo.Paired.ecca(("gaussian", "gaussian"), 2, (0, 0)),
            (rows[:, :3], rows[:, 3:]),
            {"method": "closed_form"},
            projection,
        ),
        "depcam": (
            zoo.DEPCAM.from_data(bits, num_components=3, num_latents=1),
            (bits,),
            {"method": "em"} | short,
            (*own, *clusters),
        ),
        "lda": (zoo.LDA(num_topics=4), (counts,), {"method": "vb", "num_samples": 20} | short, topics),
        "plsi": (zoo.PLSI(num_topics=4), (counts,), {"method": "em"} | short, topics),
        "pcp": (
            zoo.PCP(num_topics=4, num_clusters=4),
            (counts,),
            {"method": "vb", "num_samples": 20} | short,
            (*topics, plots.plot_clusters, classes),
        ),
        "kernelpca": (
            zoo.KernelPCA(num_latents=2, kernel="linear"),
            (rows,),
            {"method": "closed_form"},
            (plots.plot_biplot, plots.plot_model_graph),
        ),
    }


def _pictures(model: zoo.Model, data: tuple, options: dict, functions: tuple) -> dict[str, float]:
    tree = inference.fit(model, *data, progress=False, **options)
    found = {}
    for function in functions:
        name, draw = function if isinstance(function, tuple) else (function.__name__, function)
        seconds, _ = _timed(lambda draw=draw: to_png(draw(tree)))
        found[name] = round(seconds, 2)
        print(f"{type(model).__name__} {name}: {seconds:.2f} s", flush=True)
    return found


def _of_tables() -> dict[str, float]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(_ROWS, 4))
    trees = {
        f"K = {count}": inference.fit(
            zoo.Mixture.from_data(rows, num_components=count),
            rows,
            method="vb",
            max_iterations=5,
            num_samples=200,
            progress=False,
        )
        for count in (2, 3)
    }
    table, ranked = agreement(trees), compare(trees)
    scores = [
        MethodScore("mixture", str(place), -place, 0.1, 1.0, True, 1.0, 1.0, False) for place in range(20)
    ]
    calls = {
        "plot_agreement": lambda: comparison.plot_agreement(table),
        "plot_scores": lambda: comparison.plot_scores(ranked),
        "plot_methods": lambda: comparison.plot_methods(scores),
        "plot_dirichlet_process": plots.plot_dirichlet_process,
    }
    found = {}
    for name, call in calls.items():
        found[name] = round(_timed(lambda call=call: to_png(call()))[0], 2)
        print(f"{name}: {found[name]:.2f} s", flush=True)
    return found


def _timed(call: Callable) -> tuple[float, object]:
    """CPU seconds of the second call, and what it gave."""
    call()
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


if __name__ == "__main__":
    main(sys.argv[1:])
