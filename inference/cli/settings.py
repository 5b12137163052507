"""The values that words of the command line stand for, read without evaluating or importing anything.

A value of ``--set key=value`` is a Python literal (``20``, ``1e-3``, ``true``), a call from a fixed table
(``Gamma(2, 1)``, or ``NormalGamma(rate=Gamma(2, 1))``, whose arguments are literals or such calls), a tuple
of these (``(bernoulli, Ordinal(6))``), or else the text itself (``stick_breaking``).
"""

import ast
import csv
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zoo.naming import did_you_mean

_WORDS = {"true": True, "false": False, "none": None}
_DISTRIBUTIONS = "numpyro.distributions"
_MODULES = {  # what may be called, by its module
    _DISTRIBUTIONS: "Gamma Normal",
    "zoo.conjugate": "BernoulliBeta BinomialBeta CategoricalDirichlet ExponentialGamma GammaKnownShape "
    "GaussianKnownCovariance GaussianKnownMean GaussianWishart MultinomialDirichlet "
    "NormalGamma PoissonGamma Product SharedGaussianWishart SphericalNormalGamma",
    "zoo.exponential_family": "Bernoulli Binomial Categorical Exponential GammaWithShape Gaussian "
    "NegativeBinomial Ordinal Poisson",
    "zoo.kernels": "Linear Polynomial Precomputed RBF",
}
_SIGNED = {"Normal": (0, "loc")}  # arguments that need not be positive
_CALLS = {name: module for module, names in _MODULES.items() for name in names.split()}
_READ = {
    "separator": None,
    "decimal": {",": ",", ".": ".", "comma": ",", "point": "."},
    "header": {"yes": True, "no": False},
    "encoding": None,
    "skip_rows": {str(number): number for number in range(100)},
}
_MOST_SIZES = 100


class NamedCall(NamedTuple):
    """A call as it was written, made when its module is imported.

    Attributes:
        name: key in the table of calls.
        args: positional arguments, literals, calls or tuples of these.
        kwargs: keyword arguments, likewise.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def _pairs(
    texts: Iterable[str], what: str, form: str, split: Callable = str.partition
) -> Iterator[tuple[str, str]]:
    """Words such as ``key=value`` as pairs; ValueError for one of another form, and for a key given twice."""
    seen = set()
    for text in texts:
        key, equals, value = (part.strip() for part in split(text, "="))
        if not key or not equals or not (value or what == "--sizes"):
            raise ValueError(f"{what} is written {form}; got {text!r}")
        if key in seen:
            raise ValueError(f"{what} gives {key!r} twice")
        seen.add(key)
        yield key, value


def parse_settings(texts: Iterable[str], known: Sequence[str] | None, what: str) -> dict[str, Any]:
    """``["a=1", "b=Gamma(2, 1)"]`` as key to value, calls as `NamedCall`; ValueError for an unknown key."""
    settings: dict[str, Any] = {}
    for key, value in _pairs(texts, "a setting", "key=value"):
        if known is not None and key not in known:
            listed = f"it has: {', '.join(known)}{did_you_mean(key, known)}"
            raise ValueError(f"{what} has no setting {key!r}; {listed}")
        settings[key] = _parse_value(value)
    return settings


def resolve(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with each `NamedCall` replaced by its result; a fit fills priors of components."""
    return {key: _resolved(value) for key, value in settings.items()}


def _resolved(value: Any) -> Any:
    if isinstance(value, NamedCall):
        function = getattr(importlib.import_module(_CALLS[value.name]), value.name)
        return function(*map(_resolved, value.args), **resolve(value.kwargs))
    return tuple(map(_resolved, value)) if isinstance(value, tuple) else value


def _parse_value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return _parse_call(tree.func.id, tree)
    if isinstance(tree, ast.Tuple | ast.List):
        return tuple(_parse_value(ast.unparse(member)) for member in tree.elts)
    try:
        return ast.literal_eval(tree)
    except ValueError:  # a name or an expression
        return text


