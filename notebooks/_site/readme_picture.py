"""The README's picture: ``python -m notebooks._site.readme_picture`` draws it anew from the README's own fit."""

from pathlib import Path

import matplotlib

import inference
import zoo
from inference import plots
from zoo.datasets import load

__all__ = ["draw"]

PICTURE = Path(__file__).parents[1] / "_static" / "old_faithful.svg"


def draw(path=PICTURE):
    """Fit Old Faithful as the README does and write the picture, the same bytes for the same versions.

    Args:
        path: of the file.
    """
    x = load("faithful").frame()
    tree = inference.fit(zoo.Mixture.from_data(x, num_components=10), x, seed=0)
    settings = {"svg.hashsalt": "zoo", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings):
        figure = plots.plot_mixture(tree)
        figure.savefig(path, metadata={"Date": None}, facecolor="white", bbox_inches="tight")


if __name__ == "__main__":
    draw()
