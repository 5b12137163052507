"""Imports that the README and the notebooks of the last release used still work; former names warn."""

import importlib
import subprocess
import sys

import pytest

from zoo.moved import MOVED

PUBLIC = [  # as the README and the notebooks had them before the modules moved
    "from inference import diagnostics, fit, model_of, plots",
    "from inference.algorithm import Algorithm",
    "from inference.calibration import geweke",
    "from inference.comparison import leave_one_out",
    "from inference.convergence import effective_sample_size, psrf_of",
    "from inference.diagnostics import heldout, occupied, prior_sensitivity, summary, top_partitions",
    "from inference.document_checks import check_documents",
    "from inference.gibbs import full_covariance, paired",
    "from inference.palette import COLOURS, LINES, MARKERS",
    "from inference.plots import plot_clusters, plot_document_clusters, plot_em, plot_hinton",
    "from inference.precision import in_precision",
    "from inference.predictive_checks import check_features",
    "from inference.symmetry import align_rotation, component_intervals, components, relabel",
    "from inference.topics import top_words, topic_shares",
    "from zoo.conjugate import BernoulliBeta",
    "from zoo.datasets import catalogue, load",
    "from zoo.dpp import KDPP, LEnsemble, angular_similarity, greedy_subset, marginal_kernel",
    "from zoo.exponential_family import Bernoulli, Binomial, Categorical, GammaWithShape, NegativeBinomial",
    "from zoo.joint_prior import log_kernel",
    "from zoo.kernels import RBF",
    "from zoo.sparse_counts import SparseCounts",
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("line", PUBLIC)
def test_a_public_import_of_the_last_release_works(line):
    exec(line, {})


@pytest.mark.slow
def test_public_imports_of_the_last_release_work():
    """In a process of its own, where nothing was imported before and deprecations are no errors."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", "\n".join(PUBLIC)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(("former", "now"), MOVED.items())
def test_a_former_name_warns_and_is_the_present_module(former, now, monkeypatch):
    monkeypatch.delitem(sys.modules, former, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{former} is now {now}"):
        assert importlib.import_module(former) is importlib.import_module(now)
    monkeypatch.delitem(sys.modules, former)


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("inference.nowhere")
