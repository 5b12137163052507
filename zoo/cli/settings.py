"""``--set key=value`` as Python values, without evaluating anything.

A value is a Python literal (``20``, ``1e-3``, ``true``), a call from a fixed table (``Gamma(2, 1)``), a tuple
of these (``(bernoulli, Ordinal(6))``), or else the text itself (``stick_breaking``).
"""

import ast
import importlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Call", "parse_settings", "resolve"]

_WORDS = {"true": True, "false": False, "none": None}
_CALLS: dict[str, tuple[str, str, bool]] = {  # name -> module, attribute, whether it is built from the data
    "Gamma": ("numpyro.distributions", "Gamma", False),
} | {
    family: ("zoo.conjugate", f"{family}.from_data", True)
    for family in (
        "BernoulliBeta",
        "BinomialBeta",
        "ExponentialGamma",
        "GammaKnownShape",
        "GaussianKnownCovariance",
        "GaussianKnownMean",
        "GaussianWishart",
        "MultinomialDirichlet",
        "NormalGamma",
        "PoissonGamma",
        "SharedGaussianWishart",
        "SphericalNormalGamma",
    )
}
_CALLS |= {
    family: ("zoo.exponential_family", family, False)
    for family in (
        "Bernoulli",
        "Binomial",
        "Categorical",
        "Exponential",
        "GammaWithShape",
        "Gaussian",
        "NegativeBinomial",
        "Ordinal",
        "Poisson",
    )
}
_CALLS |= {
    kernel: ("zoo.kernels", kernel, False) for kernel in ("Linear", "Polynomial", "Precomputed", "RBF")
}


class Call(NamedTuple):
    """A prior as it was written, to be built when its module is wanted.

    Attributes:
        name: key in the table of calls.
        args: positional arguments, literals.
        kwargs: keyword arguments, literals.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def parse_settings(texts: Iterable[str], known: Sequence[str], what: str) -> dict[str, Any]:
    """``["a=1", "b=Gamma(2, 1)"]`` as a dictionary.

    Args:
        texts: settings as written.
        known: the keys there are.
        what: what they are keys of, for the message.

    Returns:
        Key to value, calls as `Call`.

    Raises:
        ValueError: an unknown key, a key given twice, a setting without ``=``, an unknown call.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not value:
            raise ValueError(f"a setting is written key=value; got {text!r}")
        if key not in known:
            raise ValueError(f"{what} has no setting {key!r}; it has: {', '.join(known)}")
        if key in settings:
            raise ValueError(f"{key} is set twice")
        settings[key] = _parse_value(value)
    return settings


def resolve(settings: Mapping[str, Any], data: Sequence[Any]) -> dict[str, Any]:
    """The settings with each `Call` made; priors that follow the data are built from them.

    Args:
        settings: what `parse_settings` gave.
        data: from which priors read their defaults.

    Returns:
        Key to value.
    """
    return {key: _resolved(value, data) for key, value in settings.items()}


def _resolved(value: Any, data: Sequence[Any]) -> Any:
    if isinstance(value, tuple) and not isinstance(value, Call):
        return tuple(_resolved(member, data) for member in value)
    return _build(value, data) if isinstance(value, Call) else value


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


def _parse_call(name: str, call: ast.Call) -> Call:
    if name not in _CALLS:
        raise ValueError(f"no prior or kernel is called {name!r}; there are: {', '.join(_CALLS)}")
    try:
        args = tuple(ast.literal_eval(argument) for argument in call.args)
        kwargs = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except ValueError:
        raise ValueError(
            f"the arguments of {name} must be numbers or other literals; got {ast.unparse(call)}"
        ) from None
    return Call(name, args, kwargs)


def _build(call: Call, data: Sequence[Any]) -> Any:
    module, attribute, from_data = _CALLS[call.name]
    target = importlib.import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    return target(*(data if from_data else ()), *call.args, **call.kwargs)
