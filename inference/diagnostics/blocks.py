"""What the answers of a fit are made of, whether a terminal prints them or a page shows them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

_MOST_CELLS = 4  # on a card


class AnswerCard(NamedTuple):
    """What there is to know about a cluster, a topic or a latent.

    Attributes:
        heading: its number, such as ``"cluster 0"``.
        name: suggested in words; empty: none.
        share: of rows, words or variance; NaN: not known.
        shown: the share in words.
        facts: label to text.
        apart: of facts that are cells of columns, how far they are from the others, in standard deviations.
        told: longer facts, label to text, which are not set side by side.
    """

    heading: str
    name: str
    share: float
    shown: str
    facts: Mapping[str, str] = {}
    apart: Mapping[str, float] = {}
    told: Mapping[str, str] = {}

    @property
    def decisive(self) -> dict[str, str]:
        """The cells that set it most apart, and all facts that are no cells; not its share again."""
        most = sorted(self.apart, key=lambda label: -abs(self.apart[label]))[:_MOST_CELLS]
        others = [
            label for label in self.facts if label not in self.apart and not label.startswith("share of")
        ]
        return {label: self.facts[label] for label in [*most, *others]} | dict(self.told)


class Cards(NamedTuple):
    """Cards of one kind, the largest first.

    Attributes:
        title: what they are.
        cards: the cards.
        of: what shares are of.
        note: what was left out.
    """

    title: str
    cards: Sequence[AnswerCard]
    of: str
    note: str = ""

    @property
    def cells(self) -> pd.DataFrame:
        """The facts as a table, a column a card."""
        return pd.DataFrame({card.heading: dict(card.facts) for card in self.cards}).fillna("-")

    @property
    def apart(self) -> pd.DataFrame:
        """How far cells are from those of the other cards, in standard deviations; a row a fact."""
        return pd.DataFrame({card.heading: dict(card.apart) for card in self.cards})


class ShownTable(NamedTuple):
    """A table.

    Attributes:
        caption: its title.
        frame: the cells, as text or numbers; the index gives the first columns, and its names their headings.
        decisive: columns that a reader must not miss. They come first, beside the index, and are bold.
        note: what its columns are, in a line below the title.
        shades: from -1 to 1, of cells that are coloured by them, with index and columns of ``frame``.
    """

    caption: str
    frame: pd.DataFrame
    decisive: Sequence[str] = ()
    note: str = ""
    shades: pd.DataFrame | None = None
