"""``zoo show``: a model's card, read from source files."""

from types import SimpleNamespace

from inference.cli.naming import own_model
from inference.cli.paths import target
from inference.cli.printing import line_width
from inference.numerics.atomic_files import replacing
from zoo.cards import read_card
from zoo.cards.page import card_as_markdown, card_as_text


def show(options: SimpleNamespace) -> int:
    """Print a model's card: its assumptions, methods and the claims of its paper; or write it as a page."""
    card = read_card(own_model(options.model))
    if options.out is None:
        print(card_as_text(card, line_width()))
        return 0
    out = target("--out", options.out, f"{card.name}.md", force=options.force, endings=(".md",))
    place = out.settled()
    with replacing(place) as file:
        file.write(card_as_markdown(card).encode("utf-8"))
    print(f"saved to {place}")
    return 0
