r"""Comparison of fits: predictive scores, agreement of posteriors, and methods side by side on one table.

**Scores.** :math:`\mathrm{elpd}_{loo} = \sum_n \log p(x_n | x_{-n})` is estimated by Pareto-smoothed
importance sampling from the pointwise log likelihood of the draws (Vehtari, Gelman and Gabry 2017,
"Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC"), local latents
integrated out: the row's label is predicted, not known. Where the Pareto shape k of a row is above the
threshold, leaving that row out changes the posterior too much for the estimate to be trusted; such rows are
counted. The score of a row that was held out is its log posterior predictive density in nats
(`inference.log_density`), so it compares models and methods of the same data. Densities of numbers and
probabilities of counts are measured in different units: compare those of one kind.

**Agreement.** Two samplers of the same posterior differ by Monte Carlo error alone: the difference of two
means over :math:`\sqrt{se_1^2 + se_2^2}` is standard normal. An approximation (VB, SVI) or a point estimate
is also biased, so its difference is measured in posterior standard deviations, the unit in which a bias
matters. Fits with other hyperparameters have other posteriors; their invariants answer other questions and
are not tested.
"""

import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from inference.convergence.identifiable import draws_of, invariants, kind_of, scalars
from inference.convergence.r_hat import is_constant
from inference.diagnostics.prior_width import WIDTHS, evidence_at_width, is_read_off
from inference.diagnostics.summaries import summary
from inference.extension import check_densities_are_cheap, extend
from inference.fitting.front_door import fit
from inference.methods import methods_to_compare
from inference.prediction import log_density
from inference.results.files import model_of
from inference.results.groups import (
    check_all_rows,
    group_of,
    group_or_empty,
    left_out_of,
    sample_weight_of,
    with_groups,
)
from inference.topics.text_heldout import PROTOCOLS, heldout_text
from zoo import late
from zoo.answers import how_to_score_rows
from zoo.checks import listed
from zoo.intake.suitable_fields import check_scores_new_rows
from zoo.model import Model

if TYPE_CHECKING:
    from arviz_stats.utils import ELPDData


EVIDENCE = ("log_evidence", "log_evidence_se")
_CLEAR = 3  # standard errors of a difference, which are from few replicates
_MOST_REPEATED = 2**27  # densities of weighted rows over all draws
_FEWEST_DRAWS = 25  # ArviZ fits the tail to a fifth of the draws, and to no fewer than five


def leave_one_out(tree: xr.DataTree) -> "ELPDData":
    """Estimate the leave-one-out score of one fit by PSIS; a high Pareto k raises no warning.

    A row of weight w is w rows, one of which is left out.

    Args:
        tree: a fit whose draws are a posterior, with the group ``log_likelihood``.

    Returns:
        ArviZ's result, pointwise (``elpd``, ``se``, ``p``, ``pareto_k``, ``good_k``). ``(result.pareto_k >
        result.good_k).sum()`` rows are not to be trusted.

    Raises:
        ValueError: no pointwise log likelihood; a point estimate, which has no posterior to leave a row out
            of; a row with one density under every draw; too few draws; or weights that are no numbers of
            rows, or of too many.
    """
    draws_of(tree)
    if "log_likelihood" not in tree.children and not model_of(tree).answers.has_density:
        raise ValueError(
            f"{type(model_of(tree)).__name__} has no density of rows, so none can be left out of it"
        )
    if kind_of(tree) == "point":
        reason = f"method {tree.attrs.get('method')!r} returns a point estimate: LOO needs a posterior"
        raise ValueError(f"{reason}; {how_to_score_rows(model_of(tree))}")
    check_densities_are_cheap(tree)
    if "log_likelihood" in left_out_of(tree) and "observed_data" in tree.children:
        tree = extend(tree, "log_likelihood")  # it was left out for its cost: now it is asked for
    if (weight := sample_weight_of(tree)) is not None:
        tree = _repeated(tree, weight)
    pointwise = group_of(tree, "log_likelihood")["log_likelihood"].transpose("chain", "draw", ...)
    if not np.isfinite(pointwise.values).all():
        raise ValueError("the pointwise log likelihood has entries that are not finite")
    num_draws = pointwise.sizes["chain"] * pointwise.sizes["draw"]
    if num_draws < _FEWEST_DRAWS:
        raise ValueError(
            f"LOO needs {_FEWEST_DRAWS} draws or more to fit their tail; this fit holds {num_draws}"
        )
    if float(np.ptp(pointwise.values, axis=(0, 1)).min()) == 0:
        raise ValueError(
            "LOO needs draws that differ: a row has the same density under every draw, since its parameters "
            "were estimated as a point"
        )
    with warnings.catch_warnings():  # high Pareto k: counted and reported by the callers
        warnings.filterwarnings("ignore", message="Estimated shape parameter of Pareto")
        return late.loo(tree, pointwise=True, reff=_relative_efficiency(pointwise.values))


