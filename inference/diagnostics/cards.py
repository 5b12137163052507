"""A fit in a few lines, its verdict first, as a notebook shows it.

In IPython a fit displays as its card (importing ``inference`` there registers `html_of_tree`); what xarray
shows of the tree can be opened below it. Any other DataTree is shown as before.
"""

import html
from typing import Any, NamedTuple

import xarray as xr

from inference.convergence.identifiable import draws_of, kind_of
from inference.diagnostics.cluster_profiles import number_in_words
from inference.fitting.verdict import sentences, verdict
from inference.results.files import check_tree, model_of
from inference.topics.tables import top_words
from zoo.dependencies import naming_versions

__all__ = ["Card", "card", "html_of_tree"]

_COLOURS = {True: "#1b7a43", False: "#b3261e", None: "#6b5900"}
_MOST_TOPICS = 6
_NEXT = "inference.diagnostics.profiles(tree) has the answers, inference.report.report(tree, path) the page"


class Card(NamedTuple):
    """A fit in a few lines; a notebook shows it as HTML, ``print`` as text.

    Attributes:
        good: the verdict; None: a caution.
        verdict: in a sentence.
        reasons: why, and the next step.
        facts: name to text: model, method, data, clusters or topics.
    """

    good: bool | None
    verdict: str
    reasons: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """The card as text."""
        width = max(len(name) for name, _ in self.facts)
        lines = [f"{name:<{width}}  {text}" for name, text in self.facts]
        return "\n".join([" ".join((self.verdict, *self.reasons)), *lines])

    def _repr_html_(self) -> str:
        """The card as HTML, colours of its own for the verdict alone."""
        why = " ".join(map(html.escape, self.reasons))
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left;padding-right:1em">{html.escape(name)}'
            f'</th><td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in self.facts
        )
        colour = _COLOURS[self.good]
        return (
            f'<div style="border-left:4px solid {colour};padding:.3em .8em;max-width:60em">'
            f'<p style="margin:.2em 0"><strong style="color:{colour}">{html.escape(self.verdict)}</strong> '
            f'{why}</p><table style="border:0;margin:.3em 0">{rows}</table></div>'
        )


@naming_versions()
def card(tree: xr.DataTree) -> Card:
    """Describe a fit in a few lines, the verdict first.

    Args:
        tree: a fit.

    Returns:
        The card, which ``print`` writes as text and a notebook shows as HTML.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it is not a fit, or has no draws.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> card(tree).good
        True
    """
    check_tree(tree)
    model, judgement = model_of(tree), verdict(tree)
    first, rest = sentences(judgement)
    attrs, sizes = tree.attrs, draws_of(tree).sizes
    draws = f"{sizes['chain']} chains of {sizes['draw']} draws"
    if kind_of(tree) != "sampling" or sizes["chain"] == 1:
        draws = "one estimate" if kind_of(tree) == "point" else f"{sizes['draw']} draws"
    facts = [("model", type(model).__name__)]
    facts.append(("method", f"{attrs.get('method')}, seed {attrs.get('seed')}; {draws}"))
    if "observed_data" in tree.children:
        held = tree["observed_data"].to_dataset()
        parts = [
            f"{name}: {' x '.join(map(str, value.shape))}"
            for name, value in held.data_vars.items()
            if value.ndim == 2
        ]
        if not parts:
            parts = [
                f"{key.removeprefix('num_')}: {value}" for key, value in held.attrs.items() if "num_" in key
            ]
        facts.append(("data", ", ".join(parts)))
    if model.roles.cluster is not None:
        facts.append(("clusters", number_in_words(tree)))
    if model.roles.topic is not None:
        words = top_words(tree, 4)
        named = [f"{topic}: {', '.join(map(str, row))}" for topic, row in words.head(_MOST_TOPICS).iterrows()]
        more = "; ..." if len(words) > _MOST_TOPICS else ""
        facts.append(("topics", "; ".join(named) + more))
    facts.append(("next", _NEXT))
    return Card(judgement.good, first, tuple(rest), tuple(facts))


@naming_versions()
def html_of_tree(tree: Any) -> str:
    """Return the HTML of a tree in a notebook: the card of a fit above what xarray shows of any tree.

    Args:
        tree: a DataTree.

    Returns:
        HTML.
    """
    whole = tree._repr_html_()
    if not {"model", "model_fields", "method"} <= set(tree.attrs) or "posterior" not in tree.children:
        return whole
    try:
        own = card(tree)._repr_html_()
    except ValueError:  # a part of a fit, or one of a model that is not registered here
        return whole
    return f"{own}<details><summary>groups of the tree</summary>{whole}</details>"
