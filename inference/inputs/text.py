"""Documents from dense or sparse counts, from tables with words as columns, or from texts.

Texts are counted by scikit-learn's ``CountVectorizer`` with its defaults (lower case, words of two letters
and more); for anything else run it yourself and pass the counts as a DataFrame or as `WordCounts`. A fit
remembers its vocabulary. New documents with named words are brought to it: words that the fit has not seen
are dropped and counted, words they lack count zero.
"""

import importlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from inference.algorithm import TEXT_COLUMN
from zoo.checks import check_choice, check_unique, first_of, warn
from zoo.documents.bags import as_counts
from zoo.intake import Columns, read_columns
from zoo.sparse import SparseCounts


@dataclass(frozen=True)
class WordCounts:
    """Counts whose columns have names.

    Attributes:
        counts: the documents.
        words: name of each column.
        documents: name of each row; None: numbered.
        column: of a table, whose texts these are; None: they are of none.
    """

    counts: SparseCounts
    words: Sequence[str]
    documents: Sequence[str] | None = None
    column: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Documents and words."""
        return self.counts.shape

    def __len__(self) -> int:
        """Number of documents."""
        return self.counts.shape[0]


def read_documents(*data: Any) -> tuple[tuple[SparseCounts], dict[str, Any]]:
    """The documents as sparse counts, and the names of documents and words by dim.

    Raises:
        TypeError: data in several parts, or not numbers.
        ValueError: cells that are no counts, two words of one name, or a dense array too large to be meant.
    """
    if len(data) != 1:
        raise TypeError(f"a topic model takes counts alone; got {len(data)} parts of data")
    named = _named(data[0])
    if named is None:
        return (as_counts(data[0]),), {}
    remedy = "" if hasattr(data[0], "columns") else "add the columns of equal words up"
    check_unique(named.words, "counts", "words", remedy)
    coords: dict[str, Any] = {"word": list(named.words)}
    if named.documents is not None:
        coords["document"] = list(named.documents)
    if named.column is not None:
        coords[TEXT_COLUMN] = [named.column]
    return (named.counts,), coords


def as_counted(documents: Any, column: str | None = None) -> Any:
    """Bags of words, and the column of texts of a table, as counts with names; anything else as it is.

    Args:
        documents: a dict of words and their counts for each document, by the document's name or in a list;
            a list of words for each; bags of gensim, a list of pairs of a word's number and count for each
            document, whose words are called by their numbers; or a table of pandas with columns of texts, of
            which the longest are taken, and none of counts.
        column: of a table, that holds the texts; None: it is told from the cells.

    Returns:
        The counts.

    Raises:
        ValueError: a table of texts without that column.
    """
    names = None
    if isinstance(documents, Mapping) and all(isinstance(bag, Mapping) for bag in documents.values()):
        names, documents = list(map(str, documents)), list(documents.values())
    if isinstance(documents, pd.DataFrame):
        return _with_text_column(documents, column)
    if not isinstance(documents, list | tuple) or not documents or not all(map(_is_bag, documents)):
        return documents
    bags = [bag if isinstance(bag, Mapping) or not _are_words(bag) else Counter(bag) for bag in documents]
    bags = [list(bag.items() if isinstance(bag, Mapping) else bag) for bag in bags]
    words = sorted({word for bag in bags for word, _ in bag}, key=lambda word: (isinstance(word, str), word))
    place = {word: number for number, word in enumerate(words)}
    rows = np.repeat(np.arange(len(bags)), list(map(len, bags)))
    columns = np.array([place[word] for bag in bags for word, _ in bag], dtype=np.int64)
    counts = np.array([count for bag in bags for _, count in bag], dtype=float)
    matrix = csr_array((counts, (rows, columns)), shape=(len(bags), max(1, len(words))))
    return WordCounts(as_counts(matrix), list(map(str, words)) or ["(none)"], names)


def _is_bag(bag: Any) -> bool:
    """Whether a document is a dict of counts, pairs as gensim has them, or a list of words."""
    if isinstance(bag, Mapping):
        return all(isinstance(count, Real) for count in bag.values())
    return isinstance(bag, list) and (
        _are_words(bag)
        or all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Integral) for pair in bag)
    )


def _are_words(bag: list) -> bool:
    return all(isinstance(word, str) for word in bag)


WORDS_OF_TEXT = 3.0  # words of a cell, on average, from which on a column holds texts


def _with_text_column(table: pd.DataFrame, wanted: str | None) -> Any:
    """The texts of a table, labelled by its ids, unless more columns are counts than a text has words."""
    if not table.attrs.get("has_columns", True):
        return _counted(table.iloc[:, 0].tolist())
    name = next((own for own in table.columns if str(own) == wanted), None)
    if name is None and (name := text_column(table)) is None:
        return table
    if wanted is not None and str(name) != wanted:
        have = ", ".join(map(str, table.columns))
        raise ValueError(f"new data lack the column {wanted} of the fit, which holds texts; they have {have}")
    others = table.drop(columns=name)
    columns = read_columns(others) if others.shape[1] else None
    numbers = others.select_dtypes("number").fillna(0)
    if wanted is None and ((numbers >= 0) & (numbers % 1 == 0)).all().sum() > _words_of_a_cell(table[name]):
        return table
    cells = table[name].fillna("").astype(str).tolist()
    left = [column.name for column in columns.columns if column.name != columns.label] if columns else []
    if left and wanted is None:
        warn(f"the documents are the texts of the column {name!r}; columns left out: {', '.join(left)}")
    label = None if columns is None else columns.label
    labels = table.index if label is None else table[next(c for c in table.columns if str(c) == label)]
    found = _counted(cells)
    return WordCounts(found.counts, found.words, list(map(str, labels)), str(name))


def text_column(table: pd.DataFrame) -> Hashable | None:
    """The column of a table that holds texts, of several the longest; None if there is none."""
    if table.columns.has_duplicates:
        return None
    words = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name].dtype)]
    texts = [name for name in words if _holds_texts(table[name])]
    return max(texts, key=lambda name: _words_of_a_cell(table[name]), default=None)


def _holds_texts(cells: pd.Series) -> bool:
    present = cells.dropna()
    if not len(present) or not all(isinstance(cell, str) for cell in present):
        return False
    return _words_of_a_cell(present) >= WORDS_OF_TEXT


def _words_of_a_cell(cells: pd.Series) -> float:
    return cells.dropna().str.split().str.len().mean()


def matching_words(counts: Any, words: np.ndarray) -> Any:
    """New documents with the columns of a fit; those without names must have as many (checked later).

    Columns of one name are added up. A warning counts the tokens that are dropped because the fit has not
    seen their words.
    """
    named = _named(counts)
    if named is None:
        return counts
    matched, dropped = to_vocabulary(named, words)
    _warn_of_dropped(dropped)
    return WordCounts(matched, list(words), named.documents)


def warn_of_unseen(documents: Any, columns: Columns | None) -> None:
    """Warn of tokens in the columns of a table that the one of the fit did not have, as of texts."""
    if columns is None or not isinstance(documents, pd.DataFrame):
        return
    known = [column.name for column in columns.columns]
    counts = documents.drop(columns=known, errors="ignore").select_dtypes("number")
    _warn_of_dropped(int(np.nansum(counts.to_numpy(float))))


def _warn_of_dropped(number: int) -> None:
    if number:
        warn(f"{number} tokens of new documents are of words that the fit has not seen: they are dropped")


def to_vocabulary(documents: Any, words: Sequence[str], *, unseen: str = "drop") -> tuple[SparseCounts, int]:
    """Documents with named words as counts over a given vocabulary.

    Args:
        documents: a DataFrame, `WordCounts`, or texts.
        words: the vocabulary.
        unseen: ``"drop"`` or ``"error"``, for other words.

    Returns:
        The counts, and how many tokens were dropped.

    Raises:
        TypeError: documents whose words have no names.
        ValueError: unseen words, if they are to be an error.
    """
    check_choice("unseen", unseen, ("drop", "error"))
    named = _named(documents)
    if named is None:
        raise TypeError("documents must have named words: a DataFrame, WordCounts or texts")
    place = {str(word): number for number, word in enumerate(words)}
    column = np.array([place.get(str(word), -1) for word in named.words], dtype=np.int64)
    counts = named.counts
    seen = column[counts.word] >= 0
    dropped = int(counts.count[~seen].sum())
    if dropped and unseen == "error":
        strange = sorted({str(named.words[word]) for word in counts.word[~seen & (counts.count > 0)]})
        raise ValueError(f"{dropped} tokens are of words that the fit has not seen: {first_of(strange, 5)}")
    kept = counts.document[seen], column[counts.word[seen]], counts.count[seen]
    return SparseCounts(*kept, (counts.shape[0], len(place))), dropped


def _named(data: Any) -> WordCounts | None:
    """The documents with the names of their words; None if these have none."""
    if isinstance(data, WordCounts):
        return data
    if hasattr(data, "columns"):
        return WordCounts(as_counts(data), list(data.columns), list(data.index))
    texts = data.tolist() if hasattr(data, "dtype") and data.ndim == 1 and data.dtype.kind in "OUT" else data
    if isinstance(texts, list | tuple) and texts and all(isinstance(text, str) for text in texts):
        return _counted(texts)
    return None


class TextChunks:
    """Texts that come in chunks, as counts of the words of all of them.

    The vocabulary is what scikit-learn's ``CountVectorizer`` makes of all texts at once: their words in
    order. It takes a pass of its own; the words are held, and no text.

    Args:
        chunks: lists of texts, iterated over for every pass.

    Attributes:
        words: the vocabulary.
    """

    def __init__(self, chunks: Iterable[Sequence[str]]) -> None:
        """Read all texts once."""
        self.chunks = chunks
        words_of, found = _vectoriser().build_analyzer(), set()
        for texts in chunks:
            for text in texts:
                found.update(words_of(text))
        if not found:
            raise ValueError("the texts hold no word of two letters or more: there is nothing to fit")
        self.words = sorted(found)

    def __iter__(self) -> Iterator[WordCounts]:
        """The counts of one pass."""
        vectoriser = _vectoriser(vocabulary=self.words)
        for texts in self.chunks:
            yield WordCounts(SparseCounts.from_matrix(vectoriser.transform(texts)), self.words)


def _counted(texts: Sequence[str]) -> WordCounts:
    vectoriser = _vectoriser()
    matrix = vectoriser.fit_transform(texts)
    return WordCounts(SparseCounts.from_matrix(matrix), list(vectoriser.get_feature_names_out()))


def _vectoriser(**options: Any) -> Any:
    try:
        return importlib.import_module("sklearn.feature_extraction.text").CountVectorizer(**options)
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "counting the words of texts needs scikit-learn, which is not installed: pip install scikit-learn"
        ) from None
