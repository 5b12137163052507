"""Shapes of the arrays that public functions of ``zoo`` take and return, as annotations.

An annotation such as `Rows` is ``Array`` to type checkers, with a `Shape` beside it: the kind of its numbers
and the names of its axes in the notation of jaxtyping. Axes of one name in one call have one size. Nothing is
checked when the library runs and jaxtyping is not needed; ``tests/test_array_shapes.py`` makes jaxtyping's
types of these and lets beartype enforce them.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

from jax import Array

__all__ = [
    "Assignments",
    "Cells",
    "Covariances",
    "Features",
    "KernelParams",
    "Loadings",
    "OneOrMore",
    "OneOrMoreStatistics",
    "Outputs",
    "ParamCovariance",
    "PerComponent",
    "PerRow",
    "Predicted",
    "RowOrRows",
    "Rows",
    "RowsByComponent",
    "Scalar",
    "Scores",
    "Shape",
    "Statistics",
    "Values",
    "View",
]


class Shape(NamedTuple):
    """The kind of an array's numbers and its axes.

    Attributes:
        axes: names of the axes, in the notation of jaxtyping; empty for a scalar.
        kind: a type of jaxtyping, such as ``"Float"`` or ``"Int"``.
    """

    axes: str
    kind: str = "Float"


Rows = Annotated[Array, Shape("num_observations num_features")]
Outputs = Annotated[Array, Shape("num_observations num_outputs")]
View = Annotated[Array, Shape("num_observations _")]  # one of several tables of the same rows
Predicted = Annotated[Array, Shape("num_observations num_predicted")]
Loadings = Annotated[Array, Shape("num_columns num_latents")]
ParamCovariance = Annotated[Array, Shape("num_params num_params")]
KernelParams = Annotated[Array, Shape("*columns 2")]
PerRow = Annotated[Array, Shape("num_observations")]
Scores = Annotated[Array, Shape("num_observations num_scores")]
Covariances = Annotated[Array, Shape("num_observations num_scores num_scores")]
RowsByComponent = Annotated[Array, Shape("num_observations num_components")]
Assignments = Annotated[Array, Shape("num_observations", "Int")]
RowOrRows = Annotated[Array, Shape("*rows num_features")]
Features = Annotated[Array, Shape("*rows num_statistics")]
Statistics = Annotated[Array, Shape("num_components num_statistics")]
PerComponent = Annotated[Array, Shape("num_components")]
OneOrMoreStatistics = Annotated[Array, Shape("*components num_statistics")]
OneOrMore = Annotated[Array, Shape("...")]  # a posterior of many components broadcasts one row's statistics
Cells = Annotated[Array, Shape("*cells")]
Scalar = Annotated[Array, Shape("")]
Values = Mapping[str, Array]  # of sites or variables, by their names
