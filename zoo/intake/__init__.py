"""From what a person passes, or a file holds, to arrays, labels and kinds of columns.

A table of pandas, or of a file, is read by what its columns hold (real numbers, counts, yes/no, categories,
dates, ids); an array is numbers and stays as it is. What a model takes it declares as a `Table`.

>>> import pandas as pd
>>> from zoo.intake import read_columns
>>> print(read_columns(pd.DataFrame({"age": [31.5, None, 18.25], "smoker": ["yes", "no", "yes"]})))
age: real, 1 missing; smoker: yes/no
"""

from zoo.intake.kinds import KINDS, MOST_FEW, Column, Columns, date_in_words, plain_numbers, read_columns
from zoo.intake.tables import ANY, NUMBERS, PartNames, Table

__all__ = [
    "ANY",
    "KINDS",
    "MOST_FEW",
    "NUMBERS",
    "Column",
    "Columns",
    "PartNames",
    "Table",
    "date_in_words",
    "plain_numbers",
    "read_columns",
]
