"""What all tests share: one persistent compile cache, quick compilation, and a few data sets and fits."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

OLDER_RECORDS = "older than their code"  # what a test tells, and the summary shows
DEFAULT = "not slow and not needs_data and not needs_peer"  # as pyproject.toml has it
FIRST = Path(__file__).with_name("first_tier.txt")
MANY_MAPS = 30_000  # of the 65 530 that Linux allows a process
STATES = {}  # of generators of test modules, by their id, once these are imported


def is_default_run(config):
    """Whether slow tests are left out."""
    return "not slow" in config.option.markexpr


def pytest_configure(config):
    """Run the first tier where no test is named; keep compiled programs, also those of subprocesses.

    ``pytest`` alone is what a newcomer waits for: the tests of tests/first_tier.txt. ``pytest tests``, and a
    path, run all that are not slow.

    The settings are environment variables, read when JAX is first imported, which no test module has done
    yet.

    Most of the default run is compilation, of programs that run for milliseconds: there the compiler's last
    stage leaves its optimisations out, which saves a quarter of the time, and its expensive passes, which
    saves a tenth of the rest. Slow tests sample long enough to be worth them, and some write down how long
    they took.
    """
    alone = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    if alone and config.option.markexpr == DEFAULT:
        config.option.markexpr = f"first and {DEFAULT}"
    quick = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    if is_default_run(config) and quick not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {quick}".strip()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def first_tier():
    """Files, tests and cases of tests that `pytest` runs where no test is named."""
    return set(FIRST.read_text(encoding="utf-8").split())


def pytest_ignore_collect(collection_path, config):
    """Files without a test of the first tier are not imported for it: that takes half a minute."""
    if not config.option.markexpr.startswith("first and ") or collection_path.suffix != ".py":
        return None
    files = {name.partition("::")[0] for name in first_tier()}
    return collection_path.relative_to(config.rootpath).as_posix() not in files or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the first tier, and cases that are slow.

    Make cases slow beyond the first few that ``cases_by_default`` names; cases that are slow do not count.

    The default run then holds each proof for one or some of the families, priors or methods, and the slow
    group for all.
    """
    first, taken = first_tier(), Counter()
    for item in items:
        if first & {item.nodeid, item.nodeid.partition("[")[0], item.nodeid.partition("::")[0]}:
            item.add_marker(pytest.mark.first)
        mark = item.get_closest_marker("cases_by_default")
        if mark is None or item.get_closest_marker("slow"):
            continue
        test = item.path, item.originalname
        taken[test] += 1
        if taken[test] > mark.args[0]:
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter):
    """Name the records that are older than the code they describe, where the test that finds them has run."""
    for report in terminalreporter.getreports("passed"):
        for name, found in report.user_properties:
            if name == OLDER_RECORDS:
                older, undated = found
                terminalreporter.section("records in tests/reference")
                terminalreporter.line(f"{name} ({len(older)}): {', '.join(older) or 'none'}")
                terminalreporter.line(f"without a digest of their code: {len(undated)}")


@pytest.fixture(scope="session", autouse=True)
def compile_all_programs_alike(request):
    """In the default run, whatever work a fit promises: else those with room for many steps are optimised."""
    if is_default_run(request.config):
        from inference.numerics import compiled

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "LEVELS", ())
            patch.setattr(compiled, "MOST_ONCE", -1)
            yield
    else:
        yield


@pytest.fixture(scope="module", autouse=True)
def do_single_operations_by_numpy(request):
    """In the default run, but for modules that count compilations or try the evaluator."""
    with pytest.MonkeyPatch.context() as patch:
        if is_default_run(request.config) and not request.node.get_closest_marker("all_compiled"):
            from tests.support.single_operations import done_by_numpy

            done_by_numpy(patch)
        yield


