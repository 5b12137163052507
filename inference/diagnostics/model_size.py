r"""Numbers of components and of latents, chosen by held-out rows, by bounds and by BIC.

**Cross-validation** scores rows that a fit has not seen, with BIC beside it, for any models.

**How many latents a projection needs** has three answers, each with its weakness. The bound of VB with a
Gaussian prior of the loadings approximates the log evidence; it depends on the prior's scale and is short
of it by the cost of the factorisation. Automatic relevance determination offers the most latents at once and
counts those that keep loadings; it is one fit, and can stop in a local optimum. The held-out log density of
maximum likelihood asks for prediction, not for truth: it punishes a latent too many only mildly, and its
standard error shows how much of a difference is noise.

**How many latents several views share, and have of their own** (`zoo.Paired`), has the same three answers. In
the bound of VB a shared latent pays for its loadings in all views, so that one which serves a single view
loses to a specific one. With ``num_shared=0`` views are independent: the bound then is the sum of those of
`zoo.EPCA` of each view. Relevance determination gives each latent one precision of its loadings in all views
(its prior Gamma(1e-3, 1e-3) is nearly flat in its logarithm) and counts the latents whose squared mean
loadings exceed their variances. It finds how many there are, but a shared latent that serves one view alone
keeps its loadings too: of two views that share nothing it may say that they share one. The bound decides.

**How many components and directions a mixture of PCAs needs** is judged by a bound and by held-out rows.
The bound integrates the latents (``vb`` of `zoo.DEPCAM`: exactly for Gaussian cells), so that a component
pays for its directions; bases, scales, offsets and weights are points, and pay by Schwarz's criterion:

.. math:: B - \tfrac{P}{2} \log N, \qquad P = K \{D d - d (d + 1) / 2 + d + D\} + K - 1,

B the bound on the rows' log density without the prior of the parameters (a density of points, which is no
probability and cannot be compared across sizes), P the free parameters: the Stiefel manifold's dimension,
scales, offsets, weights. Scales at zero make their directions' parameters idle, which P does not know: the
criterion then is too strict, never too lenient. The held-out density has its latents integrated (Laplace,
or exactly). Accuracy at given classes is not used: the best density need not be the true grouping.

References: Bishop (1999), "Variational principal components"; Minka (2001), "Automatic choice of
dimensionality for PCA", on the limits of the likelihood; Schwarz (1978), "Estimating the dimension of a
model"; Tipping and Bishop (1999), mixtures of PPCA.
"""

import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jax import Array

from inference.algorithm import Ascent
from inference.diagnostics.comparison import EVIDENCE
from inference.diagnostics.prior_width import is_read_off
from inference.fitting.front_door import fit
from inference.inputs.sources import as_passed
from inference.inputs.tables import (
    check_parts,
    encoded_parts,
    joined_rows,
    label_parts,
    paired_rows,
    read_parts,
    take_parts,
)
from inference.inputs.text import read_documents
from inference.methods import method_of
from inference.methods.depcam.em import log_prior
from inference.methods.ppca.closed_form import log_densities, num_free_parameters, warn_of_floor
from inference.precision import double_precision
from inference.prediction import log_density, predict, scored
from inference.results.build import for_new_rows
from inference.results.files import model_of
from zoo.checks import as_matrix, as_plain, check_seed, take_rows, warn
from zoo.coordinates.of_models import inside
from zoo.depcam import DEPCAM
from zoo.intake import Columns
from zoo.intake.suitable_fields import check_scores_new_rows
from zoo.linear_gaussian.class_labels import are_labels, code_labels
from zoo.model import Model
from zoo.paired import Paired
from zoo.ppca import PPCA
from zoo.shapes import Values
from zoo.sppca import SPPCA

BARE = 1e-3  # concentration and rate of the precisions that relevance determination learns
STARTS = 5  # of each fit of several views: single ones end in different optima
_HELD_OUT = ["heldout", "standard_error", "difference", "difference_error"]
_SAME = 0.01  # nats a label, below which a difference is of no use however sure it is
_SIZES_WITHOUT_GAIN = 3  # after which larger ones are not tried
_LEAST = 1e-12  # a probability of the right class, so that one certain mistake is no infinite score
_MEASURED = re.compile(r"\d*\.\d+(?:e[-+]\d+)?|\d+e[-+]\d+")  # which differ from fold to fold
FEW_DRAWS = 100  # from q, over which densities of held-out rows are averaged that have no closed form


@contextmanager
def _distinct_warnings() -> Iterator[None]:
    """Warnings of many fits to parts of the same rows, each once: numbers with a point do not count."""
    told: dict[tuple[type[Warning], str], str] = {}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            yield
    finally:  # of a call that fails too
        for warning in caught:
            told.setdefault((warning.category, _MEASURED.sub("", str(warning.message))), str(warning.message))
        for (category, _), message in told.items():
            warn(message, category)


