"""Runs that cannot fit into memory are refused before they start; what runs out later is one MemoryError."""

import math
import re
import subprocess
import sys
import tracemalloc
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse

import zoo
from inference import fit
from inference.fitting import in_batches, in_memory, memory
from inference.fitting.memory import one_memory_error
from inference.numerics import host_draws
from zoo import checks
from zoo.checks import machine_memory, memory_in_words
from zoo.conjugate import NormalGamma
from zoo.exponential_family import Gaussian

ROWS = np.random.default_rng(0).normal(size=(60, 3))
COUNTS = np.ones((20, 5), int) + np.eye(20, 5, dtype=int)

#: Model, data, the call, the bytes that what is too large takes at least, and words of the remedy.
TOO_LARGE = {
    "draws of gibbs": (
        zoo.Mixture(num_components=3), ROWS, {"method": "gibbs", "num_samples": 10**9},
        4e9 * 8 * 3 * (3 + 9 + 1), "num_samples, with a larger thinning",
    ),
    "draws of nuts": (
        zoo.Mixture(num_components=3), ROWS, {"method": "nuts", "num_samples": 10**9, "num_chains": 1},
        1e9 * 8 * 3 * (3 + 6), "num_samples, with a larger thinning",
    ),
    "draws of vb": (
        zoo.Mixture(num_components=30), ROWS, {"method": "vb", "num_samples": 10**9},
        1e9 * 8 * 30 * (3 + 9), r"rows in batches \(batch_size\)",
    ),
    "draws of topics": (
        zoo.LDA(num_topics=2), COUNTS, {"method": "vb", "num_samples": 2 * 10**9},
        2e9 * 8 * 2 * 5, "num_samples",
    ),
    "starts": (
        zoo.Mixture(num_components=50), ROWS, {"method": "em", "num_restarts": 10**7},
        1e7 * 8 * 50 * (1 + 3 + 9), "num_restarts",
    ),
    "starts of which each has a number": (
        zoo.PCP(num_topics=2, num_clusters=3), COUNTS, {"method": "vb", "num_restarts": 10**9},
        1e9 * 8 * (3 * 2 + 512), "num_restarts",
    ),
    "chains of which little is kept": (
        zoo.Mixture(num_components=2), ROWS, {"method": "gibbs", "num_chains": 10**7, "num_samples": 1},
        1e7 * 8 * (60 + 512), "fewer num_chains",
    ),
    "starts on the host": (
        zoo.PPCA(num_latents=1), scipy.sparse.csr_array(ROWS), {"method": "em", "num_restarts": 10**9},
        1e9 * 8 * 6, "num_restarts",
    ),
}  # fmt: skip


def test_starts_in_batches_are_refused_before_they_are_compiled(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 32 * 2.0**30)
    monkeypatch.setattr(in_batches, "ascend_in_batches", lambda *args, **call: pytest.fail("was started"))
    with pytest.raises(ValueError, match=r"this run needs at least .* the states of 1000000000 restarts"):
        fit(
            zoo.Mixture(num_components=2), ROWS, method="vb", batch_size=20, num_restarts=10**9, num_samples=2
        )


@pytest.mark.slow
def test_so_many_starts_are_refused_before_they_are_numbered(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: 32 * 2.0**30)
    model, data, call, *_ = TOO_LARGE["starts of which each has a number"]
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="this run needs at least"):
            fit(model, data, **call)
        assert tracemalloc.get_traced_memory()[1] < 1e8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", TOO_LARGE)
def test_a_run_that_cannot_fit_is_refused_before_it_is_compiled(case, monkeypatch):
    model, data, call, least, remedy = TOO_LARGE[case]
    monkeypatch.setattr(memory, "machine_memory", lambda: 32 * 2.0**30)
    for loop in ("ascend", "sample"):
        monkeypatch.setattr(in_memory, loop, lambda *args, **settings: pytest.fail("was started"))
    words = rf"this run needs at least .*, and there are 32\.00 GiB: .*{remedy}"
    with pytest.raises(ValueError, match=words) as it:
        fit(model, data, **call)
    told = float(re.search(r"at least ([0-9.]+) GiB", str(it.value))[1])
    assert least / 2**30 <= told + 0.01 < 20 * least / 2**30


def test_a_run_that_fits_is_not_refused(monkeypatch):
    """Neither by sizes nor by the generous guess that comes before them."""
    started = []

    def start(*args, **settings):
        started.append(settings)
        raise InterruptedError

    for loop in ("ascend", "sample"):
        monkeypatch.setattr(in_memory, loop, start)
    for share in (memory.SHARE, 0.0):
        monkeypatch.setattr(memory, "SHARE", share)
        for call in ({"method": "vb"}, {"method": "em"}, {"method": "gibbs", "num_warmup": 2}):
            with pytest.raises(InterruptedError):
                fit(zoo.Mixture(num_components=2), ROWS, num_samples=5, **call)
    assert len(started) == 6


WIDE = np.random.default_rng(1).normal(size=(40, 20))
OF_20 = 3 * 20 * 20  # numbers in the precisions of three components of 20 columns