def _parse_call(name: str, call: ast.Call) -> NamedCall:
    if name not in _CALLS:
        raise ValueError(f"no prior or kernel is called {name!r}; there are: {', '.join(_CALLS)}")
    try:
        args = tuple(map(_parse_argument, call.args))
        kwargs = {str(keyword.arg): _parse_argument(keyword.value) for keyword in call.keywords}
    except _NoLiteral:
        raise ValueError(
            f"the arguments of {name} must be numbers or other literals; got {ast.unparse(call)}"
        ) from None
    if _CALLS[name] == _DISTRIBUTIONS:  # which refuse words by an error of NumPy
        named = {**dict(enumerate(args)), **kwargs}
        for key, value in named.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ValueError(
                    f"the arguments of {name} must be numbers; got {value!r} in {ast.unparse(call)}"
                )
            if value <= 0 and key not in _SIGNED.get(name, ()):
                what = "scale" if name == "Normal" else "arguments"
                raise ValueError(f"the {what} of {name} must be positive; got {value} in {ast.unparse(call)}")
    return NamedCall(name, args, kwargs)


class _NoLiteral(ValueError):
    """An argument is neither a literal nor a call."""


def _parse_argument(node: ast.expr) -> Any:
    """An argument of a call: a literal, a call such as ``Gamma(2, 1)``, or a tuple of these."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        return _parse_call(node.func.id, node)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(map(_parse_argument, node.elts))
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise _NoLiteral from None


def parse_families(texts: Iterable[str]) -> dict[str, str] | None:
    """``["income=gaussian,age=real"]`` as column to family or kind; None without any."""
    parts = (part for text in texts for part in text.split(","))
    return dict(_pairs(parts, "--families", "COLUMN=FAMILY,COLUMN=FAMILY", str.rpartition)) or None


def parse_levels(texts: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """``["opinion=never,rarely,often"]`` as column to levels, or None; ValueError for fewer than two."""
    form = "COLUMN=LOWEST,...,HIGHEST"
    found = {
        column: tuple(filter(None, map(str.strip, levels.split(","))))
        for column, levels in _pairs(texts, "--levels", form)
    }
    for column, levels in found.items():
        if len(levels) < 2:
            raise ValueError(f"--levels is written {form}; got {column}={','.join(levels)}")
    return found or None


def parse_reading(texts: Iterable[str]) -> dict[str, Any]:
    """``["decimal=,", "header=no"]`` as arguments of `zoo.datasets.read_table`; ValueError for any other."""
    found: dict[str, Any] = {}
    for name, value in _pairs(texts, "--read", "NAME=VALUE"):
        if name not in _READ:
            raise ValueError(f"--read takes NAME=VALUE with one of {', '.join(_READ)}; got {name!r}")
        words = _READ[name]
        if words is not None and value not in words:
            taken = " or ".join(words) if len(words) < 9 else f"{min(words)} to {list(words)[-1]}"
            raise ValueError(f"--read {name} takes {taken}; got {value!r}")
        found[name] = value if words is None else words[value]
    return found


def parse_sizes(fields: Sequence[str], texts: Sequence[str], whose: str) -> dict[str, list[int]]:
    """``["1:4"]`` or ``["num_latents=1,2"]`` as field to sizes, ascending; ValueError for what is none."""
    found: dict[str, list[int]] = {}
    named = (text if "=" in text else f"{fields[0]}={text}" for text in texts)
    for name, value in _pairs(named, "--sizes", "FIELD=SIZES"):
        if name not in fields:
            raise ValueError(f"{whose} has no size {name!r} to sweep; it has: {', '.join(fields)}")
        found[name] = _sizes(value, 0 if name == "num_shared" else 1)
    return found


def _sizes(text: str, least: int) -> list[int]:
    first, colon, last = text.partition(":")
    try:
        numbers = range(int(first), int(last) + 1) if colon else [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) > _MOST_SIZES or not least <= min(numbers, default=-1):
        raise ValueError(f"--sizes takes FIRST:LAST or numbers with commas, at least {least}; got {text!r}")
    return sorted(set(numbers))


def terms_of(option: str, text: str) -> list[str]:
    """The terms of an option such as ``--x a,b:d``, with commas in quotes; ValueError for an empty one."""
    try:
        terms = [term.strip() for term in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:  # a line break outside quotes
        terms = []
    if not all(terms) or not terms:
        raise ValueError(
            f"{option} has an empty name in {text!r}: write names of columns with one comma between, such as "
            f"{option} {','.join(filter(None, terms)) or 'age,income'}"
        )
    for term in terms:
        if terms.count(term) > 1:
            raise ValueError(f"{option} names {term!r} twice: write it once")
    return terms
