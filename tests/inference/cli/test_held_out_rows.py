"""``zoo compare`` scores rows that no fit has seen."""

import numpy as np
import pandas as pd

import inference.diagnostics.comparison as comparison
from inference.cli import main


def test_no_row_is_both_fitted_and_scored(tmp_path, monkeypatch, capsys):
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    table.to_csv(tmp_path / "table.csv", index=False)
    seen = []

    def noted(models, train, test, **settings):
        seen.append((np.asarray(train[0]), np.asarray(test[0])))
        return iter(())

    monkeypatch.setattr(comparison, "score_methods", noted)
    main(["compare", str(tmp_path / "table.csv"), "--models", "mixture", "ppca"])
    assert "fitted to 32 rows, scored on 8" in capsys.readouterr().out
    assert len(seen) == 2
    for train, test in seen:
        assert (train.shape, test.shape) == ((32, 2), (8, 2))
        every = np.concatenate([train, test])
        assert len(np.unique(every, axis=0)) == 40  # each row once: none is on both sides
        np.testing.assert_allclose(np.sort(every, axis=0), np.sort(table.to_numpy(), axis=0))