#: Model, data, the call, and how many numbers of a draw count: those in square matrices, or all.
OF_WIDE_TABLES = {
    "mixture": (zoo.Mixture(num_components=3), (WIDE,), {}, 2 * OF_20),
    "mixture by svi": (zoo.Mixture(num_components=3), (WIDE,), {"method": "svi"}, 2 * OF_20),
    "mixture in batches": (
        zoo.Mixture(num_components=3), (WIDE,), {"batch_size": 20, "num_restarts": 1}, 2 * OF_20,
    ),
    "paired": (
        zoo.Paired(
            families=(Gaussian(noise_variance=None),) * 2,
            num_shared=1, num_specific=(0, 0), specific="full_covariance",
        ),
        (WIDE, WIDE[:, :17]), {"method": "vb"}, 20**2 + 17**2,
    ),
    "diagonal mixture": (
        zoo.Mixture(num_components=3, components=NormalGamma()), (WIDE,), {}, 3 * (20 + 20) + 3,
    ),
    "projection": (
        zoo.PPCA(num_latents=2, loading_prior="ard"), (WIDE,), {"method": "vb"}, 20 * 2 + 20 + 1 + 2,
    ),
    "mixture of few columns": (zoo.Mixture(num_components=3), (ROWS,), {}, 0),
    "a point": (zoo.Mixture(num_components=3), (WIDE,), {"method": "em"}, 0),
}  # fmt: skip


@pytest.mark.parametrize("case", OF_WIDE_TABLES)
def test_draws_of_wide_tables_are_fewer(case, monkeypatch):
    """As many as fit into the limit are drawn, all of them where `keep` asks for it."""
    model, data, call, num_entries = OF_WIDE_TABLES[case]
    monkeypatch.setattr(host_draws, "DRAWN_BYTES", 8.0 * 7 * max(num_entries, 1))
    found = []

    def affordable_draws(request, *rows):
        found.append(memory.affordable_draws(request, *rows))
        raise InterruptedError

    for plans in (in_memory, in_batches):
        monkeypatch.setattr(plans, "affordable_draws", affordable_draws)
    monkeypatch.setattr(in_batches, "ascend_in_batches", lambda *args, **call: SimpleNamespace(state=None))

    def drawn(**rest):
        with pytest.raises(InterruptedError):
            fit(model, *data, num_samples=9, progress=False, **call, **rest)
        return found.pop()

    if not num_entries:
        assert drawn() == 9
        return
    with pytest.warns(UserWarning, match=r"^9 draws of .* would take .*: 7 are kept; .*keep=") as it:
        assert drawn() == 7
    assert drawn(keep=(re.search(r"keep=\('(\w+)'", str(it[0].message))[1],)) == 9


def test_the_generous_guess_is_above_the_sizes(monkeypatch):
    """Else a run would be let through that does not fit."""
    monkeypatch.setattr(memory, "machine_memory", lambda: 32 * 2.0**30)
    found = []

    def both(request, *, starts, num_draws, sizes):
        exact = sum(map(memory._num_bytes, sizes().values()))
        found.append((memory._generous(request, starts, num_draws), exact))
        raise InterruptedError

    monkeypatch.setattr(in_memory, "check_memory", both)
    for model, data, call, *_ in TOO_LARGE.values():
        with pytest.raises(InterruptedError):
            fit(model, data, **call)
    assert len(found) == len(TOO_LARGE)
    assert all(generous >= exact for generous, exact in found)


@pytest.mark.filterwarnings("ignore:mixture by .* has not converged")
def test_memory_that_runs_out_later_is_one_error(monkeypatch):
    """NumPy's and XLA's own errors, from where they are raised."""
    call = {"method": "gibbs", "num_warmup": 2, "num_chains": 2, "num_samples": 4}

    def of_numpy(*args, **settings):
        return np.zeros(10**15)

    def of_xla(*args, **settings):
        return jnp.zeros(2**48)

    for allocate, words in ((of_numpy, "Unable to allocate"), (of_xla, "RESOURCE_EXHAUSTED")):
        monkeypatch.setattr(in_memory, "sample", allocate)
        message = f"^mixture by gibbs ran out of memory .*{words}.*: take fewer"
        with pytest.raises(MemoryError, match=message) as it:
            fit(zoo.Mixture(num_components=2), ROWS, **call)
        assert "\n" not in str(it.value)


def test_other_errors_of_xla_pass():
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL: mine"), one_memory_error(None):
        raise jax.errors.JaxRuntimeError("INTERNAL: mine")


def test_the_memory_of_the_machine_is_the_least_limit(monkeypatch, tmp_path):
    assert 2**28 < machine_memory() < 2**50
    limit = tmp_path / "memory.max"
    for content, least in (("max\n", machine_memory()), ("123456789\n", 123456789)):
        limit.write_text(content)
        monkeypatch.setattr(checks, "_GROUP_LIMITS", (str(limit),))
        assert machine_memory() == least
    program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, -1))\n"
    program += "from zoo.checks import machine_memory; print(machine_memory())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(3 * 2**30), done.stderr
    monkeypatch.setattr(checks, "resource", None)
    monkeypatch.setattr(checks, "_GROUP_LIMITS", ())
    monkeypatch.delattr(checks.os, "sysconf")
    assert machine_memory() == math.inf


def test_bytes_in_words():
    words = [memory_in_words(size) for size in (2**20, 2**30, 1.5 * 2**40)]
    assert words == ["1.0 MiB", "1.00 GiB", "1536.00 GiB"]
