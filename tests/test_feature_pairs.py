"""What `fit` can be asked for at once: each pair of features is tested or refused.

A pair is tested where a test that runs by default compares the two together with the plain path or with a
value by hand. The refusals are tried here. A feature added to the list needs its pairs in one of the tables.
"""

import ast
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import zoo
from inference import fit
from zoo.conjugate import MultinomialDirichlet

TESTS = Path(__file__).parent
FEATURES = (
    "weights",  # sample_weight
    "batches",  # batch_size
    "chunks",  # rows that come in chunks
    "devices",  # num_devices
    "restarts",  # num_restarts
    "checkpoint",
    "float32",  # dtype
    "sparse",  # a SciPy matrix
    "missing",  # NaN cells
    "sticks",  # weight_prior="stick_breaking"
    "hyperparameters",  # learn, or random ones
)
MIXTURES = "inference/methods/mixture/"
MINIBATCH = MIXTURES + "test_minibatch.py::"
FINGERPRINTS = "inference/fitting/test_fingerprints.py::test_what_a_change_of_the_call_changes"
TOGETHER = MIXTURES + "test_two_features_at_once.py::"
STARTS = TOGETHER + "test_the_first_of_several_starts_is_the_start_alone"
SINGLE = TOGETHER + "test_single_precision_is_double_precision_to_rounding"
WEIGHTED = TOGETHER + "test_weighted_rows_are_repeated_ones"
STICKS = TOGETHER + "test_two_sticks_at_one_are_a_dirichlet_of_two"
SPARSE_EM = "inference/methods/linear_gaussian/test_em_sparse_projections.py::"
TESTED = {
    ("weights", "batches"): MINIBATCH + "test_every_batch_has_the_weights_of_its_own_rows",
    ("weights", "checkpoint"): FINGERPRINTS,
    ("weights", "sticks"): MINIBATCH + "test_weights_count_rows_in_batches_too",
    ("batches", "chunks"): MINIBATCH + "test_all_sources_of_the_same_rows_give_the_same_fit",
    ("batches", "restarts"): MINIBATCH + "test_a_run_cut_in_a_pass_and_resumed_is_the_run_that_was_not",
    ("batches", "checkpoint"): MINIBATCH + "test_a_run_cut_in_a_pass_and_resumed_is_the_run_that_was_not",
    ("batches", "sticks"): MINIBATCH + "test_first_pass_is_one_step_of_full_batch",
    ("chunks", "sticks"): MINIBATCH + "test_all_sources_of_the_same_rows_give_the_same_fit",
    ("chunks", "checkpoint"): "inference/methods/documents/test_lda_batches.py::"
    "test_a_run_that_was_cut_goes_on_bit_for_bit",
    ("restarts", "checkpoint"): "inference/driver/test_driver.py::"
    "test_a_resumed_run_is_the_uninterrupted_one",
    ("restarts", "sparse"): SPARSE_EM + "test_restarts_and_resuming_on_the_host",
    ("checkpoint", "sparse"): SPARSE_EM + "test_restarts_and_resuming_on_the_host",
    ("checkpoint", "float32"): FINGERPRINTS,
    ("checkpoint", "missing"): FINGERPRINTS,
    ("checkpoint", "sticks"): FINGERPRINTS,
    ("checkpoint", "hyperparameters"): FINGERPRINTS,
    ("missing", "hyperparameters"): MIXTURES + "test_incomplete_rows.py",
    ("sticks", "hyperparameters"): MIXTURES + "test_learnt_hyperparameters.py",
    **{("weights", other): WEIGHTED for other in ("sparse", "missing", "hyperparameters")},
    ("weights", "restarts"): STARTS,
    **{("restarts", other): STARTS for other in ("float32", "missing", "sticks", "hyperparameters")},
    **{(other, "float32"): SINGLE for other in ("weights", "batches", "chunks")},
    **{("float32", other): SINGLE for other in ("sparse", "missing", "sticks", "hyperparameters")},
    ("sparse", "sticks"): STICKS,
    ("missing", "sticks"): STICKS,
    ("sparse", "hyperparameters"): TOGETHER + "test_hyperparameters_of_sparse_counts_are_those_of_dense_ones",
    ("chunks", "restarts"): TOGETHER + "test_starts_of_chunks_are_those_of_one_array",
    ("chunks", "sparse"): "inference/methods/documents/test_lda_batches.py::"
    "test_how_chunks_are_cut_does_not_matter",
}
DEVICES = "inference/numerics/test_devices.py::"
TESTED_SLOWLY = dict.fromkeys(  # a second device takes a process of its own; sparse counts are refused there
    [(other, "devices") for other in ("weights", "batches", "chunks")]
    + [("devices", other) for other in FEATURES[FEATURES.index("devices") + 1 :]],
    DEVICES + "test_two_devices_give_the_bound_of_one",
)
TESTED_SLOWLY["devices", "checkpoint"] = DEVICES + "test_two_processes_give_the_bound_of_one"
X = np.random.default_rng(0).normal(size=(9, 2))
HOLES = np.where(np.arange(18).reshape(9, 2) == 4, np.nan, X)
COUNTS = scipy.sparse.eye(9).tocsr()
MIXTURE = zoo.Mixture(num_components=2)
OF_COUNTS = zoo.Mixture(MultinomialDirichlet(np.ones(9)), num_components=2)
REFUSED = {
    ("weights", "chunks"): (
        MIXTURE,
        [X],
        {"batch_size": 3, "sample_weight": np.ones(9)},
        "goes with an array",
    ),
    ("batches", "sparse"): (OF_COUNTS, COUNTS, {"batch_size": 3}, "sparse counts are fitted whole"),
    ("batches", "missing"): (MIXTURE, HOLES, {"batch_size": 3}, "missing"),
    ("batches", "hyperparameters"): (
        MIXTURE,
        X,
        {"batch_size": 3, "learn": ("m0",)},
        "does not go with batch",
    ),
    ("chunks", "hyperparameters"): (
        MIXTURE,
        [X],
        {"batch_size": 3, "learn": ("m0",)},
        "does not go with batch",
    ),
    ("chunks", "missing"): (MIXTURE, [HOLES], {"batch_size": 3}, "missing"),
    ("sparse", "missing"): (OF_COUNTS, COUNTS * np.nan, {}, "missing|finite|NaN|nan"),
}
EVERY = set(combinations(FEATURES, 2))
OPEN = EVERY - set(TESTED) - set(TESTED_SLOWLY) - set(REFUSED)


def test_the_table_names_each_pair_once():
    named = [*TESTED, *TESTED_SLOWLY, *REFUSED]
    assert len(set(named)) == len(named) and set(named) <= EVERY
    assert not OPEN, sorted(OPEN)


@pytest.mark.parametrize("test", sorted({*TESTED.values(), *TESTED_SLOWLY.values()}))
def test_what_proves_a_pair_is_there_and_runs_by_default_where_it_should(test):
    file, _, name = test.partition("::")
    body = ast.parse((TESTS / file).read_text(encoding="utf-8")).body
    found = [own for own in body if isinstance(own, ast.FunctionDef) and own.name == (name or own.name)]
    assert found, test
    marks = [{ast.unparse(mark) for mark in own.decorator_list} for own in found]
    assert any("pytest.mark.slow" not in own for own in marks) == (test in TESTED.values()), test


@pytest.mark.parametrize("pair", sorted(REFUSED))
def test_pairs_that_do_not_go_together_are_refused(pair):
    model, data, call, message = REFUSED[pair]
    with pytest.raises((ValueError, TypeError), match=message):
        fit(model, data, progress=False, **call)
