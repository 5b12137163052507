"""``zoo compare``: every model by every method that accepts the data, scored by rows that were held out."""

from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from inference.cli import INTERRUPTED
from inference.cli.printing import as_options, collected_warnings, one_line, print_line, print_notes
from inference.cli.selection import data_of
from inference.diagnostics import comparison
from inference.inputs.tables import encoded_parts, read_tables, take_parts
from inference.inputs.text import read_documents, text_column
from inference.numerics.atomic_files import replacing
from inference.plots.comparison import plot_methods
from inference.program_cache import compile_cache
from zoo import model_class
from zoo.cards import read_card
from zoo.checks import warn
from zoo.intake.suitable_fields import suitable_tables

_COMPARED = ("model", "method", "nats/row", "+-", "seconds", "converged", "max PSRF", "extra MiB", "evidence")
_LAYOUT = "{:<12} {:<16} {:>10} {:>8} {:>8} {:>9} {:>8} {:>9} {:>16}"
_LEAST_ROWS = 5
_SETTINGS = ("num_chains", "num_warmup", "num_samples", "num_restarts", "seed", "progress")


def compare(options: SimpleNamespace) -> int:
    """Fit every model by every method that accepts the data, and score held-out rows; ValueError for none."""
    compile_cache()
    name, data = data_of(options)
    number = data[0].shape[0]
    if number < _LEAST_ROWS:
        raise ValueError(f"{options.dataset} has {number} rows; a comparison needs {_LEAST_ROWS} or more")
    with collected_warnings() as notes:
        are_topics = all(model_class(model).data[0].holds_documents for model in options.models_tried)
        data, text = _documents(data, are_topics)
        kinds = options.families, options.levels, options.id
        columns = read_tables(data, *kinds, holds_documents=are_topics)
        told = columns
        if are_topics:
            data, columns = _counts(data, columns), (None,) * len(data)
    order = np.random.default_rng(options.seed).permutation(number)
    num_held_out = max(1, number // 5)
    train, test = np.sort(order[num_held_out:]), np.sort(order[:num_held_out])
    print(f"{name}: fitted to {len(train)} rows, scored on {num_held_out}; seed {options.seed}")
    print_notes(data, told, notes)
    prepared, refused, scores = [], [], []
    for model_name in options.models_tried:
        try:
            model = model_class(model_name)
            if model.data[0].holds_documents and text is not None:
                raise ValueError(
                    f"the other models score other columns than the texts of {text!r}: name these alone to "
                    f"compare topic models, such as --x {text}"
                )
            if model.data[0].holds_documents and not hasattr(data[0], "tocsr"):
                raise ValueError(
                    "the other models score cells, which do not compare with documents given their lengths: "
                    "name topic models alone to compare these, --models lda pcp"
                )
            fields, parts = suitable_tables(model, data, columns)
            if options.standardize and "standardize" in read_card(model_name).fields:
                fields = fields | {"standardize": True}
            rows = take_parts(parts, train), take_parts(parts, test)
            prepared.append((model_name, model.from_data(*rows[0], **fields), *rows))
        except (ValueError, TypeError) as error:
            refused.append(comparison.Refusal(model_name, "", one_line(error)))
    keywords = {key: getattr(options, key) for key in _SETTINGS}
    methods = options.methods or None
    found = (
        score
        for model_name, model, *rows in prepared
        for score in comparison.score_methods({model_name: model}, *rows, methods=methods, **keywords)
    )
    print(f"\n{_LAYOUT.format(*_COMPARED)}")
    for score in found:
        if isinstance(score, comparison.Refusal):
            refused.append(score)
            continue
        scores.append(score)
        psrf = "-" if np.isnan(score.max_psrf) else f"{score.max_psrf:.3f}"
        numbers = f"{score.nats_per_row:.4f}", f"{score.standard_error:.4f}", f"{score.seconds:.1f}"
        converged = "yes" if score.converged else "NO"
        evidence = f"{score.log_evidence:.2f} +- {score.log_evidence_se:.2f}"
        told = "-" if np.isnan(score.log_evidence) else evidence
        line = (score.model, score.method, *numbers, converged, psrf, f"{score.mebibytes:.0f}", told)
        print(_LAYOUT.format(*line), flush=True)
        if score.interrupted:
            print("interrupted: the last fit above stopped early, and no other was made")
            return INTERRUPTED
    print("\nnats/row: mean log density of the rows held out, higher is better; +-: its standard error")
    print("seconds: of the fit, with compilation; extra MiB: memory added to this process")
    if not all(np.isnan(score.log_evidence) for score in scores):
        print("evidence: log evidence of the rows fitted under priors that were read off them, nats")
    for model, note in dict.fromkeys((score.model, note) for score in scores for note in score.warnings):
        print_line("warning", f"{model}: {as_options(note)}")
    for model, method, reason in refused:
        print(f"not fitted: {model}{' by ' + method if method else ''}: {reason}")
    if not scores:
        raise ValueError("no model could be fitted: the lines above say why of each")
    if options.out is not None:
        place = options.out.settled()
        with replacing(place) as file:
            plot_methods(scores).savefig(file, format=place.suffix.lower()[1:], dpi=150)
        print(f"saved to {place}")
    return 0


def _counts(data: tuple[Any, ...], columns: Sequence[Any]) -> tuple[Any, ...]:
    """Documents as sparse counts, whose columns are words."""
    (counts,), _ = read_documents(*encoded_parts(data, columns))
    return (counts.to_scipy().tocsr(),)


def _documents(data: tuple[Any, ...], are_topics: bool) -> tuple[tuple[Any, ...], Hashable | None]:
    """Texts alone in a table, or compared by topic models alone, as counts of words; else their column."""
    if len(data) > 1 or not isinstance(data[0], pd.DataFrame) or (text := text_column(data[0])) is None:
        return data, None
    if data[0].shape[1] > 1 and not are_topics:
        return data, text
    if left := ", ".join(str(name) for name in data[0] if name != text):
        warn(f"the documents are the texts of the column {str(text)!r}; columns left out: {left}")
    (counts,), _ = read_documents(data[0][text].fillna("").tolist())
    return (counts.to_scipy().tocsr(),), None
