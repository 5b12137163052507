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


def test_what_a_fit_warns_of_is_told_once_a_model(tmp_path, capsys):
    """One noise variance for columns of all sizes; with --standardize the same rows have a higher density."""
    x = np.random.default_rng(0).normal(size=(60, 1)) + np.random.default_rng(1).normal(size=(60, 3))
    pd.DataFrame(x * [1.0, 1000.0, 1e6], columns=["a", "b", "c"]).to_csv(tmp_path / "t.csv", index=False)
    call = ["compare", str(tmp_path / "t.csv"), "--models", "ppca", "mixture"]
    call += ["--methods", "em", "closed_form"]
    assert main(call) == 0
    told = capsys.readouterr().out
    lines = " ".join(told.split())
    assert lines.count("warning ppca: the columns of x have very different scales, a (sd ") == 1
    assert lines.index("extra MiB: memory") < lines.index("warning ppca") and "give --standardize" in lines
    assert "mixture: the columns" not in lines
    assert main([*call, "--standardize"]) == 0
    better = capsys.readouterr().out
    assert "very different scales" not in better
    scores = [
        [float(line.split()[2]) for line in text.splitlines() if line.startswith("ppca")]
        for text in (told, better)
    ]
    assert len(scores[0]) == 2 and min(scores[1]) > max(scores[0]) + 5
    mixtures = [
        next(line.split()[2] for line in text.splitlines() if line[:7] == "mixture")
        for text in (told, better)
    ]
    assert mixtures[0] == mixtures[1]
    assert main([*call[:3], "lda", "--standardize"]) == 2
    assert "none of these models has a field standardize" in capsys.readouterr().err


def news(path, num_rows=20):
    """A table of texts, each with a word of its own, beside the section that they are from."""
    texts = [
        f"a tale of {'ships and seas' if row % 2 else 'bread and salt'} word{row}x" for row in range(num_rows)
    ]
    pd.DataFrame({"section": ["sea", "land"] * (num_rows // 2), "text": texts}).to_csv(path, index=False)
    return str(path)


def test_topic_models_are_compared_on_texts_that_are_named(tmp_path, capsys):
    place = news(tmp_path / "news.csv")
    call = ["compare", place, "--methods", "vb", "--models", "lda", "mixture"]
    assert main(call) == 0
    told = capsys.readouterr().out
    assert "not fitted: lda: the other models score other columns than the texts of 'text'" in told
    assert "such as --x text" in told and "mixture      vb" in told
    assert main([*call[:-1], "--x", "text"]) == 0  # as it advises
    told = capsys.readouterr().out
    assert "lda          vb" in told and "fitted to 16 rows, scored on 4" in told
    assert main(call[:-1]) == 0  # the mixture is not among them
    alone = capsys.readouterr().out
    said = "the documents are the texts of the column 'text'; columns left out: section"
    assert said in " ".join(alone.split())
    assert _scores(alone) == _scores(told)


def _scores(told):
    return next(line for line in told.splitlines() if line.startswith("lda")).split()[:4]


def test_a_sweep_of_topics_takes_texts(tmp_path, capsys):
    assert main(["sweep", "lda", news(tmp_path / "news.csv"), "--sizes", "1:2", "--folds", "2"]) == 0
    told = capsys.readouterr().out
    assert "recommended: num_topics = " in told and "the texts of the column 'text'" in told


def test_shares_fitted_to_a_document_do_not_score_it(tmp_path, capsys):
    """Once PLSI came first in every comparison, and a sweep of it recommended its largest size."""
    place = news(tmp_path / "news.csv")
    assert main(["sweep", "plsi", place, "--sizes", "1:3"]) == 2
    assert "PLSI fits the topic shares of a new document to that document" in capsys.readouterr().err
    main(["compare", place, "--x", "text", "--models", "plsi"])
    assert "not fitted: plsi: PLSI fits the topic shares" in capsys.readouterr().out
