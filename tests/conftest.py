"""What all tests share: one persistent compile cache, and the data sets that ship with the zoo."""

import os

import pytest


def pytest_configure(config):
    """Keep compiled programs between runs, also those of the subprocesses that a test starts.

    The settings are environment variables, read when JAX is first imported, which no test module has done
    yet.
    """
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.fixture(scope="session")
def faithful():
    """Old Faithful as a DataFrame: 272 rows, columns eruptions and waiting."""
    from zoo.datasets import load

    return load("faithful").frame()
