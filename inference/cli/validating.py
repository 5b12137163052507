"""The size of a model that a command does not name: by hidden class labels, or by the bound of topics."""

import warnings
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from inference.cli.settings import resolve
from inference.diagnostics.model_size import choose_num_latents_for_classes, larger_untried, read_rows
from inference.fitting import front_door

_ASCENTS = ("em", "ep", "vb")  # methods that are run to validate; of others the default one stands in
_WITHOUT_CLASSES = ("morp", "kernel_cca")
_SETTINGS = ("seed", "max_iterations", "tolerance")
_SIZES = ("num_topics", "num_shared")  # that the bound settles
_LARGEST = 20  # that is tried
_FALLS = 2  # of the bound in a row, after which no larger size is tried
_MOST_ROWS = 5000  # above which trying costs too long
_OF_FLOORS = (".* is at its floor", "the .+ outputs have rank")  # by which the validated size is not judged


def validated(
    model: type,
    settings: dict[str, Any],
    data: Sequence[Any],
    options: SimpleNamespace,
    **reading: Any,
) -> Any:
    """Cross-validate a model of class labels; settle its size where the command does not name one.

    Returns:
        The table of `inference.choose_num_latents_for_classes`; None where outputs are no class labels, rows
        are weighted, or the method has no class probabilities.
    """
    takes_labels = any("class_labels" in table.cells for table in model.data)
    if not takes_labels or options.sample_weight is not None:
        return None
    if options.method in _WITHOUT_CLASSES or len(data) < 2:
        return None
    fields = resolve(settings)
    if read_rows(model(**fields), tuple(data), **reading)[0].classes is None:
        return None
    given = fields.get("num_latents")
    table = choose_num_latents_for_classes(
        *data,
        candidates=None if given is None else (given,),
        method=options.method if options.method in _ASCENTS else "auto",
        fields=fields,
        **reading,
        **{name: getattr(options, name) for name in _SETTINGS if getattr(options, name) is not None},
    )
    if given is None:
        settings["num_latents"] = table.attrs["chosen"]
        for message in _OF_FLOORS:
            warnings.filterwarnings("ignore", message=message)
    return table


def class_facts(table: Any) -> dict[str, str]:
    """The accuracy by class, and how the size was chosen, as attributes of the fit; none without a table."""
    if table is None:
        return {}
    right: Mapping[Any, int] = table.attrs["right"]
    labelled, chosen = table.attrs["labelled"], table.attrs["chosen"]
    number = sum(labelled.values())
    by_class = ", ".join(f"{name} {right[name]} of {labelled[name]}" for name in labelled)
    facts = {
        "classes": f"{number} of {table.attrs['rows']} rows are labelled; predicted with their labels hidden "
        f"from fits of the other folds {sum(right.values())} of them are right "
        f"({table['accuracy'][chosen]:.1%}): {by_class}"
    }
    if len(table) > 1:
        tried = "; ".join(f"{k}: {row.log_score:.3g}, {row.accuracy:.1%}" for k, row in table.iterrows())
        facts["size"] = (
            f"num_latents={chosen}, the fewest whose mean log probability of a hidden label is within one "
            "standard error, or .01 nats, of the best (by number of latents, with the share that is right: "
            f"{tried})" + (table.attrs["note"] and f"; {table.attrs['note']}")
        )
    return facts


def size_by_bound(
    model: type, settings: dict[str, Any], data: Sequence[Any], options: SimpleNamespace, **reading: Any
) -> dict[str, str]:
    """Settle the number of topics, or of shared latents, by the bound of VB where the command names none.

    Args:
        model: its class.
        settings: fields; the size is added.
        data: parts of the data.
        options: of the command line.
        **reading: as for `inference.fit`.

    Returns:
        How it was chosen, as an attribute of the fit; nothing where the model has other sizes, the method is
        not VB, rows are read in batches, the run goes on from another, or there are too many rows.
    """
    size = next((name for name in _SIZES if name in options.card.fields), None)
    goes_on = options.init is not None or options.checkpoint is not None
    if size is None or size in settings or options.method not in ("auto", "vb") or goes_on:
        return {}
    if "num_clusters" in options.card.fields or options.in_batches or data[0].shape[0] > _MOST_ROWS:
        return {}
    given = {"seed": options.seed or 0, "sample_weight": options.sample_weight, **reading}
    bounds: dict[int, float] = {}
    for number in range(1, _LARGEST + 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of fits that are not kept
            fields = resolve(settings) | {size: number}
            tree = front_door.fit(model(**fields), *data, method=options.method, progress=False, **given)
        if tree.attrs["method"] != "vb" or tree.attrs["stop_reason"].startswith("interrupted"):
            return {}
        bounds[number] = float(np.nanmax(tree["trace"]["objective"]))
        best = max(bounds, key=bounds.__getitem__)
        if number - best >= _FALLS:
            break
    settings[size] = best
    tried = ", ".join(f"{number}: {bound:.5g}" for number, bound in bounds.items())
    untried = larger_untried(size, [best], [_LARGEST], remedy=f"name it with --set {size}=NUMBER")
    return {"size": f"{size}={best}, which has the highest bound in nats (by number: {tried}){untried}"}