def _repeated(tree: xr.DataTree, weight: np.ndarray) -> xr.DataTree:
    """The fit with the densities of each row as often as its weight says."""
    held = group_of(tree, "log_likelihood")
    cells = weight.sum() * held.sizes["chain"] * held.sizes["draw"]
    if (weight != np.round(weight)).any() or cells > _MOST_REPEATED:
        how = f"here from {weight.min():g} to {weight.max():g}, {weight.sum():g} in all"
        raise ValueError(
            f"LOO leaves single rows out: it needs weights that are small numbers of rows; {how}. Rank the "
            "fit by held-out rows (heldout)"
        )
    places = np.repeat(np.arange(len(weight)), weight.astype(int))
    return with_groups(tree, {"log_likelihood": held.isel(observation=places)})


def check_fits(trees: Mapping[str, xr.DataTree], *, without_data: bool = False) -> None:
    """Raise unless there are at least two fits to compare, all of the same data.

    Args:
        trees: name to fit.
        without_data: whether fits that do not hold their data pass unchecked.

    Raises:
        TypeError: ``trees`` is not a mapping of fits.
        ValueError: fewer than two fits, fits of other data or weights of rows, or one that rows were cut off.
    """
    if not isinstance(trees, Mapping):
        raise TypeError(f"trees must be a dict of name to fit; got {type(trees).__name__}")
    if len(trees) < 2:
        raise ValueError(f"a comparison needs at least two fits; got {len(trees)}")
    for tree in trees.values():
        draws_of(tree)
        check_all_rows(tree)
    names = [name for name in trees if not without_data or "observed_data" in trees[name].children]
    for name in names[1:]:
        if difference := different_data(trees[names[0]], trees[name]):
            raise ValueError(f"fits {names[0]!r} and {name!r} are not of the same data: {difference}")


def compare(
    trees: Mapping[str, xr.DataTree],
    method: str = "stacking",
    scores: "Mapping[str, ELPDData] | None" = None,
) -> pd.DataFrame:
    """Rank fits of the same data by LOO.

    Args:
        trees: name to fit, at least two.
        method: how ArviZ weighs the models: ``"stacking"``, ``"pseudo-BMA"`` or ``"BB-pseudo-BMA"``.
        scores: the result of `leave_one_out` for each of them, so that it is not computed again.

    Returns:
        ArviZ's table, best first and unrounded (``rank``, ``elpd_diff``, ``dse``, ``p``, ``elpd``, ``se``,
        ``weight``, ..., in nats), with ``pareto_k_bad``, the number of rows whose LOO is not to be trusted,
        ``pareto_k_max`` and ``converged``; where a fit was asked for its log evidence, ``log_evidence`` and
        ``log_evidence_se`` too, NaN if none is told, and where two are told ``log_evidence_half_width`` and
        ``log_evidence_twice_width``, under priors of means or loadings that are half and twice as wide. The
        attribute ``note`` explains them in words, ``evidence`` says what the errors of the evidence tell
        apart (empty if nothing), whether another width would change it, which priors were read off these data
        and why an evidence is not told, and ``ranked`` is false where nothing may be read off the order: a
        fit has not converged, all are of one posterior, which they approximate differently, or a score hangs
        on rows whose densities are given latents of their own.

    Raises:
        TypeError: ``trees`` is not a mapping of fits.
        ValueError: fewer than two fits, other data, a fit without a posterior or a pointwise log likelihood,
            or scores of other fits.
    """
    check_fits(trees)
    if scores is None:
        scores = {name: leave_one_out(tree) for name, tree in trees.items()}
    elif set(scores) != set(trees):
        raise ValueError(f"scores must be of the fits {sorted(trees)}; got those of {sorted(scores)}")
    table = late.compare(dict(scores), method=method, round_to="none")
    table["pareto_k_bad"] = [int((scores[name].pareto_k > scores[name].good_k).sum()) for name in table.index]
    table["pareto_k_max"] = [float(scores[name].pareto_k.max()) for name in table.index]
    notes = [
        f"{name}: {bad} of {scores[name].n_data_points} rows have Pareto k above {scores[name].good_k:.2f}; "
        "its elpd is not to be trusted there"
        for name, bad in table["pareto_k_bad"].items()
        if bad
    ]
    notes += [
        f"{name}: draws are from q of method {trees[name].attrs.get('method')!r}, so this is the LOO of "
        f"the approximation"
        for name in table.index
        if kind_of(trees[name]) == "variational"
    ]
    table["converged"] = [bool(int(trees[name].attrs.get("converged", 1))) for name in table.index]
    unfinished = [str(name) for name, done in table["converged"].items() if not done]
    first = trees[table.index[0]]
    same = all(same_posterior(first, trees[name]) for name in table.index[1:])
    bound = told_by_their_own_latents(trees, scores)
    table.attrs["ranked"] = not unfinished and not same and not bound
    if unfinished:
        notes.insert(
            0,
            f"no ranking: {', '.join(unfinished)} has not converged"
            if len(unfinished) == 1
            else f"no ranking: {', '.join(unfinished)} have not converged",
        )
    elif same:
        notes.insert(0, "no ranking: all are of one posterior, and differ by how they approximate it")
    elif bound:
        notes.insert(0, f"no ranking: {bound}")
    table.attrs["evidence"] = _add_evidence(table, trees)
    table.attrs["note"] = ". ".join(notes) or "all Pareto k are below the threshold"
    return table


