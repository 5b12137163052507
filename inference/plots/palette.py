"""Colours, markers and lines that colour-blind readers can tell apart (Okabe and Ito 2008)."""

__all__ = ["COLOURS", "LINES", "MARKERS"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
