"""Samplers that run until they are believed: where they look, when they stop; looks change no draw."""

import json

import numpy as np
import pytest

from inference import fit
from inference.convergence import judge
from inference.convergence.r_hat import judgement
from inference.fitting import in_memory
from tests.support.fit_requests import request_of
from tests.support.interruptions import cut_short, same
from zoo import PPCA, Mixture
from zoo.conjugate import BernoulliBeta

BITS = np.random.default_rng(0).integers(0, 2, (12, 3)).astype(float)
RUN = {"method": "gibbs", "num_chains": 2, "num_warmup": 40, "num_samples": 60, "thinning": 2, "seed": 3}
RUN |= {"progress": False, "split_merge": 0}


def mixture():
    return Mixture(BernoulliBeta(np.ones(3), np.ones(3)), num_components=2)


@pytest.fixture(scope="module")
def believed():
    return fit(mixture(), BITS, **RUN, until="converged")


def looks_of(tree):
    return json.loads(tree.attrs["looks"])


# One of the ten slowest: it pays for the chains that the other tests of this file read.
def test_it_looks_at_multiples_of_num_samples_and_stops_after_two_that_pass(believed):
    looks = looks_of(believed)
    assert believed.attrs["look"] == len(looks) < 20
    assert [own["draws"] for own in looks] == [60 * (i + 1) for i in range(len(looks))]
    assert [own["passed"] for own in looks[-2:]] == [True, True]
    pairs = zip(looks[:-2], looks[1:-1], strict=True)
    assert not any(one["passed"] and two["passed"] for one, two in pairs)
    assert believed.attrs["converged"] == 1 and judge(believed)[0]
    assert believed["posterior"].sizes["draw"] == looks[-1]["draws"]


def test_the_last_look_sees_what_the_fit_is_judged_by(believed):
    """Draws are looked at block by block, and each look is of all so far."""
    assert looks_of(believed)[-1]["r_hat"] == pytest.approx(judgement(believed).r_hat, abs=1e-9)


@pytest.mark.filterwarnings("ignore:mixture by collapsed_gibbs has not converged")
def test_blocks_of_draws_may_have_different_numbers_of_components():
    model = Mixture(BernoulliBeta(np.ones(3), np.ones(3)), num_components=9, weight_prior="stick_breaking")
    run = RUN | {"method": "collapsed_gibbs", "num_samples": 8, "num_warmup": 0, "max_sweeps": 64}
    tree = fit(model, BITS, **run, until="converged")
    assert len(looks_of(tree)) > 1
    assert np.isfinite(looks_of(tree)[-1]["r_hat"])


def test_its_draws_are_those_of_a_run_of_that_length(believed):
    number = believed["posterior"].sizes["draw"]
    plain = fit(mixture(), BITS, **RUN | {"num_samples": number})
    for group in ("posterior", "trace", "sample_stats"):
        for name, value in plain[group].data_vars.items():
            np.testing.assert_array_equal(value.values, believed[group][name].values)
    assert "look" not in plain.attrs and "until" not in plain.attrs["options"]


@pytest.mark.filterwarnings("ignore:mixture by gibbs has not converged")
def test_a_run_that_was_cut_goes_on_bit_for_bit(believed, tmp_path):
    """Cut between two looks; also with another limit."""
    call = RUN | {"until": "converged", "checkpoint": tmp_path / "run.ckpt"}
    with pytest.MonkeyPatch.context() as patch:
        cut_short(patch, after=20)
        cut = fit(mixture(), BITS, **call)
    assert 1 <= cut.attrs["look"] < believed.attrs["look"]
    assert cut["posterior"].sizes["draw"] % 60 > 0
    said = judge(cut)[1]  # Ctrl-C ended it, and no limit in seconds was given
    assert "raise num_" in said and "max_" not in said
    again = fit(mixture(), BITS, **call, max_sweeps=40 + 18 * 120)
    assert again.attrs["looks"] == believed.attrs["looks"]
    same(believed, again)


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [({"max_sweeps": 70}, r"raise max_sweeps \(the run ended at 70, look 1\)"),
     ({"max_seconds": 1e-9}, r"raise max_seconds \(the run ended at 1e-09, look 1\)")],
)  # fmt: skip
def test_the_remedy_is_the_limit_that_ended_the_run(limit, remedy):
    with pytest.warns(UserWarning, match=remedy):
        fit(mixture(), BITS, **RUN | {"num_samples": 10}, until="converged", **limit)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:mixture by gibbs has not converged")