def told_by_their_own_latents(trees: Mapping[str, xr.DataTree], scores: "Mapping[str, ELPDData]") -> str:
    """Why a score is none of prediction: densities are given latents that the row itself tells; or empty.

    Args:
        trees: name to fit.
        scores: the result of `leave_one_out` for each of them.
    """
    names = [
        name
        for name, tree in trees.items()
        if _latents(tree) == "drawn" and (scores[name].pareto_k > scores[name].good_k).any()
    ]
    if not names:
        return ""
    return (
        f"densities of {listed(names)} are given latents of each row, which would be others without the row"
    )


def _add_evidence(table: pd.DataFrame, trees: Mapping[str, xr.DataTree]) -> str:
    """Add the columns of the log evidence, if a fit was asked for it, and say what its errors allow."""
    if not any("why_no_evidence" in tree.attrs for tree in trees.values()):
        return ""
    for column in EVIDENCE:
        table[column] = [float(trees[name].attrs.get(column, np.nan)) for name in table.index]

    def same(one: str, other: str) -> bool:
        return same_posterior(trees[one], trees[other])

    words = [evidence_in_words(table, same)]
    order = table["log_evidence"].dropna().sort_values().index
    for word, factor in WIDTHS.items() if words[0] else ():
        found = {name: evidence_at_width(trees[name], factor) for name in table.index}
        own = pd.DataFrame({column: [at[i] for at in found.values()] for i, column in enumerate(EVIDENCE)})
        own.index = table.index
        table[f"log_evidence_{word}_width"] = own["log_evidence"]
        if (told := own["log_evidence"].dropna().sort_values().index).size == order.size:
            said = evidence_in_words(own, same)
            if told[-1] != order[-1] or _apart(said) != _apart(words[0]):
                words.append(f"The prior decides: at {word} its width {said}")
    if words[0]:
        told = [name for name in table.index if name in order]
        words += read_off_in_words([str(name) for name in told if is_read_off(trees[name])])
    unknown = {name: trees[name].attrs.get("why_no_evidence") for name in table.index}
    words += [f"The log evidence of {name} is not told: {why}" for name, why in unknown.items() if why]
    return ". ".join(filter(None, words))


def read_off_in_words(names: Sequence[str]) -> list[str]:
    """Say of which fits the prior has seen the data already, in a sentence, or none."""
    return [f"Prior read off these data: {', '.join(names)}"] if names else []


def _apart(words: str) -> bool:
    return "has more evidence" in words


