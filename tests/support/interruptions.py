"""Runs that are cut short, and the comparison of fits bit for bit."""

import numpy as np

from inference.driver import ascent, chains, host

__all__ = ["cut_short", "same"]


def same(one, two):
    """Bit for bit: q or the draws, and the trace."""
    assert set(one.children) == set(two.children)
    for group in {"posterior", "sample_stats", "trace", "variational"} & set(one.children):
        for name, value in one[group].data_vars.items():
            np.testing.assert_array_equal(value, two[group][name], err_msg=f"{group}/{name}")


def cut_short(monkeypatch, after):
    """Make the driver believe in a Ctrl-C once so many chunks are done."""

    class Interrupt(host.Interrupt):
        asked = 0

        @property
        def requested(self):
            type(self).asked += 1
            return self.asked > after

    monkeypatch.setattr(ascent, "Interrupt", Interrupt)
    monkeypatch.setattr(chains, "Interrupt", Interrupt)
    monkeypatch.setattr(host.ChunkLength, "__exit__", lambda self, *error: None)  # ten steps a chunk