def test_limits(believed):
    """In sweeps: the most looks that they leave room for; in seconds: the look that is next."""
    short = {"num_samples": 10, "until": "converged"}
    tree = fit(mixture(), BITS, **RUN | short, max_sweeps=40 + 3 * 20 + 19)
    assert [own["draws"] for own in looks_of(tree)] == [10, 20, 30] and tree.attrs["converged"] == 0
    assert tree.attrs["num_iterations"] == 100
    slow = fit(mixture(), BITS, **RUN | short, max_seconds=1e-9)
    assert slow.attrs["look"] == 1 and slow["posterior"].sizes["draw"] == 10
    start = believed["posterior"].isel(draw=slice(0, 10))
    np.testing.assert_array_equal(slow["posterior"]["weights"].values, start["weights"].values)


@pytest.mark.slow  # a program of HMC takes ten seconds to compile, and looks are taken by one loop for all
@pytest.mark.filterwarnings("ignore:ppca by hmc has not converged")
def test_hmc_is_looked_at_too():
    x = np.random.default_rng(1).normal(size=(15, 2))
    run = {"num_chains": 2, "num_warmup": 20, "num_samples": 20, "num_steps": 4, "progress": False}
    tree = fit(PPCA(num_latents=1), x, method="hmc", until="converged", max_sweeps=60, **run)
    assert tree.attrs["look"] == 2 and tree["posterior"].sizes["draw"] == 40


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"until": "bored"}, ValueError, "until must be"),
        ({"max_sweeps": 100}, ValueError, "max_sweeps goes with until='converged'"),
        ({"max_seconds": 1.0}, ValueError, "max_seconds goes with until='converged'"),
        ({"until": "converged", "max_seconds": -1.0}, ValueError, "max_seconds must be a positive number"),
        ({"until": "converged", "max_sweeps": 100}, ValueError, "must leave room for one check"),
        ({"until": "converged", "num_chains": 1}, ValueError, "num_chains must be at least 2"),
    ],
)
def test_calls_that_cannot_be(wrong, error, message):
    with pytest.raises(error, match=message):
        fit(mixture(), BITS, **RUN | wrong)


@pytest.mark.parametrize("thinning", [1, 3])
def test_a_run_may_be_looked_at_twenty_times_where_no_limit_is_given(thinning):
    call = {"num_chains": 2, "num_warmup": 40, "num_samples": 60, "thinning": thinning}
    found = request_of(mixture(), BITS, method="gibbs", until="converged", **call).settings
    assert found.max_sweeps == 40 + 20 * 60 * thinning


def test_ascents_are_not_judged_so():
    with pytest.raises(ValueError, match="until='converged' goes with samplers"):
        fit(mixture(), BITS, method="vb", until="converged")


def words_of(model, x, **call):
    """What the progress line of a run said, in turn."""

    class Bar:
        disable = False
        words = []

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, number):
            pass

        def set_postfix_str(self, text, refresh):
            self.words.append(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "progress_line", lambda shown: lambda total, done: Bar())
        with pytest.warns(UserWarning, match="has not converged"):
            fit(model, x, until="converged", **call)
    assert Bar.words[0].startswith("warm-up, log joint")
    assert Bar.words[-1].startswith("sampling, log joint")
    assert "its R-hat" in Bar.words[-1]
    return Bar.words


@pytest.mark.slow
def test_the_progress_line_says_phase_and_agreement():
    words = words_of(mixture(), BITS, **RUN | {"num_samples": 10}, max_sweeps=40 + 3 * 20)
    assert "largest R-hat at 30 draws" in words[-1] and "divergences" not in words[-1]


@pytest.mark.slow
def test_the_progress_line_of_hmc_counts_divergences():
    x = np.random.default_rng(1).normal(size=(15, 2))
    run = {"num_chains": 2, "num_warmup": 20, "num_samples": 20, "num_steps": 4, "progress": False}
    words = words_of(PPCA(num_latents=1), x, method="hmc", max_sweeps=60, **run)
    assert "divergences" in words[-1] and "largest R-hat at 40 draws" in words[-1]