def state_of_the_process():
    """What tests read and must leave as it was, so that they pass in any order."""
    import jax

    import zoo

    names = (
        "jax_enable_x64",
        "jax_disable_most_optimizations",
        "jax_compilation_cache_dir",
        "jax_debug_nans",
    )
    settings = {name: jax.config.values[name] for name in names}
    ours = ("JAX", "XLA", "ZOO", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name.startswith(ours)}
    return (
        settings
        | environment
        | {
            "models": sorted(zoo.MODELS),
            "Ctrl-C": signal.getsignal(signal.SIGINT),
            "SIGTERM": signal.getsignal(signal.SIGTERM),
            "folder": os.getcwd(),
        }
    )


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_to_the_next_module():
    """Found where it happens, not in whichever test runs next."""
    before = state_of_the_process()
    yield
    assert state_of_the_process() == before


@pytest.fixture(autouse=True)
def generators_begin_anew(request):
    """What a test draws from its module's generator does not depend on the tests before it."""
    for value in vars(getattr(request, "module", None) or pytest).values():
        if type(value).__name__ == "Generator" and hasattr(value, "bit_generator"):
            value.bit_generator.state = STATES.setdefault(id(value), value.bit_generator.state)


@pytest.fixture(scope="module", autouse=True)
def forget_compiled_programs():
    """Let go of a module's compiled programs when it is done.

    Each holds memory maps, of which a process has 65 530: without this the compiler crashes after some
    thousands of programs. The persistent cache makes it cheap. And what a module has traced with a constant
    of the library changed would serve the next.
    """
    yield
    import jax

    jax.clear_caches()


@pytest.fixture(autouse=True)
def forget_before_memory_maps_run_out(request):
    """Within a module of many slow tests too: 55 cases of reference posteriors once filled the process."""
    yield
    maps = Path("/proc/self/maps")
    if request.node.get_closest_marker("slow") and maps.exists():
        with maps.open(encoding="utf-8", errors="replace") as lines:
            held = sum(1 for _ in lines)
        if held > MANY_MAPS:
            import jax

            jax.clear_caches()


@pytest.fixture
def in_double():
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def faithful():
    """Old Faithful as a DataFrame: 272 rows, columns eruptions and waiting."""
    from zoo.datasets import load

    return load("faithful").frame()


@pytest.fixture(scope="session")
def two_clusters():
    """Sixty rows of two well separated clusters, as a DataFrame with named rows and columns."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(7)
    x = np.concatenate([rng.normal(size=(35, 2)), rng.normal(size=(25, 2)) * 0.7 + [4.0, 1.0]])
    return pd.DataFrame(x, columns=["length", "width"], index=[f"row {i}" for i in range(60)])


@pytest.fixture(scope="session")
def small_model(two_clusters):
    """A three-component mixture whose prior is strong enough for all samplers to mix on the two clusters."""
    import numpyro.distributions as dist

    from zoo import Mixture
    from zoo.conjugate import GaussianWishart

    components = GaussianWishart.from_data(two_clusters, mean_precision=0.5, degrees_of_freedom=8.0)
    return Mixture(components=components, num_components=3, concentration=dist.Gamma(3.0, 1.0))


@pytest.fixture(scope="session")
def vb_tree(small_model, two_clusters):
    """The small mixture by VB."""
    from inference import fit

    return fit(small_model, two_clusters, method="vb", num_restarts=3, num_samples=400)


@pytest.fixture(scope="session")
def gibbs_tree(small_model, two_clusters):
    """The small mixture by blocked Gibbs."""
    from inference import fit

    return fit(small_model, two_clusters, method="gibbs", num_warmup=500, num_samples=4000, seed=1)


@pytest.fixture(scope="session")
def few_draws(small_model, two_clusters):
    """The small mixture by blocked Gibbs, for what does not depend on how many draws there are."""
    import warnings

    from inference import fit

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has not converged")
        return fit(small_model, two_clusters, method="gibbs", num_warmup=100, num_samples=200, seed=1)


@pytest.fixture(scope="session")
def nuts_tree(small_model, two_clusters):
    """The small mixture by NUTS."""
    from inference import fit

    return fit(small_model, two_clusters, method="nuts", num_warmup=500, num_samples=4000, seed=2)