@_distinct_warnings()
def cross_validate(
    models: Mapping[Any, Model],
    *data: Any,
    method: str = "auto",
    folds: int = 5,
    seed: int = 0,
    families: Mapping[str, str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    id: str | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Compute the held-out log density of several models on the same folds, and the BIC of each on all rows.

    What the columns of a DataFrame hold, and the levels that they have, is read once from all rows: it does
    not depend on the fold.

    Args:
        models: name (such as the number of components) to model.
        *data: parts of the data as for ``fit``, rows first, but no files: arrays, tables, counts or texts,
            whose words are those of all of them.
        method: as for ``fit``.
        folds: how many parts the rows are dealt into, at random but the same for every model.
        seed: of the parts, and of each fit.
        families: as for ``fit``.
        levels: as for ``fit``.
        id: as for ``fit``.
        **settings: as for ``fit``: ``num_restarts``, ``init``, options of the method.

    Returns:
        One row a model: ``bound`` of the fit to all rows (nats, of VB where q has no points,
        else absent), ``heldout`` and its ``standard_error`` over the rows (nats per row), ``difference``
        to the best and the standard error of that paired difference, ``bic`` (where the method computes one,
        lower is better), ``log_evidence`` and ``log_evidence_se`` (of all rows, where the method tells them),
        ``fitted`` (log density per row of the rows that were fitted), ``not_converged`` (of
        all fits) and ``seconds``. The attribute ``columns`` says what columns of tables were taken to hold,
        ``read_off`` names the models with a log evidence whose priors were read off these data,
        ``why_no_evidence`` gives the reason by model where a log evidence is NaN.

    Raises:
        TypeError: ``models`` is not a mapping of models.
        ValueError: no models, one without a density of new rows, or a number of folds that the rows do not
            allow.
    """
    if not isinstance(models, Mapping) or not all(isinstance(model, Model) for model in models.values()):
        raise TypeError("models must be a dict of name to model of the zoo")
    if not models:
        raise ValueError("models is empty: give at least one")
    for model in models.values():
        check_scores_new_rows(type(model))
    check_seed(seed)
    if not data:
        raise TypeError("there is no data: call cross_validate(models, x)")
    read: dict[Any, tuple[Model, _Rows]] = {}
    for name, model in models.items():
        with warnings.catch_warnings():
            if read:  # what is told of the columns is told once
                warnings.simplefilter("ignore")
            read[name] = read_rows(model, data, families, levels, id)
    parts = next(iter(read.values()))[1].parts
    num_rows = parts[0].shape[0]
    if any(part.shape[0] != num_rows for part in parts):
        raise ValueError(f"the parts of the data have {' and '.join(str(p.shape[0]) for p in parts)} rows")
    part = _parts(num_rows, folds, seed)
    table, scores, read_off, unknown = {}, {}, [], {}
    for name, (model, rows) in read.items():
        begin = time.perf_counter()
        every = rows.take(np.full(num_rows, True))
        whole = _fit(model, every, method, seed, settings)
        if np.isfinite(whole.attrs.get(EVIDENCE[0], np.nan)) and is_read_off(whole):
            read_off.append(str(name))
        if why := whole.attrs.get("why_no_evidence"):
            unknown[str(name)] = why
        scores[name] = np.empty(num_rows)
        missed = 0
        of_folds = {"num_samples": 1} if _scores_without_draws(whole, model) else {}
        for fold in range(folds):
            held = rows.take(part == fold)
            with warnings.catch_warnings():  # told of all rows, by their numbers in the data
                warnings.filterwarnings("ignore", message=".*documents have no words")
                tree = _fit(model, rows.take(part != fold), method, seed, of_folds | settings, held)
                own = tree["log_density"] if "log_density" in tree.data_vars else log_density(tree, *held)
            scores[name][part == fold] = own.to_numpy()
            missed += not tree.attrs["converged"]
        table[name] = {
            "heldout": scores[name].mean(),
            "standard_error": scores[name].std(ddof=1) / np.sqrt(num_rows),
            "bound": _last_objective(whole) if _has_bound(whole, model) else np.nan,
            "bic": whole.attrs.get("bic", np.nan),
            **{name: float(whole.attrs[name]) for name in EVIDENCE if name in whole.attrs},
            "fitted": float(log_density(whole, *every).mean()),
            "not_converged": missed + (not whole.attrs["converged"]),
            "seconds": time.perf_counter() - begin,
        }
    for name, gap in _to_best(scores).items():
        table[name] |= gap
    columns = [*_HELD_OUT, "bic", "fitted"]
    if any(np.isfinite(row["bound"]) for row in table.values()):
        columns.insert(0, "bound")
    columns += [name for name in EVIDENCE if any(name in row for row in table.values())]
    found = pd.DataFrame.from_dict(table, orient="index")[[*columns, "not_converged", "seconds"]]
    found.attrs |= {"columns": rows.told, "read_off": read_off, "why_no_evidence": unknown}
    return found


def _parts(num_rows: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each row, dealt out at random."""
    if isinstance(folds, bool) or not isinstance(folds, int) or not 2 <= folds <= num_rows // 2:
        raise ValueError(
            f"folds must be a whole number from 2 to {num_rows // 2}, half the rows; got {folds!r}"
        )
    return np.random.default_rng(seed).permutation(num_rows) % folds


def _to_best(scores: Mapping[Any, np.ndarray]) -> dict[Any, dict[str, float]]:
    """Of each model the mean difference of its rows' scores to those of the best, and its standard error."""
    best = scores[max(scores, key=lambda name: scores[name].mean())]
    gaps = {name: own - best for name, own in scores.items()}
    return {
        name: {"difference": gap.mean(), "difference_error": gap.std(ddof=1) / np.sqrt(len(gap))}
        for name, gap in gaps.items()
    }


def recommended(table: pd.DataFrame, score: str = "heldout", least: float = 0.0) -> tuple[Any, Any]:
    """The best model of a cross-validation, and the smallest that is as good within one standard error.

    The difference to the best is paired, row by row, so its standard error is that of the difference
    (Breiman, Friedman, Olshen and Stone 1984, section 3.4.3: the rule of one standard error).

    Args:
        table: of `cross_validate`, smaller models first.
        score: its column of mean scores.
        least: a difference that is of no use, however sure it is.

    Returns:
        Two of its names.

    Raises:
        ValueError: no model has a finite score.
    """
    finite = table[np.isfinite(table[score])]
    if not len(finite):
        raise ValueError("no model gives the held-out rows a finite density")
    near = finite["difference"] >= -np.maximum(finite["difference_error"], least)
    return finite[score].idxmax(), finite.index[near][0]


def larger_untried(
    name: str,
    chosen: Iterable[int],
    tried: Iterable[int],
    most: float = np.inf,
    remedy: str = "give larger candidates",
) -> str:
    """A clause that names the largest size tried where it was chosen and is not the largest possible.

    Args:
        name: of the size.
        chosen: sizes, by one rule or several.
        tried: candidates.
        most: the largest size that the data allow.
        remedy: how larger ones are tried.

    Returns:
        The clause, which begins with a semicolon; empty where there is nothing to say.
    """
    largest = max(tried)
    if max(chosen) < largest or largest >= most:
        return ""
    return f"; {name} above {largest} was not tried, and may be better: {remedy}"


class _Rows(NamedTuple):
    """Parts of the data whose rows can be taken.

    Attributes:
        parts: arrays, outputs as they were passed, or sparse counts.
        columns: what the columns of each held that was a table, which is an array by now; else None.
    """

    parts: tuple[Any, ...]
    columns: tuple[Columns | None, ...]

    @property
    def told(self) -> str:
        """What columns of tables were taken to hold."""
        return "; ".join(str(own) for own in self.columns if own is not None)

    def take(self, which: np.ndarray) -> tuple[Any, ...]:
        """Some rows; of a table that has been read as an array, so that it is not read again."""
        return take_parts(self.parts, which)


def read_rows(
    model: Model,
    data: tuple,
    families: Mapping[str, str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    id: str | None = None,
) -> tuple[Model, _Rows]:
    """The model that suits the columns of tables, and rows that are fitted to it without being read again.

    Args:
        model: fields that it was not given are chosen by the columns.
        data: the parts of the data.
        families: as for ``fit``.
        levels: as for ``fit``.
        id: as for ``fit``.

    Returns:
        The model and the rows.
    """
    check_parts(model, data)
    data = tuple(as_passed(part, model) for part in data)
    if model.data[0].holds_documents and not isinstance(data[0], pd.DataFrame):
        data = read_documents(*data)[0]  # words are those of all documents, and no fold has fewer
    data = paired_rows(joined_rows(data, model.data_names, id), model.data_names)
    model, columns = read_parts(model, data, families, levels, id)
    parts = encoded_parts(label_parts(model, data, families, id), columns)
    model = model.encoded(*parts)[0]
    parts = (as_matrix(part) if own else _sliceable(part) for part, own in zip(parts, columns, strict=True))
    return model, _Rows(tuple(parts), columns)


def _sliceable(part: Any) -> Any:
    """A part of the data whose rows can be taken by a mask."""
    if hasattr(part, "to_scipy"):
        part = part.to_scipy()
    return part.tocsr() if hasattr(part, "tocsr") else part if hasattr(part, "iloc") else as_plain(part)


def _fit(
    model: Model, data: tuple, method: str, seed: int, settings: Mapping[str, Any], held: tuple = ()
) -> Any:
    """Fit without the warnings of fits that have not converged, which the table counts, and of labels.

    With rows that are ``held`` out the tree may be one of their densities alone.
    """
    with warnings.catch_warnings(), for_new_rows(partial(scored, held)):
        warnings.filterwarnings("ignore", message=".*has not converged")
        warnings.filterwarnings("ignore", message=".*different whole numbers")  # asked of all rows before
        return fit(model, *data, method=method, seed=seed, **settings)


def _scores_without_draws(tree: xr.DataTree, model: Model) -> bool:
    """Whether densities of new rows are read off what the fit has stored of an ascent."""
    if "method" not in tree.attrs:
        return False
    method = method_of(model, tree.attrs["method"])
    return isinstance(method, Ascent) and method.log_density is not None


@_distinct_warnings()
def choose_num_latents(
    x: Any,
    candidates: Iterable[int] | None = None,
    *,
    noise: str = "isotropic",
    folds: int = 5,
    seed: int = 0,
    fields: Mapping[str, Any] | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Choose the number of latents of `zoo.PPCA` by bound, ARD and held-out density.

    Args:
        x: rows, shape (num_observations, num_features), NaN for missing cells; an array or a DataFrame.
        candidates: numbers of latents; None: 1 to at most 10, fewer than features and half the rows.
        noise: ``"isotropic"`` or ``"diagonal"``.
        folds: of the cross-validation.
        seed: of the folds and fits.
        fields: further ones of the model, as ``{"standardize": True}``.
        **settings: of the fits by VB, as for ``fit``: ``max_iterations``, ``tolerance``, ``num_restarts``,
            ...

    Returns:
        One row a candidate, index ``num_latents``: ``bound`` (nats, Gaussian prior), ``heldout`` and
        ``standard_error`` (nats per row), ``difference`` to the best and the standard error of that paired
        difference, ``bic`` (lower is better) and, where it was offered, ``ard_relevant``, the latents that
        ARD kept of the largest candidate. The attributes ``by_bound``, ``by_ard``, ``by_heldout`` hold the
        three answers, the last one the smallest candidate within one standard error of the best held-out
        density (`recommended`), and ``note`` states them in words.

    Raises:
        TypeError: an option that fits by VB do not have, or no field of the model.
        ValueError: no candidates, some that the data do not allow, or fields that are chosen here.
    """
    given = dict(fields or {})
    for name in ("num_latents", "loading_prior", "noise"):
        if name in given:
            raise ValueError(f"{name} is chosen here: leave it out of fields")
    if misplaced := [name for name in settings if name in PPCA.__dataclass_fields__]:
        raise TypeError(f"{misplaced[0]} is a field of the model: give fields={{{misplaced[0]!r}: ...}}")
    rows = as_matrix(x)
    most = min(rows.shape[1], rows.shape[0] // 2) - 1
    candidates = range(1, min(most, 10) + 1) if candidates is None else candidates
    numbers = _candidates("candidates", candidates, most, ", fewer than features and half the rows")
    flat = {k: PPCA(num_latents=k, noise=noise, **given) for k in numbers}
    settings = {"num_samples": 1, "seed": seed, "progress": False} | settings
    models = {k: model.replaced(loading_prior="gaussian") for k, model in flat.items()}
    ard = flat[numbers[-1]].replaced(loading_prior="ard")
    with for_new_rows():
        bounds = {k: _last_objective(fit(own, x, method="vb", **settings)) for k, own in models.items()}
        offered = fit(ard, x, method="vb", **settings)
    if noise == "isotropic" and not given and np.isfinite(rows).all():
        table = _in_closed_form(flat, x, folds, seed)
    else:
        table = cross_validate(flat, x, folds=folds, seed=seed)
    table = table.loc[numbers, [*_HELD_OUT, "bic"]].rename_axis("num_latents")
    table.insert(0, "bound", pd.Series(bounds))
    relevant = int(offered["variational"]["num_relevant"])
    table["ard_relevant"] = pd.Series({numbers[-1]: float(relevant)})
    bound, heldout = int(table["bound"].idxmax()), int(recommended(table)[1])
    table.attrs |= {"by_bound": bound, "by_ard": relevant, "by_heldout": heldout}
    table.attrs["note"] = (
        f"bound: {bound} latents; ARD keeps {relevant} of {numbers[-1]}; held-out density: {heldout}"
        + larger_untried("num_latents", (bound, relevant, heldout), numbers, most)
    )
    return table


def _in_closed_form(flat: Mapping[int, PPCA], x: Any, folds: int, seed: int) -> pd.DataFrame:
    """The scores that `cross_validate` gives, all numbers of latents from one decomposition of each fold."""
    check_seed(seed)
    rows = read_rows(next(iter(flat.values())), (x,))[1]
    (x,) = rows.take(np.full(len(x), True))
    (num_rows, num_features), part = x.shape, _parts(len(x), folds, seed)
    scores, (whole, at_floor) = np.empty((len(flat), num_rows)), log_densities(x, x, list(flat))
    for fold in range(folds):
        held = part == fold
        scores[:, held], floored = log_densities(take_rows(x, ~held), x[held], list(flat))
        at_floor |= floored
    if at_floor.any():
        warn_of_floor()
    count = [num_free_parameters(model, num_features) for model in flat.values()]
    scored = {
        "heldout": scores.mean(axis=1),
        "standard_error": scores.std(axis=1, ddof=1) / np.sqrt(num_rows),
        "bic": np.log(num_rows) * np.array(count) - 2 * whole.sum(axis=1),
    }
    gaps = _to_best(dict(zip(flat, scores, strict=True)))
    table = pd.DataFrame(scored, index=list(flat)).join(pd.DataFrame.from_dict(gaps, orient="index"))
    table.attrs["columns"] = rows.told
    return table


@_distinct_warnings()
def choose_num_latents_for_classes(
    x: Any,
    y: Any,
    candidates: Iterable[int] | None = None,
    *,
    method: str = "auto",
    folds: int = 5,
    seed: int = 0,
    fields: Mapping[str, Any] | None = None,
    families: Mapping[str, str] | None = None,
    levels: Mapping[str, Sequence[Any]] | None = None,
    id: str | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Choose the number of latents of `zoo.SPPCA` by the classes of labelled rows whose labels are hidden.

    The labelled rows of each class are dealt into folds; a fit sees all rows, but not the labels of one fold,
    and predicts them. Rows without a label are in every fit.

    Args:
        x: rows, shape (num_observations, num_features), NaN for missing cells; an array or a DataFrame.
        y: class labels, shape (num_observations,) or one column, None or NaN where a row has none.
        candidates: numbers of latents; None: upwards from one fewer than classes, to 10 at most, until three
            in a row do not beat the best.
        method: as for ``fit``.
        folds: at most; no more than the smallest class has labelled rows.
        seed: of the folds and fits.
        fields: further ones of the model, as ``{"standardize": True}``.
        families: as for ``fit``.
        levels: as for ``fit``.
        id: as for ``fit``.
        **settings: as for ``fit``.

    Returns:
        One row a candidate, index ``num_latents``: ``accuracy``, the share of the labelled rows whose most
        probable class is right; ``log_score``, the mean log probability of the right class; ``difference`` to
        the best log score, and the standard error of that paired difference. Attributes: ``chosen``, the
        smallest candidate within one standard error of the best log score, or .01 nats, a hundredth of the
        probability; ``right``, class to how many of
        its labelled rows are predicted at that size; ``labelled``, class to how many there are; ``rows``; and
        ``note``, which says so where the largest candidate was chosen and larger ones are possible.

    Raises:
        ValueError: outputs that are no class labels, no candidates, or some that the data do not allow.
    """
    given = {"num_latents": 1} | dict(fields or {})
    if are_labels(y) and not hasattr(y, "iloc"):
        y = pd.Series(list(y), dtype=object)
    model, rows = read_rows(SPPCA(**given), (x, y), families, levels, id)
    if model.classes is None:
        raise ValueError("y holds numbers: give class labels, as strings, whole numbers or a categorical")
    x, y = rows.take(np.full(rows.parts[0].shape[0], True))
    codes = code_labels(y, model.classes).to_numpy()
    label = np.where(np.isnan(codes).any(axis=1), -1, np.nan_to_num(codes).argmax(axis=1))
    known = label >= 0
    part = _dealt(label, len(model.classes), folds, seed)
    num_rows, num_columns = x.shape
    most = num_rows - 1 if model.kernel is not None else min(num_rows, num_columns) - 1
    first = min(len(model.classes) - 1, most)
    stops = candidates is None
    numbers = _candidates("candidates", range(first, min(most, 10) + 1) if stops else candidates, most)
    outputs = code_labels(y, model.classes, model.label_coding).to_numpy()
    table, scores, found = {}, {}, {}
    for k in numbers:
        shares = np.full((num_rows, len(model.classes)), np.nan)
        for fold in range(part.max() + 1):
            held = part == fold
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of floors, which the score judges
                own = model.replaced(num_latents=k)
                seen = np.where(held[:, None], np.nan, outputs)
                tree = fit(own, x, seen, method=method, seed=seed, progress=False, **settings)
            shares[held] = predict(tree, x[held], what="classes").to_numpy()
        right = shares[known, label[known]]
        scores[k], found[k] = np.log(np.maximum(right, _LEAST)), shares[known].argmax(axis=1) == label[known]
        table[k] = {"accuracy": found[k].mean(), "log_score": scores[k].mean()}
        best = max(scores, key=lambda size: scores[size].mean())
        if stops and k - best >= _SIZES_WITHOUT_GAIN:
            break
    for k, gap in _to_best(scores).items():
        table[k] |= gap
    made = pd.DataFrame.from_dict(table, orient="index").rename_axis("num_latents")
    chosen = int(recommended(made, "log_score", _SAME)[1])
    counts = {name: known & (label == c) for c, name in enumerate(model.classes)}
    made.attrs |= {
        "chosen": chosen,
        "right": {name: int(found[chosen][own[known]].sum()) for name, own in counts.items()},
        "labelled": {name: int(own.sum()) for name, own in counts.items()},
        "rows": num_rows,
        "note": larger_untried("num_latents", [chosen], numbers, most, "name them")[2:],
    }
    return made


def _dealt(label: np.ndarray, num_classes: int, folds: int, seed: int) -> np.ndarray:
    """The fold of each labelled row, those of each class dealt out evenly; -1 of a row without a label."""
    check_seed(seed)
    counts = np.bincount(label[label >= 0], minlength=num_classes)
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise ValueError(f"folds must be a whole number from 2; got {folds!r}")
    if counts.min() < 2:
        raise ValueError("a class has fewer than two labelled rows, so that its label cannot be hidden")
    random, part, dealt = np.random.default_rng(seed), np.full(len(label), -1), 0
    folds = min(folds, int(counts.min()))
    for c in range(num_classes):
        rows = random.permutation(np.flatnonzero(label == c))
        part[rows] = (dealt + np.arange(len(rows))) % folds
        dealt += len(rows)
    return part


def _last_objective(tree: xr.DataTree) -> float:
    return float(tree["trace"]["objective"].dropna("iteration")[-1])


def _has_bound(tree: xr.DataTree, model: Model) -> bool:
    """Whether the objective of a fit is a bound on the log evidence."""
    if "method" not in tree.attrs:
        return False
    method = method_of(model, tree.attrs["method"])
    return method.guide is not None and not method.guide_has_points


@_distinct_warnings()
def choose_shared_and_specific(
    *views: Any,
    num_shared: Iterable[int] = (0, 1, 2, 3),
    num_specific: Iterable[int | Sequence[int]] = (0, 1, 2),
    folds: int = 5,
    seed: int = 0,
    fields: Mapping[str, Any] | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Choose the numbers of shared and specific latents of `zoo.Paired` by bound, ARD and held-out density.

    Args:
        *views: a table each, rows first: arrays or DataFrames, NaN for missing cells.
        num_shared: candidates for the latents that all views see.
        num_specific: candidates for the latents of each view alone: a number for all views, or one for each.
            Pairs in which a view would see no latent are left out.
        folds: of the cross-validation; 0 leaves held-out rows out.
        seed: of the folds and fits.
        fields: of the model, as ``{"families": ("bernoulli", "poisson")}``.
        **settings: of the fits by VB, as for ``fit``; ``num_restarts`` is 5 unless given.

    Returns:
        One row a pair, index ``num_shared``, ``num_specific``: ``bound`` (nats), unless ``folds=0``
        ``heldout`` and ``standard_error`` (nats per row), ``difference`` to the best and the standard error
        of that paired difference, and ``not_converged`` (of all fits). The attributes ``by_bound`` and
        ``by_heldout`` hold the answers as pairs, the latter the pair with the fewest loadings within one
        standard error of the best held-out density (`recommended`); ``by_ard`` is that of relevance
        determination with the largest candidates: how many of the shared latents it keeps, and how many of
        each view's. ``note`` states them in words.

    Raises:
        ValueError: no candidates, some that the data do not allow, or fields that are chosen here.
    """
    given = dict(fields or {})
    for name in ("num_shared", "num_specific", "ard", "ard_concentration", "ard_rate"):
        if name in given:
            raise ValueError(f"{name} is chosen here: leave it out of fields")
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 0:
        raise ValueError(f"folds must be a whole number, 0 to leave held-out rows out; got {folds!r}")
    shared, specific = sorted(set(num_shared)), list(dict.fromkeys(map(_as_size, num_specific)))
    for name, found in (("num_shared", shared), ("num_specific", specific)):
        if not found:
            raise ValueError(f"{name} is empty: give at least one candidate")
    pairs = [
        (s, k) for s, k in product(shared, specific) if s or min(_of_views(k, len(views)), default=0) > 0
    ]
    if not pairs:
        raise ValueError("with num_shared=0 every view needs a latent of its own: give num_specific above 0")
    models = [_paired(pair, views, given) for pair in pairs]
    most = max(shared), max(specific, key=lambda k: sum(_of_views(k, len(views))))
    relevance = {"ard": True, "ard_concentration": BARE, "ard_rate": BARE}
    offered = _paired(most, views, given | relevance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fits tell of columns
        for model in (*models, offered):
            sized, rows = read_rows(model, views)
            sized.check(*rows.take(np.full(rows.parts[0].shape[0], True)))
    widths = [part.shape[1] for part in rows.parts]
    draws = FEW_DRAWS if folds else 1
    settings = {"num_samples": draws, "num_restarts": STARTS, "progress": False} | settings
    if folds:
        numbered = dict(enumerate(models))
        table = cross_validate(numbered, *views, method="vb", folds=folds, seed=seed, **settings)
        table = table.loc[list(numbered), ["bound", *_HELD_OUT, "not_converged"]]
    else:
        fits = [_fit(model, views, "vb", seed, settings) for model in models]
        bounds, ends = map(_last_objective, fits), (not tree.attrs["converged"] for tree in fits)
        table = pd.DataFrame({"bound": list(bounds), "not_converged": [int(end) for end in ends]})
    answers = {"by_bound": pairs[int(np.argmax(table["bound"]))]}
    if folds:
        loadings = [s * sum(widths) + np.dot(_of_views(k, len(views)), widths) for s, k in pairs]
        answers["by_heldout"] = pairs[recommended(table.loc[np.argsort(loadings, kind="stable")])[1]]
    answers["by_ard"] = _num_relevant(_fit(offered, views, "vb", seed, settings), offered)
    table.index = _index_of(pairs)
    table.attrs |= answers | {
        "note": "; ".join(
            f"{how}: {s} shared, {k} specific"
            for how, (s, k) in (
                ("bound", answers["by_bound"]),
                (f"ARD, offered {most[0]} and {most[1]}", answers["by_ard"]),
                *([("held-out density", answers["by_heldout"])] if folds else []),
            )
        )
        + larger_untried("num_shared", [s for s, _ in answers.values()], shared, sum(widths))
        + larger_untried(
            "num_specific",
            [max(_of_views(k, len(views))) for _, k in answers.values()],
            [max(_of_views(k, len(views))) for k in specific],
            min(widths),
        )
    }
    return table


def _num_relevant(tree: xr.DataTree, model: Paired) -> tuple[int, tuple[int, ...]]:
    """How many shared latents, and latents of each view, have squared mean loadings above their variances."""
    q, away = tree["variational"], np.zeros(model.num_latents)
    for v in range(len(model.families)):
        away += (q[f"loadings_mean_{v}"].to_numpy() ** 2).sum(axis=0)
        away -= np.einsum("dkk->k", q[f"loadings_covariance_{v}"].to_numpy())
    shared, *specific = np.split(away > 0, np.cumsum([model.num_shared, *model.num_specific])[:-1])
    return int(shared.sum()), tuple(int(own.sum()) for own in specific)


def _as_size(value: Any) -> Any:
    """A number for all views as it is, or a tuple with one for each."""
    return value if np.ndim(value) == 0 else tuple(value)


def _of_views(size: Any, num_views: int) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,) * num_views


def _paired(pair: tuple[int, Any], views: Sequence[Any], fields: Mapping[str, Any]) -> Paired:
    own = {"families": ("auto",) * len(views)} | dict(fields)
    return Paired(num_shared=pair[0], num_specific=_of_views(pair[1], len(views)), **own)


def _index_of(pairs: Sequence[tuple[int, Any]]) -> pd.MultiIndex:
    arrays = [np.empty(len(pairs), object) for _ in range(2)]
    for place, pair in enumerate(pairs):
        for array, part in zip(arrays, pair, strict=True):
            array[place] = part
    return pd.MultiIndex.from_arrays(arrays, names=["num_shared", "num_specific"])


@_distinct_warnings()
def choose_components_and_latents(
    x: Any,
    num_components: Iterable[int] = (1, 2, 3, 4),
    num_latents: Iterable[int] = (1, 2, 3),
    *,
    folds: int = 5,
    seed: int = 0,
    method: str = "vb",
    fields: dict[str, Any] | None = None,
    **settings: Any,
) -> pd.DataFrame:
    """Choose the numbers of components and latents of `zoo.DEPCAM` by bound and by held-out rows.

    Args:
        x: rows, shape (num_observations, num_features), NaN for missing cells; an array or a DataFrame.
        num_components: candidates for K.
        num_latents: candidates for d, at most the number of features.
        folds: of the cross-validation.
        seed: of the folds and fits.
        method: ``"vb"``, or ``"em"``, whose maximised latents have no bound: held-out rows alone judge then.
        fields: of the model, as ``{"family": "poisson", "repulsion": 0.0}``.
        **settings: of the fits, as for ``fit``: ``num_restarts``, ``init``, ``max_iterations``, ...

    Returns:
        One row a pair, index ``num_components``, ``num_latents``: ``bound`` (on the rows' log density, nats),
        ``num_parameters``, ``criterion`` (the bound less half the parameters times log N, higher is better),
        ``num_active`` (scales that are not zero), ``heldout`` and ``standard_error`` (nats per row),
        ``difference`` to the best and the standard error of that paired difference. The attributes
        ``by_bound`` and ``by_heldout`` hold the answers as pairs, the latter the pair with the fewest
        parameters within one standard error of the best held-out density (`recommended`), ``note`` states
        them in words.

    Raises:
        ValueError: no candidates, some that the data do not allow, or another method.
    """
    if method not in ("vb", "em"):
        raise ValueError(f"method must be vb or em; got {method!r}")
    rows = as_matrix(x)
    ks = _candidates("num_components", num_components, rows.shape[0])
    ds = _candidates("num_latents", num_latents, rows.shape[1])
    models = {
        (k, d): DEPCAM.from_data(rows, num_components=k, num_latents=d, **(fields or {}))
        for k, d in product(ks, ds)
    }
    settings = {"num_samples": 1, "progress": False} | settings
    scores = cross_validate(models, x, method=method, folds=folds, seed=seed, **settings)
    found = {pair: _of_one(model, x, method, seed, settings) for pair, model in models.items()}
    table = pd.DataFrame.from_dict(found, orient="index")
    table = table.join(scores[_HELD_OUT].loc[list(found)])
    table.index = pd.MultiIndex.from_tuples(list(found), names=["num_components", "num_latents"])
    smaller_first = table.sort_values("num_parameters", kind="stable")
    answers = {"by_heldout": tuple(map(int, recommended(smaller_first)[1]))}
    words = f"held-out density: {_in_words(answers['by_heldout'])}"
    if method == "vb":
        answers["by_bound"] = tuple(map(int, table["criterion"].idxmax()))
        words = f"bound: {_in_words(answers['by_bound'])}; {words}"
    else:
        table = table.drop(columns=["bound", "criterion"])
    words += larger_untried("num_components", [k for k, _ in answers.values()], ks, rows.shape[0])
    words += larger_untried("num_latents", [d for _, d in answers.values()], ds, rows.shape[1])
    table.attrs |= answers | {"note": words}
    return table


def num_parameters(model: DEPCAM, num_features: int) -> int:
    """Count the free parameters: orthonormal bases, scales, offsets, weights, and a learnt noise variance.

    Args:
        model: the model.
        num_features: D.
    """
    d, k = model.num_latents, model.num_components
    each = num_features * d - d * (d + 1) // 2 + d + (num_features if model.offset else 0)
    return k * each + k - 1 + int(model.family.learns_noise)


def _of_one(model: DEPCAM, x: Any, method: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    tree = fit(model, x, method=method, seed=seed, **settings)
    count = num_parameters(model, model.num_features)
    bound = _bound(tree)
    return {
        "bound": bound,
        "num_parameters": count,
        "criterion": bound - 0.5 * count * np.log(len(x)),
        "num_active": int((tree["variational"]["scales"] != 0).sum()),
    }


@double_precision
def _bound(tree: xr.DataTree) -> float:
    """Objective at the estimate without the log prior of the parameters."""
    stored = {name: jnp.asarray(value.to_numpy()) for name, value in tree["variational"].data_vars.items()}
    return _last_objective(tree) - float(_log_prior(stored, model_of(tree)))


@jax.jit
def _log_prior(values: Values, model: DEPCAM) -> Array:
    """That of the parameters, in the coordinates of the data."""
    own, units = model.own_coordinates, model.units
    if own is None:
        return log_prior(values, model)
    inner = {
        name: own.inward(value, units[name]) if name in units else value for name, value in values.items()
    }
    lost = (jnp.log(own.factor(units[n])) + jnp.zeros_like(v) for n, v in values.items() if n in units)
    return log_prior(inner, inside(model, own)) - sum(jnp.sum(part) for part in lost)


def _candidates(name: str, values: Iterable[int], most: int, why: str = "") -> list[int]:
    """Sort the candidates, each once; ValueError where there are none or one is out of range."""
    numbers = sorted(set(values))
    if not numbers:
        raise ValueError(f"{name} is empty: give at least one candidate")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 1 <= number <= most:
            raise ValueError(f"{name} must be whole numbers from 1 to {most}{why}; got {number!r}")
    return numbers


def _in_words(pair: tuple[int, int]) -> str:
    return f"{pair[0]} components of {pair[1]} latents"
