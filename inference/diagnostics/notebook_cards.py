"""A fit in a few lines, its verdict first, as a notebook shows it.

In IPython a fit displays as its card (importing ``inference`` there registers `html_of_tree`); what xarray
shows of the tree can be opened below it. Any other DataTree is shown as before.
"""

import html
from typing import Any

import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.diagnostics.cluster_profiles import number_in_words
from inference.fitting.verdict import sentences, verdict
from inference.results.files import check_tree, model_of
from inference.topics.topic_tables import top_words

__all__ = ["card", "html_of_tree"]

_COLOURS = {True: "#1b7a43", False: "#b3261e", None: "#6b5900"}
_MOST_TOPICS = 6
_NEXT = "inference.diagnostics.profiles(tree) has the answers, inference.report.report(tree, path) the page"


def card(tree: xr.DataTree) -> str:
    """HTML of a fit in a few lines, the verdict first; colours of its own for the verdict alone."""
    check_tree(tree)
    judgement = verdict(tree)
    first, rest = sentences(judgement)
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left;padding-right:1em">{html.escape(name)}'
        f'</th><td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in _facts(tree).items()
    )
    colour = _COLOURS[judgement.good]
    return (
        f'<div style="border-left:4px solid {colour};padding:.3em .8em;max-width:60em">'
        f'<p style="margin:.2em 0"><strong style="color:{colour}">{html.escape(first)}</strong> '
        f'{" ".join(map(html.escape, rest))}</p><table style="border:0;margin:.3em 0">{rows}</table></div>'
    )


def _facts(tree: xr.DataTree) -> dict[str, str]:
    """Model, method, data, clusters or topics, each in a few words."""
    model, attrs, sizes = model_of(tree), tree.attrs, draws_of(tree).sizes
    draws = f"{sizes['chain']} chains of {sizes['draw']} draws"
    if kind_of(tree) != "sampling" or sizes["chain"] == 1:
        draws = "one estimate" if kind_of(tree) == "point" else f"{sizes['draw']} draws"
    facts = {
        "model": type(model).__name__,
        "method": f"{attrs.get('method')}, seed {attrs.get('seed')}; {draws}",
    }
    if "observed_data" in tree.children:
        held = tree["observed_data"].to_dataset()
        shapes = {name: value.shape for name, value in held.data_vars.items() if value.ndim == 2}
        parts = [f"{name}: {' x '.join(map(str, shape))}" for name, shape in shapes.items()]
        counts = [
            f"{key.removeprefix('num_')}: {value}" for key, value in held.attrs.items() if "num_" in key
        ]
        facts["data"] = ", ".join(parts or counts)
    if model.roles.cluster is not None:
        facts["clusters"] = number_in_words(tree)
    if model.roles.topic is not None:
        words = top_words(tree, 4)
        named = [f"{topic}: {', '.join(map(str, row))}" for topic, row in words.head(_MOST_TOPICS).iterrows()]
        facts["topics"] = "; ".join(named) + ("; ..." if len(words) > _MOST_TOPICS else "")
    return facts | {"next": _NEXT}


def html_of_tree(tree: Any) -> str:
    """Return the HTML of a tree in a notebook: the card of a fit above what xarray shows of any tree."""
    whole = tree._repr_html_()
    if not {"model", "model_fields", "method"} <= set(tree.attrs) or "posterior" not in tree.children:
        return whole
    try:
        own = card(tree)
    except ValueError:  # a part of a fit, or one of a model that is not registered here
        return whole
    return f"{own}<details><summary>groups of the tree</summary>{whole}</details>"
