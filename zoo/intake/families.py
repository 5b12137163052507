"""Families by what columns hold: one table, from the kind of a column to its family in every model.

A field says that it holds families (see `zoo.fields`), and the tables of a model say whether all columns must
agree. Tables of pandas are read by what their columns hold; the cells of an array are zeros and ones where a
family must be chosen for them, and real numbers in mixtures.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

from zoo.conjugate.categorical_dirichlet import CategoricalDirichlet
from zoo.conjugate.cellwise import BernoulliBeta, PoissonGamma
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.gaussian import GaussianWishart
from zoo.conjugate.normal_gamma import NormalGamma
from zoo.conjugate.product import Product
from zoo.exponential_family import Categorical, Gaussian, Ordinal
from zoo.fields import family_field
from zoo.intake.kinds import Column, Columns
from zoo.intake.tables import numbered
from zoo.model import Model

AUTO = "auto"  # the name of a family that the columns of a table decide
ROWS_PER_COLUMN = 5  # of a covariance of real columns beside others
_NORMAL = Gaussian(noise_variance=None)

#: Kind of a column to the family of its cells in a projection, and in a component of a mixture.
FAMILIES: Mapping[str, tuple[Any, type[ComponentPrior]]] = {
    "real": (_NORMAL, NormalGamma),
    "date": (_NORMAL, NormalGamma),
    "positive": (_NORMAL, NormalGamma),
    "count": ("poisson", PoissonGamma),
    "yes/no": ("bernoulli", BernoulliBeta),
    "category": (Categorical, CategoricalDirichlet),
    "ordered": (Ordinal, CategoricalDirichlet),
}


def families_for(model: Model | type[Model], columns: Sequence[Columns | None]) -> tuple[Any, ...]:
    """The family of the cells of each part, in a projection; two words are yes and no.

    Args:
        model: whose tables say whether all columns of a part must agree.
        columns: of each part; None of an array, whose cells are zeros and ones.

    Returns:
        For each part a family, its name, or a tuple with one for each column.
    """
    one_family = model.data[0].one_family

    def of(own: Columns) -> Any:
        each = tuple(map(_family_of, own.kept))
        agree = len({repr(family) for family in each}) == 1
        if one_family and not (agree and isinstance(each[0], str)):
            return _NORMAL
        return each[0] if agree else each

    return tuple("bernoulli" if own is None else of(own) for own in columns)


def _family_of(column: Column) -> Any:
    family = FAMILIES["yes/no" if column.has_two_words else column.kind][0]
    if isinstance(family, str):
        return family
    if isinstance(family, type):
        return family(len(column.levels))
    return family


def components_of(columns: Columns) -> ComponentPrior | None:
    """The family of the components of a mixture.

    Real columns, dates and the logarithms of positive columns have one Gaussian with full covariance; beside
    other columns they are independent where the table has fewer than 5 rows for each of them.

    Args:
        columns: of a table.

    Returns:
        The family, not filled; None: a Gaussian of all columns.
    """
    kept = columns.kept
    if {column.kind for column in kept} <= {"real", "date"}:
        return None
    normal = [place for place, column in enumerate(kept) if FAMILIES[column.kind][1] is NormalGamma]
    suffices = columns.num_rows is None or columns.num_rows >= ROWS_PER_COLUMN * len(normal)
    is_joint = len(normal) > 1 and suffices
    groups: dict[Any, list[int]] = {}
    for place, column in enumerate(kept):
        family = GaussianWishart if is_joint and place in normal else FAMILIES[column.kind][1]
        levels = {"levels": column.levels} if family is CategoricalDirichlet else {}
        groups.setdefault((family, tuple(levels.items())), []).append(place)
    families = tuple(family(**dict(levels)) for family, levels in groups)
    logs = tuple(place for place, column in enumerate(kept) if column.kind == "positive")
    if len(groups) == 1 and not logs:
        return families[0]
    return Product(families, tuple(map(tuple, groups.values())), logs)


def as_taken(model: Model, columns: Sequence[Columns | None]) -> tuple[Columns | None, ...]:
    """What tables hold as the families of a model take it: levels numbered, logarithms where it has them.

    Args:
        model: whose families are known.
        columns: of each part of the data; None of an array.

    Returns:
        The columns of each part.

    Raises:
        ValueError: a column of categories where the model takes no levels, or one that was said to be
            log-normal where it takes the numbers as they are.
    """
    found: list[Columns | None] = list(columns)
    for place, (own, family) in enumerate(zip(columns, model.part_families, strict=False)):
        if own is not None:
            name = type(model).__name__
            logs = {*family.logs} if isinstance(family, ComponentPrior) else None
            found[place] = numbered(own, family, name).with_logs(logs, name)
    return tuple(found)


def for_data(model: "Model", *data: Any) -> Any:
    """The model whose components know which cells of these rows are missing; another model as it is.

    Args:
        model: with its families.
        *data: parts of the data as arrays, in the model's order.

    Returns:
        The model.
    """
    held = getattr(model, field := family_field(model), None)
    own = held.with_patterns(*data) if isinstance(held, ComponentPrior) else held
    return model if own is held else model.replaced(**{field: own})


@dataclasses.dataclass(frozen=True, eq=False)
class ChoosesFamily(Model):
    """A model whose families may be `AUTO`: until data decide, those cells are zeros and ones.

    Attributes:
        has_steep_cells: whether integrals over latents take finer nodes, see `zoo.answers.Answers.resolving`.
    """

    has_steep_cells: bool = dataclasses.field(
        default=False, init=False, repr=False, metadata={"static": True}
    )
    _given: ClassVar[Mapping[str, Any] | None] = None

    def __post_init__(self) -> None:
        """Keep the fields as given where a family is open, before what follows from it takes their place."""
        held = getattr(self, field := family_field(self))
        names = (held,) if isinstance(held, str) else held if isinstance(held, tuple | list) else ()
        if any(map(_is_auto, names)):
            given = {own.name: getattr(self, own.name) for own in dataclasses.fields(self) if own.init}
            object.__setattr__(self, "_given", given)
            settled = tuple("bernoulli" if _is_auto(name) else name for name in names)
            object.__setattr__(self, field, settled[0] if isinstance(held, str) else settled)
        super().__post_init__()

    def with_families(self, columns: Sequence[Columns | None]) -> Any:
        """The model with the families of the columns of tables, where none were given.

        Args:
            columns: of each part of the data; None of an array.

        Returns:
            The model.
        """
        if self._given is None:
            return self
        field, chosen = family_field(self), families_for(self, columns)
        held = self._given[field]
        settled: Any = chosen[0]
        if not isinstance(held, str):
            both = zip(held, (*chosen, *["bernoulli"] * len(held)), strict=False)
            settled = tuple(own if _is_auto(name) else name for name, own in both)
        return type(self)(**dict(self._given) | {field: settled})


def _is_auto(family: object) -> bool:
    return isinstance(family, str) and family == AUTO


def dim_labels(
    model: Model, coords: Mapping[str, Sequence[Any]], columns: Sequence[Columns | None] = ()
) -> dict[str, Sequence[Any]]:
    """Labels of dims that are no rows or columns of the data, such as levels and groups of columns.

    Args:
        model: with its families.
        coords: labels of rows and columns, by dim.
        columns: of each part of the data; None of a part that is an array.

    Returns:
        Dim to labels, of the families that add any.
    """
    labels: dict[str, Sequence[Any]] = {}
    for name, family, own in zip_longest(model.data_names, model.part_families, columns):
        if family is None:
            continue
        dim = model.variable_dims[name][-1]
        levels = {} if own is None else {column.name: column.levels for column in own.kept}
        of_family = family.labels_of(coords.get(dim), levels)
        labels |= {key + dim.removeprefix("feature"): held for key, held in of_family.items()}
    return labels
