"""What a model declares of the tables that it takes; its other facts about data follow from that."""

from typing import Any, NamedTuple

__all__ = ["ANY", "NUMBERS", "OfTables", "Table"]

NUMBERS = ("real", "positive", "date")  # kinds of columns, as of `zoo.intake.KINDS`
ANY = (*NUMBERS, "count", "yes/no", "category", "ordered")


class Table(NamedTuple):
    """A part of the data, as a model declares it.

    Attributes:
        name: of its site; with a star there is one such part for each of the model's families.
        cells: kinds of columns that it takes, ``"documents"``, or ``"class_labels"`` beside numbers.
        missing: whether cells may be missing.
        sparse: what a sparse matrix holds: ``"reals"`` or ``"counts"``; None: the part is dense.
        optional: whether new rows may come without it.
        one_family: whether all columns have the same family.
    """

    name: str
    cells: tuple[str, ...] = NUMBERS
    missing: bool = True
    sparse: str | None = None
    optional: bool = False
    one_family: bool = False


class OfTables:
    """A fact that follows from the tables that a model declares, asked of the model or of its class.

    Of a class with a starred table it is None: its data say how many there are.

    Attributes:
        fact: from a tuple of tables.
    """

    def __init__(self, fact: Any) -> None:
        """Remember how the fact follows from the tables."""
        self.fact = fact

    def __get__(self, model: Any, owner: Any = None) -> Any:
        """The fact."""
        if model is not None:
            return self.fact(model.tables)
        return None if any("*" in table.name for table in owner.data) else self.fact(owner.data)