def evidence_in_words(table: pd.DataFrame, same: Callable = lambda one, other: False) -> str:
    """Say which of several models the errors of their log evidence tell apart.

    Args:
        table: a row a model, with the columns ``log_evidence``, NaN where none is told, and
            ``log_evidence_se``.
        same: ``same(name, other)``, whether two rows are of one posterior.

    Returns:
        Sentences; empty where fewer than two have an evidence.
    """
    told = table["log_evidence"].dropna().sort_values(ascending=False).index
    best, apart, alike = next(iter(told), ""), [], []
    for name in told[1:]:
        if same(best, name):
            continue
        gap = table.at[best, "log_evidence"] - table.at[name, "log_evidence"]
        error = float(np.hypot(*table.loc[[best, name], "log_evidence_se"]))
        (apart if gap > _CLEAR * error else alike).append(
            f"{name} ({gap:.2f} nats lower, standard error {error:.2g})"
        )
    found = [f"{best} has more evidence than {', '.join(apart)}"] if apart else []
    found += [f"{best} cannot be told apart from {', '.join(alike)}"] if alike else []
    return ". ".join(found)


def heldout(
    tree: xr.DataTree,
    *data: object,
    protocol: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> xr.Dataset:
    """Compute the mean log density of new rows under a fit, with its standard error.

    Args:
        tree: a fit.
        data: new data, the sites in the model's order, as for ``inference.log_density``.
        protocol: None for rows. ``"bound"``, ``"likelihood"`` and ``"completion"`` are ways to score text
            (see `inference.topics.text_heldout`).
        seed: of the split of tokens (completion).
        batch_size: rows that are scored at once, as for ``inference.log_density``.

    Returns:
        Dataset of scalars ``mean`` and ``standard_error`` (over the rows; nats per row) and ``num_rows``; of
        text nats per token, with ``perplexity`` and ``num_tokens``.

    Raises:
        ValueError: a text protocol for a model whose data are rows, an unknown protocol, none for a model
            whose density of a document is fitted to that document, or no rows.
    """
    if protocol is not None:
        if protocol not in PROTOCOLS:
            known = f"one of {list(PROTOCOLS)} (text) or None (rows)"
            raise ValueError(f"protocol must be {known}; got {protocol!r}")
        if model_of(tree).data[0].holds_documents:
            return heldout_text(tree, *data, protocol=protocol, seed=seed, batch_size=batch_size)
        raise ValueError(
            f"protocol {protocol!r} scores text, and the data of {tree.attrs.get('model', 'this model')!r} "
            "are rows: leave protocol out"
        )
    if model_of(tree).data[0].holds_documents:
        check_scores_new_rows(type(model_of(tree)))
    rows = log_density(tree, *data, batch_size=batch_size)
    count = rows.size
    if count < 1:
        raise ValueError("heldout needs at least one row")
    scores = {"mean": float(rows.values.mean()), "standard_error": standard_error(rows.values)}
    return xr.Dataset(scores | {"num_rows": count}, attrs={"units": "nats per row"})


def standard_error(values: np.ndarray) -> float:
    """Return the standard error of the mean of independent values, NaN for a single one."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else np.nan


def _relative_efficiency(pointwise: np.ndarray) -> float:
    """Relative ESS of the rows' likelihoods, averaged over rows; 1 for independent draws.

    ArviZ's default averages over all variables of the posterior, whose labels switch.
    """
    if pointwise.shape[0] == 1:
        return 1.0
    likelihood = np.exp(pointwise - pointwise.max((0, 1))).reshape(*pointwise.shape[:2], -1)
    varying = likelihood[..., np.ptp(likelihood, axis=(0, 1)) > 0]
    if not varying.shape[-1]:
        return 1.0
    ess = late.array_stats.ess(varying, chain_axis=0, draw_axis=1, method="mean")
    return float(min(np.mean(ess) / (pointwise.shape[0] * pointwise.shape[1]), 1.0))


def different_data(one: xr.DataTree, other: xr.DataTree) -> str:
    """Describe how the data of two fits, or the weights of their rows, differ; empty if they are equal.

    Args:
        one: a fit.
        other: another.
    """
    for tree in (one, other):
        draws_of(tree)
        if "observed_data" not in tree.children:
            return "one of them does not hold its data (left out for its size), so this cannot be checked"
    a, b = one["observed_data"].to_dataset(), other["observed_data"].to_dataset()
    if set(a.data_vars) != set(b.data_vars):
        return f"{sorted(a.data_vars)} against {sorted(b.data_vars)}"
    for name in a.data_vars:
        if a[name].shape != b[name].shape:
            return f"{name} has shape {a[name].shape} against {b[name].shape}"
        if not np.array_equal(a[name].values, b[name].values, equal_nan=a[name].dtype.kind == "f"):
            return f"{name} has other values"
    first, second = map(sample_weight_of, (one, other))
    if (first is None) != (second is None):
        which = "first" if second is None else "second"
        return f"only the {which} weighs its rows: fit both with the same sample_weight, or with none"
    if first is not None and not np.array_equal(first, second):
        return "sample_weight has other values: fit both with the same"
    return ""


_NOT_SHARED = (
    "lp",
    "objective",
)  # different for each method: with locals summed out or not, a bound, a maximum
_ROUNDING = 1e-12


def agreement(trees: Mapping[str, xr.DataTree]) -> pd.DataFrame:
    """Tabulate mean, its standard error and standard deviation of every invariant under every fit.

    Args:
        trees: name to fit.

    Returns:
        A row an invariant that at least two fits have, columns (fit, statistic) with the statistics
        ``mean``, ``mcse`` (NaN for a point estimate, which has no draws) and ``sd`` (NaN likewise); NaN where
        a fit has no such invariant. The log joint and the objective, which differ between methods, are left
        out, as is the mean log likelihood where one fit has integrated its latents out and another has not.

    Raises:
        TypeError: one of them is not a fit.
        ValueError: one of them has no draws.
    """
    scored = {_latents(tree) for tree in trees.values()} - {""}
    left_out = (*_NOT_SHARED, "mean_log_likelihood") if len(scored) > 1 else _NOT_SHARED
    columns = {}
    for name, tree in trees.items():
        kind, values = kind_of(tree), invariants(tree)
        found = {label: _statistics(draws, kind) for label, draws in scalars(values)}
        found = {label: row for label, row in found.items() if label.partition("[")[0] not in left_out}
        for i, statistic in enumerate(("mean", "mcse", "sd")):
            columns[name, statistic] = pd.Series({label: row[i] for label, row in found.items()}, dtype=float)
    table = pd.DataFrame(columns)
    order = {label: place for values in columns.values() for place, label in enumerate(values.index)}
    table = table.loc[sorted(table.index, key=order.__getitem__)]
    shared = table.xs("mean", axis=1, level=1).notna().sum(axis=1) > 1
    return table[shared]


def differences(table: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Compute the distance between two fits, invariant by invariant.

    Args:
        table: the result of `agreement`.
        one: a fit in it.
        other: another.

    Returns:
        ``difference`` (of the means, the second less the first), ``standard_errors`` (that over the combined
        Monte Carlo standard error; NaN where a fit has none) and ``posterior_sds`` (that over the larger
        of the two standard deviations), for the invariants that both fits have. Means that are
        equal up to rounding are 0 apart.
    """
    a, b = (table[name].dropna(subset="mean") for name in (one, other))
    both = a.index.intersection(b.index, sort=False)
    a, b = a.loc[both], b.loc[both]
    gap = b["mean"] - a["mean"]
    gap = gap.where(~np.isclose(a["mean"], b["mean"], rtol=_ROUNDING, atol=0.0), 0.0)
    error = np.hypot(a["mcse"], b["mcse"])
    spread = np.fmax(a["sd"], b["sd"])
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = {
            "standard_errors": np.where((gap == 0) & error.notna(), 0.0, gap / error),
            "posterior_sds": np.where((gap == 0) & spread.notna(), 0.0, gap / spread),
        }
    return pd.DataFrame({"difference": gap} | parts, index=both)


def same_posterior(one: xr.DataTree, other: xr.DataTree) -> bool:
    """Whether two fits of the same data have the same model, hyperparameters and row weights.

    Args:
        one: a fit.
        other: another.
    """
    if any(one.attrs.get(name) != other.attrs.get(name) for name in ("model", "model_fields")):
        return False
    a, b = (group_or_empty(tree, "constant_data") for tree in (one, other))
    return set(a) == set(b) and all(np.array_equal(a[name].values, b[name].values) for name in a)


def _latents(tree: xr.DataTree) -> str:
    return str(group_or_empty(tree, "log_likelihood").attrs.get("latents", ""))


def _statistics(draws: np.ndarray, kind: str) -> tuple[float, float, float]:
    """Mean, its Monte Carlo standard error, and standard deviation."""
    mean = float(draws.mean())
    if kind == "point":
        return mean, np.nan, np.nan
    sd = float(draws.std(ddof=1)) if draws.size > 1 else np.nan
    if is_constant(draws):
        return mean, 0.0, 0.0
    if kind == "variational":
        return mean, sd / np.sqrt(draws.size), sd
    return mean, float(late.array_stats.mcse(draws, chain_axis=0, draw_axis=1, method="mean")), sd


# Errors of a fit or a score; one method's failure must not cost the others' scores
_FAILURES = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class MethodScore(NamedTuple):
    """Scores and costs of one method of one model.

    Attributes:
        model: its name.
        method: its name.
        nats_per_row: mean log density of the rows held out.
        standard_error: of that mean, over the rows.
        seconds: of the fit, with compilation.
        converged: as recorded in the fit.
        max_psrf: the largest PSRF of the invariants; NaN where there are no chains.
        mebibytes: by how much the fit raised the memory of the process at its height.
        interrupted: whether the fit was cut short by the user.
        log_evidence: of the rows fitted, in nats; NaN where none is told.
        log_evidence_se: its standard error.
        warnings: of the fit, each once, besides those whose content is in the other fields.
    """

    model: str
    method: str
    nats_per_row: float
    standard_error: float
    seconds: float
    converged: bool
    max_psrf: float
    mebibytes: float
    interrupted: bool
    log_evidence: float = np.nan
    log_evidence_se: float = np.nan
    warnings: tuple[str, ...] = ()


class Refusal(NamedTuple):
    """Reason why a method, or a model, does not take the data.

    Attributes:
        model: its name.
        method: its name; empty: the whole model.
        reason: the message.
    """

    model: str
    method: str
    reason: str


def score_methods(
    models: Mapping[str, Model],
    train: Sequence[Any],
    test: Sequence[Any],
    *,
    methods: Sequence[str] | None = None,
    **settings: Any,
) -> Iterator[MethodScore | Refusal]:
    """Fit each model by each of its methods and score rows that were held out, one after another.

    Args:
        models: name to (filled) model.
        train: the data that the models are fitted to, parts in the models' order.
        test: the rows held out, in the same form.
        methods: only these; None: those of `inference.methods.methods_to_compare`.
        **settings: further arguments of `inference.fit`.

    Yields:
        A score, or why there is none, as soon as it is known.
    """
    for name, model in models.items():
        for method in model.methods:
            if method not in (methods or methods_to_compare(model)):
                continue
            try:
                yield _score(name, model, method, train, test, settings)
            except _FAILURES as error:
                reason = " ".join(str(error).split())
                yield Refusal(name, method, reason or type(error).__name__)


def _score(
    name: str, model: Model, method: str, train: Sequence, test: Sequence, settings: Mapping[str, Any]
) -> MethodScore:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # their content is in the columns
        before, start = _forget_peak(), time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            tree = fit(model, *train, method=method, **settings)
        seconds = time.perf_counter() - start
        more = _peak() - before
        held_out = heldout(tree, *test)
        psrf = _largest_r_hat(tree)
    scores = float(held_out["mean"]), float(held_out["standard_error"])
    interrupted = tree.attrs["stop_reason"].startswith("interrupted")
    converged = bool(tree.attrs["converged"])
    evidence = (float(tree.attrs.get(name, np.nan)) for name in EVIDENCE)
    told = dict.fromkeys(str(warning.message) for warning in caught)
    of_data = tuple(message for message in told if "has not converged" not in message)
    return MethodScore(
        name, method, *scores, seconds, converged, psrf, max(more, 0.0), interrupted, *evidence, of_data
    )


def _largest_r_hat(tree: xr.DataTree) -> float:
    """Largest R-hat of the summary; NaN where there is none."""
    table = summary(tree)
    if "r_hat" not in table:
        return np.nan
    return float(pd.to_numeric(table["r_hat"], errors="coerce").max())  # some are "constant"


def _status(field: str) -> float | None:
    """A field of Linux's /proc/self/status, in MiB; None on another system."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
    except OSError:
        return None
    return float(lines[field].split()[0]) / 2**10 if field in lines else None


def _forget_peak() -> float:
    """Reset the peak memory of the process where possible, and return the memory held now, in MiB."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return _peak()
    return _status("VmRSS") or _peak()


def _peak() -> float:
    """Peak memory of the process, in MiB."""
    raw = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status("VmHWM") or raw / (2**20 if sys.platform == "darwin" else 2**10)
