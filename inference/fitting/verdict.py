"""The stopping rule of ascents, and the one verdict on the run of a fit: a sentence, a reason, the next step.

The command line, the report, the warnings of `fit`, cards and ``tree.attrs["verdict"]`` all take it from
`verdict`; the attribute is that of the fit as it was made, while `verdict` judges what a cut left of it.
Whether the model describes the data takes draws from the fit: a report judges that apart, where rules 1 to 4
hold, by posterior predictive checks, leave-one-out scores and the weight of the prior.

The rules; of those that fail the gravest is the verdict, and the others are named beside it. Of cautions
the one on the run itself comes last.

1. *The run ended as asked*: it was not interrupted, and every log joint and objective is finite.
2. *The chains agree*: rank-normalised R-hat below 1.01 and bulk ESS above 100 per chain, for every invariant
   that varies (`inference.convergence.judge`), over at least two chains. Where R-hat passes and ESS does not,
   there are too few draws. Draws that never change at all earn a caution, and so do chains that are close to
   both bounds: R-hat below 1.05 and bulk ESS above 100 in all. Four right chains of 530 effective draws miss
   1.01 on one of 20 invariants in two runs of three; one chain of four that is .7 deviations off is never
   that close (40 runs of each).
3. *No transition diverged.*
4. *The ascent has converged*: five steps in a row of less gain than ``tolerance``, and of ``tolerance=0``,
   which never ends a run, the last five of less than the default; a noisy objective has levelled.
5. *The answer does not depend on the start* (a caution): of several starts at least two end within 2 nats of
   the best, and those that do occupy the same number of clusters; of a model with several modes there is more
   than one start.
6. *There are clusters enough, each in a place of its own* (a caution): an infinite prior that was cut at K
   clusters, or a mixture whose prior leaves some of K empty, fills all K in fewer than one draw in 20; no two
   components of a point estimate or of q share their rows.
7. *All columns count* (a caution): under one noise variance no column has ten times the standard deviation of
   another; so too the Gaussian columns of a table of several kinds.
8. *Clusters are no pieces* (a caution): where eight clusters or more hold rows, no two columns that are
   independent within a cluster have a rank correlation above 0.5, no number of a Gaussian or log-normal
   column is in one row of ten, and no words that were left out name three rows each that are alike.
9. *No component is a number* (a caution): no Gaussian component holds three rows or more that are all equal
   in a column, in half of the draws; its density there is that of the rounding.
10. *Rows have a cluster* (a caution): by their probabilities fewer than one row in ten is expected to be in
    another cluster than its most probable one.
11. *Rows are told apart* (a caution): they do not go by names of which five or more each stand for 1.5 rows
    or more on average, as repeated measurements do.
12. *Scales are no mode over rows* (a caution): MAP does not maximise over latents of single rows, which the
    program draws, together with a positive parameter. Of Poisson counts of 40 rows the joint mode had the
    deviation of their effects at 1.37, where the posterior has .46 with deviation .08.
"""

import os
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from inference.algorithm import AscentRun, FitRequest, Sampler, Stochastic
from inference.convergence.identifiable import draws_of, has_point_parameters, kind_of
from inference.convergence.numbering import cluster_dim
from inference.convergence.partitions import memberships
from inference.convergence.r_hat import APART, Agreement, judge, judgement, mixing
from inference.convergence.starts import CLOSE, components_in_one_place, spread_of_starts
from inference.driver.progress import FELL, NOT_FINITE, RUNNING, Numbers, Progress, smallest_gain
from inference.fitting.arguments import scales_in_words
from inference.methods import advised
from inference.numerics.programs import latent_sites
from inference.results.files import model_of
from inference.results.groups import (
    check_all_rows,
    flat_draws,
    group_or_empty,
    labels_of,
    responsibilities_of,
    restored_data,
    sample_weight_of,
)
from inference.settings import FEWEST_TEMPERATURES, Climb
from zoo.answers import answer_of, scores_new_rows
from zoo.checks import listed
from zoo.conjugate.component_prior import ComponentPrior
from zoo.conjugate.resolution import recorded_step
from zoo.dirichlet_process import truncation_of
from zoo.fields import family_field
from zoo.intake.families import for_data
from zoo.intake.tables import is_of_rows
from zoo.model import Model

SMALL_STEPS = 5  # consecutive steps of little gain that mean convergence
_FEWEST_NOISY = 100  # iterations, below which noise hides a rise
_SHORTEST_STRETCH = 50  # iterations of a noisy objective that are averaged, where there are as many
WHY_NOT = "why_not_converged"  # attribute of a fit: "REASON. Next: ADVICE" of its run
_SOLVED = "solved directly"
_WHY_STOPPED = {"max_iterations": "it was still rising when max_iterations ended it"}
_FEWEST_NAMES, _REPEATED = 5, 1.5  # of rows, and rows for each on average
_OFTEN_FULL = 0.05  # share of draws that fill a truncation
_MOST_PAIRS = 3  # that are named
_DIRECTIONS = (
    "epca, with standardize=True where units differ, tells of the same table as directions, in which rows "
    "may lie anywhere"
)
_MANY = 8  # clusters, from which on they may be pieces of fewer
_TOGETHER = 0.5  # rank correlation of columns that rise or fall together
_SPIKE = 3  # rows of a component, from which on it is no chance that all are equal in a column
_LABELLINGS = 20  # draws of labels that are looked at
_HEAPED = 0.1  # share of rows with one number
_MISPLACED = 0.1  # share of rows that are expected in another cluster than their most probable one
_ROWS_LOOKED_AT = 5000  # for that
_OF_ROWS = ("observed_data", "variational", "log_likelihood")  # groups that tell how many rows there were


def five_small_gains(
    numbers: ModuleType,
    progress: Progress,
    objective: Numbers,
    small_gain: Numbers,
    slack: Numbers,
    settled: Numbers,
) -> tuple[Any, Any]:
    """The stopping rule of every ascent: small steps in a row so far, and the status after a step.

    Args:
        numbers: `jax.numpy` or `numpy`.
        progress: before the step.
        objective: after it, nats.
        small_gain: the gain in nats below which a step is small.
        slack: the fall that is tolerated, relative to the objective.
        settled: the status of a restart after five small steps: `CONVERGED` or `SETTLED`.
    """
    gain = objective - progress.objective
    small = numbers.where(gain < small_gain, progress.small_steps + 1, 0)
    status = numbers.where(small >= SMALL_STEPS, settled, RUNNING)
    status = numbers.where(gain < -slack * numbers.abs(progress.objective), FELL, status)
    return small, numbers.where(numbers.isfinite(objective), status, NOT_FINITE)


def has_converged(request: FitRequest, run: Any, tree: xr.DataTree) -> tuple[bool, str]:
    """Whether the fit has converged, and if not "REASON. Next: ADVICE" (empty where it ran as requested)."""
    settings = request.settings
    if isinstance(request.method, Sampler):
        if run.stop_reason != "completed":
            return False, f"the run ended early: {run.stop_reason}"
        kept = np.asarray(run.trace["objective"])[:, settings.num_warmup :]
        if bad := int(np.count_nonzero(~np.isfinite(kept))):
            remedy = "check the scale of data and priors"
            return False, f"the log joint is not finite at {bad} of {kept.size} kept sweeps. Next: {remedy}"
        found = judgement(tree)
        return found.converged, found.reasons + _moves_to_add(request, found)
    is_noisy = isinstance(request.method, Stochastic)
    if run.stop_reason == "interrupted":
        return False, _why(run.stop_reason, request.checkpoint)
    if run.stop_reason.startswith("the objective"):  # it fell or was not finite
        return False, f"{run.stop_reason}. Next: lower step_size" if is_noisy else _why(run.stop_reason)
    last = _last_objective(run, tree)
    if not np.isfinite(last):
        return False, f"the objective ended at {last}. Next: check the scale of data and priors"
    if is_noisy:
        return _has_levelled(run.trace["objective"][run.best_restart], settings.max_iterations)
    if run.stop_reason == "max_iterations" and settings.tolerance == 0:
        return _ends_in_small_gains(request, run), ""  # as requested
    return run.converged and bool(np.isfinite(last)), _why(run.stop_reason)


def _ends_in_small_gains(request: FitRequest, run: AscentRun) -> bool:
    """Whether the last steps would have ended a run by the default tolerance, as `five_small_gains` does."""
    weight, stream = request.sample_weight, request.stream
    num_rows = request.data[0].shape[0] if weight is None else weight.sum()
    small_gain = smallest_gain(num_rows if stream is None else stream.num_rows, Climb.tolerance)
    recorded = run.trace["objective"][run.best_restart][: run.num_iterations]
    gains = np.diff(recorded[-SMALL_STEPS - 1 :])
    return gains.size == SMALL_STEPS and bool((gains < small_gain).all())


def _moves_to_add(request: FitRequest, found: Agreement) -> str:
    """The end of the advice to someone whose chains stay apart: moves of the sampler that were left out."""
    if not found.r_hat > APART:
        return ""
    offered = request.method.options_for_modes(request.model)
    left_out = [f"{name}={value}" for name, value in offered.items() if not request.options[name]]
    advice = f", or add moves between modes: {', '.join(left_out)}" if left_out else ""
    model = request.model
    if request.name == "tempered" or "tempered" not in model.methods or model.prior != "proper":
        return advice
    cost = f"which costs as much as this run at each of {FEWEST_TEMPERATURES} temperatures or more"
    return f"{advice}, or go from mode to mode by method='tempered', {cost}"


def _to_completion(checkpoint: str | os.PathLike | None) -> str:
    """Advice after a run that was interrupted, by the file that it was kept in."""
    if checkpoint is None:
        return "run it to completion"
    kept = os.fspath(checkpoint)
    return f"run it to completion (the same call with checkpoint={kept!r} resumes where it stopped)"


def _why(stopped: str, checkpoint: str | os.PathLike | None = None) -> str:
    """Why an ascent that stopped so has not converged, and what to do."""
    if stopped == "interrupted":
        return f"the run was interrupted. Next: {_to_completion(checkpoint)}, or continue with init=tree"
    if stopped.startswith("the objective"):
        return f"{stopped}. Next: try other starts (num_restarts), or check the scale of data and priors"
    more = "raise max_iterations or tolerance, continue with init=tree, or try other starts (num_restarts)"
    return f"{_WHY_STOPPED.get(stopped, f'stopped by {stopped}')}. Next: {more}"


def _last_objective(run: AscentRun, tree: xr.DataTree) -> float:
    """The last objective of the best restart, or the re-estimated bound of SVI."""
    if "elbo" in tree.attrs:
        return float(tree.attrs["elbo"])
    recorded = np.asarray(run.trace["objective"][run.best_restart])[: run.num_iterations]
    return float(recorded[-1]) if recorded.size else -np.inf


def _has_levelled(objective: np.ndarray, max_iterations: int) -> tuple[bool, str]:
    """Whether a noisy objective has levelled: its last two stretches differ by under two standard errors.

    A stretch is a tenth of the run and at least 50 iterations: in the few of a short run's tenth a rise of
    hundreds of nats is lost in the noise.
    """
    objective = objective[np.isfinite(objective)]
    if objective.size < _FEWEST_NOISY:
        return False, f"{objective.size} iterations are too few to judge by. Next: raise max_iterations"
    tenth = max(objective.size // 10, _SHORTEST_STRETCH)
    before, after = objective[-2 * tenth : -tenth], objective[-tenth:]
    error = np.sqrt(before.var(ddof=1) / tenth + after.var(ddof=1) / tenth)
    rise = after.mean() - before.mean()
    advice = (
        f"the objective still rose by {rise:.3g} nats over the last {tenth} iterations. Next: raise "
        f"max_iterations or step_size"
    )
    return bool(objective.size >= max_iterations and rise < 2 * error), advice


class Judgement(NamedTuple):
    """A verdict with its reason and the next step.

    Attributes:
        good: whether it is in favour; None: a caution, or nothing that could be judged.
        text: the verdict in one sentence.
        reason: why.
        advice: the next step.
    """

    good: bool | None
    text: str
    reason: str
    advice: str

    @property
    def word(self) -> str:
        """``"Good"``, ``"Caution"`` or ``"Problem"``."""
        return {True: "Good", None: "Caution", False: "Problem"}[self.good]

    @property
    def said(self) -> str:
        """The word and the sentence, as a fit's attribute ``verdict`` has them."""
        return f"{self.word}: {self.text}"

    @property
    def use(self) -> str:
        """What someone who decides may do with the answers."""
        return {
            True: "These answers can be used",
            None: "Use these answers with care",
            False: "Do not use these answers yet",
        }[self.good]


def verdict(tree: xr.DataTree) -> Judgement:
    """Give the one verdict on a run: the gravest judgement, with the others that fail named in its reason.

    Args:
        tree: a fit.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, or rows were cut off it.
    """
    return gravest(convergence_judgements(tree))


def gravest(judged: Sequence[Judgement]) -> Judgement:
    """Choose among judgements the one to state first, and name the others that fail in its reason.

    Args:
        judged: judgements of one kind, such as the result of `convergence_judgements`.
    """
    # a caution on starts comes after others: more starts would not make them go away
    first, *others = sorted(
        judged, key=lambda one: (_GRAVITY[one.good], one.good is None and one is judged[0])
    )
    also = [f"also: {_lower(one.text)}" for one in others if first.good or not one.good]
    return first._replace(reason="; ".join(filter(None, [first.reason, *also])))


def is_provisional(own: Sequence[Judgement]) -> bool:
    """Whether nothing that is read off a fit can be final, because its run failed.

    Args:
        own: the result of `convergence_judgements`.
    """
    return any(one.good is False for one in own)


_GRAVITY = {False: 0, None: 1, True: 2}


def _lower(text: str) -> str:
    """A sentence to stand inside another; names in capitals stay."""
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def sentences(judgement: Judgement) -> tuple[str, list[str]]:
    """Word a judgement: its sentence, and its reason and advice if there are any.

    Args:
        judgement: a judgement.
    """
    found = [judgement.text]
    found += [f"Why: {judgement.reason}"] if judgement.reason else []
    found += [f"Next: {judgement.advice}"] if judgement.advice else []
    first, *rest = (text if text.endswith((".", "?", "!")) else f"{text}." for text in found)
    return first, rest


def convergence_judgements(tree: xr.DataTree) -> list[Judgement]:
    """Judge the run of a fit by the rules above; the first is the one on its convergence.

    Args:
        tree: a fit.

    Raises:
        TypeError: ``tree`` is not a DataTree.
        ValueError: it has no draws, or rows were cut off it.
    """
    check_all_rows(tree)
    run = _of_chains(tree) if kind_of(tree) == "sampling" else _of_ascent(tree)
    remarks = [found for remark in REMARKS if (found := remark(tree)) is not None]
    if run.good and is_provisional(remarks):  # R-hat passes, and yet the draws cannot be trusted
        run = run._replace(good=None, text="R-hat and effective draws alone are in order")
    return [run, *remarks]


def _of_chains(tree: xr.DataTree) -> Judgement:
    sizes, stopped = draws_of(tree).sizes, str(tree.attrs.get("stop_reason", ""))
    if stopped.startswith("interrupted"):
        reason = f"the run was interrupted after {sizes['draw']} draws per chain"
        advice = _to_completion(tree.attrs.get("checkpoint"))
        return Judgement(False, "The run was cut short: do not build on these draws yet", reason, advice)
    if sizes["chain"] < 2:
        reason = f"a single chain of {sizes['draw']} draws cannot be compared with another"
        advice = "run at least two: num_chains=4"
        return Judgement(
            False, "There is one chain only: nothing shows that it has converged", reason, advice
        )
    mixed = mixing(tree) if sizes["draw"] >= 4 else None
    good, reason = judge(tree, mixed)
    told = str(tree.attrs.get(WHY_NOT, ""))
    reason, _, advice = (reason if good else told or reason).partition(". Next: ")
    if mixed is None:
        text = "There are too few draws to judge by: do not build on them yet"
        return Judgement(False, text, *_split(reason))
    if mixed.broken:
        return Judgement(False, "Some draws are not finite: do not build on this fit", *_split(reason))
    if good and int(tree.attrs.get("converged", 1)) == 0:
        text = "The run has not converged: do not build on these draws yet"
        reason, _, advice = (told or f"it ended with: {stopped or 'no reason recorded'}").partition(
            ". Next: "
        )
        return Judgement(False, text, reason, advice or "run it again")
    if good and not mixed.factors:
        reason += ": either the posterior holds one state, or the sampler never moved"
        advice = "fit by another method, or from other starts, and see whether that persists"
        return Judgement(None, "The sampler did not move: all draws are the same", reason, advice)
    if good:
        advice = "use them; refit with another seed before you publish"
        return Judgement(True, "The chains agree: the draws can be trusted", reason, advice)
    if mixed.nearly:
        text = "The chains nearly agree: averages hold to a tenth of a posterior deviation, tails are rougher"
        return Judgement(None, text, reason, advice)
    if not mixed.apart:
        text = "There are too few effective draws: averages are still rough"
        return Judgement(False, text, reason, advice)
    return Judgement(False, "The chains have not converged: do not build on these draws yet", reason, advice)


def _split(reason: str) -> tuple[str, str]:
    """A reason and the advice in its last sentence."""
    why, _, advice = reason.partition(". ")
    return why, advice[:1].lower() + advice[1:]


def _of_divergences(tree: xr.DataTree) -> Judgement | None:
    diverging = group_or_empty(tree, "sample_stats").get("diverging")
    if diverging is None or not diverging.any():
        return None
    text = f"{int(diverging.sum())} of {diverging.size} transitions diverged: the draws may miss a region"
    reason = "near a divergence the sampler may miss a region of high curvature, which R-hat does not see"
    return Judgement(False, text, reason, "raise target_accept_prob to 0.95, or compare with another method")


def _of_ascent(tree: xr.DataTree) -> Judgement:
    stopped = str(tree.attrs.get("stop_reason", "no reason recorded"))
    name = str(tree.attrs.get("method", "the ascent"))
    name = name.upper() if len(name) < 4 else name
    variational = kind_of(tree) == "variational" and not has_point_parameters(tree)
    if stopped == _SOLVED:
        reason = "a closed form: the optimum of the objective, one point without uncertainty"
        return Judgement(
            True, "Solved directly: there is nothing to converge", reason, _otherwise(model_of(tree))
        )
    if not int(tree.attrs.get("converged", 0)):
        text = f"{name} has not converged: {'q' if variational else 'the estimate'} is not final"
        why = tree.attrs.get(WHY_NOT) or _why(stopped, tree.attrs.get("checkpoint"))
        reason, _, advice = str(why).partition(". Next: ")
        return Judgement(False, text, reason, advice)
    result = "q is an approximation of the posterior" if variational else "one estimate, without uncertainty"
    return _of_starts(tree, name, stopped, result, _comparison(model_of(tree), variational))


def _comparison(model: Model, variational: bool) -> str:
    """Advice after a fit without exact draws: the sampler that takes this model, if one does."""
    referee = advised(model, ("gibbs",)) or advised(model, ("nuts",))
    if not referee:
        return _otherwise(model)
    more = ": an approximation usually understates uncertainty" if variational else ", which has a posterior"
    return f"compare with {referee}{more}"


def _otherwise(model: Model) -> str:
    """Advice where no sampler is named; a model without a density of rows cannot score them."""
    score = "score held-out rows; " if scores_new_rows(model) else ""
    return f"{score}for uncertainty fit by a method with a posterior, if there is one"


def _of_starts(tree: xr.DataTree, name: str, stopped: str, result: str, advice: str) -> Judgement:
    """Judge an ascent that has converged by how its starts ended."""
    model, spread = model_of(tree), spread_of_starts(tree)
    said = {"converged": [], "max_iterations": ["the objective has levelled off"]}.get(stopped, [stopped])
    more = "num_restarts=10: the ascent finds the optimum nearest to its start"
    if not spread:
        if "labels" in model.symmetries or answer_of(model, "has_several_modes"):
            reason = "; ".join([*said, "there was one start, and this objective has many optima", result])
            return Judgement(None, f"{name} has converged, from one start only", reason, more)
        return Judgement(True, f"{name} has converged", "; ".join([*said, result]), advice)
    reason = "; ".join([*said, spread.rstrip("."), result])
    ends = tree["trace"]["objective_at_end"].to_numpy()
    near = int((np.nanmax(ends) - ends[np.isfinite(ends)] <= CLOSE).sum())
    if "Not sure how many" in spread:
        text = f"{name} has converged, but starts of equal rank disagree on the number of clusters"
        weigh = "rely on no single number; run a sampler to weigh the alternatives"
        return Judgement(None, text, reason, weigh)
    if near < 2:
        text = f"{name} has converged, but only 1 of {ends.size} starts reached the best objective"
        again = "raise num_restarts until the best is reached twice: a better optimum may remain"
        return Judgement(None, text, reason, again)
    text = f"{name} has converged: {near} of {ends.size} starts end within {CLOSE:g} nats of the best"
    return Judgement(True, text, reason, advice)


def _of_truncation(tree: xr.DataTree) -> Judgement | None:
    model, draws = model_of(tree), draws_of(tree)
    if model.roles.occupied not in draws:
        return None
    if (truncation := truncation_of(model)) is None:
        return _of_number(tree)
    full = float((draws[model.roles.occupied] >= truncation).mean())
    if full < _OFTEN_FULL:
        return None
    text = f"The truncation is too short: all {truncation} clusters hold rows in {full:.0%} of the draws"
    reason = "the prior has infinitely many clusters and was cut where the data still fill every one"
    advice = f"raise the number of clusters to {2 * truncation} or more"
    return Judgement(None, text, reason, advice)


def _of_number(tree: xr.DataTree) -> Judgement | None:
    """Judge whether a finite mixture has used up the components that its prior would leave empty."""
    model, draws = model_of(tree), draws_of(tree)
    rows = next((tree[group].sizes.get("observation") for group in _OF_ROWS if group in tree.children), None)
    if rows is None or tree.attrs.get("method") == "em" or not answer_of(model, "leaves_some_empty", rows):
        return None
    number = draws.sizes[str(cluster_dim(model))]
    full = float((draws[model.roles.occupied] >= number).mean())
    if full < _OFTEN_FULL:
        return None
    text = f"The components are used up: all {number} hold rows" + (
        "" if full == 1 else f" in {full:.0%} of the draws"
    )
    reason = "the prior leaves some of so many empty, and the data fill every one: there may be more clusters"
    return Judgement(None, text, reason, f"raise num_components to {2 * number} or more")


def _of_joint_mode(tree: xr.DataTree) -> Judgement | None:
    """Judge whether MAP maximises over latents of rows together with scales, which their number then sets."""
    model = model_of(tree)
    if tree.attrs.get("method") != "map" or not model.answers.has_density:
        return None
    if "observed_data" not in tree.children:
        return None
    data = restored_data(group_or_empty(tree, "observed_data"), model)
    sites = latent_sites(model if model.data[0].holds_documents else for_data(model, *data), *data)
    latents = [name for name in sites if is_of_rows(model, name)]
    scales = [n for n, site in sites.items() if site.kind.startswith("positive") and n not in latents]
    if not latents or not scales:
        return None
    text = f"MAP is the mode over {listed(latents)} of every row too: do not use it for {listed(scales)}"
    reason = "a joint mode over as many latents as rows can put a scale far from where the posterior has it"
    others = advised(model, ("vb", "gibbs", "nuts", "hmc"))
    return Judgement(None, text, reason, f"fit by {others}, which averages over them" if others else "")


def _of_places(tree: xr.DataTree) -> Judgement | None:
    """Judge whether each component has a place of its own."""
    pairs = [] if kind_of(tree) == "sampling" else components_in_one_place(tree)
    if not pairs:
        return None
    named = ", ".join(f"{first} and {second}" for first, second in pairs[:_MOST_PAIRS])
    more = f" and {len(pairs) - _MOST_PAIRS} pairs more" if len(pairs) > _MOST_PAIRS else ""
    text = f"Components stand in one place: {named}{more}"
    reason = "no row says which of the two it belongs to; together they are one cluster of another shape"
    advice = "count them as one; more starts (num_restarts) may find one component in their place"
    return Judgement(None, text, reason, advice)


def _of_pieces(tree: xr.DataTree) -> Judgement | None:
    """Judge whether many clusters may be pieces of fewer, by columns that no component describes."""
    model, draws = model_of(tree), draws_of(tree)
    components = getattr(model, family_field(model), None)
    if not isinstance(components, ComponentPrior) or model.roles.occupied not in draws:
        return None
    number = int(np.median(draws[model.roles.occupied]))
    if number < _MANY or "observed_data" not in tree.children:
        return None
    observed = tree["observed_data"].to_dataset()
    if model.data_names[0] not in observed:  # counts are stored as the nonzeros alone
        return None
    x = observed[model.data_names[0]].to_pandas()
    x = x.iloc[:: -(-len(x) // _ROWS_LOOKED_AT)]
    (read,) = tree.fit.columns
    unordered = [] if read is None else [c.name for c in read.kept if c.kind == "category" and not c.numbers]
    heaped, together = {}, np.eye(x.shape[1], dtype=bool)
    for family, columns in components.by_columns:
        together[np.ix_(columns, columns)] |= family.has_correlations
        for name in x.columns[list(columns)] if family.unit_of_cells is not None else ():
            shares = x[name].value_counts(normalize=True)
            if len(shares) and shares.iloc[0] >= _HEAPED:
                heaped[name] = f"{name} is {shares.index[0]:g} in {shares.iloc[0]:.0%} of the rows"
    together |= x.columns.isin(unordered) | x.columns.isin(unordered)[:, None]
    found = np.where(together, 0.0, np.triu(x.corr("spearman")))
    pairs = sorted(np.argwhere(np.abs(found) > _TOGETHER), key=lambda pair: -abs(found[tuple(pair)]))
    reasons = [f"{x.columns[i]} with {x.columns[j]} ({found[i, j]:.2f})" for i, j in pairs[:_MOST_PAIRS]]
    reasons = [f"rank correlations that no cluster has: {', '.join(reasons)}"] if pairs else []
    reasons += list(heaped.values())[:_MOST_PAIRS]
    why = ["clusters beside each other imitate a trend or a number that no cluster can have"] * bool(reasons)
    advice = _to_leave_out(x, list(heaped), pairs) if reasons else "act on no single cluster"
    repeated = [] if read is None else [column for column in read.left_out if column.repeats]
    for column in repeated[:1]:
        reasons += [f"{column.repeats:.3g} rows of each {column.name}, which are alike"]
        why += [f"rows of one {column.name} count as rows of their own, and make a cluster of their own"]
        advice += f"; fit a table with one row of each {column.name}, and see how many clusters remain"
    if not reasons:
        return None
    text = f"{number} clusters may be pieces of fewer ({'; '.join(reasons)})"
    return Judgement(None, text, "; ".join(why), advice)


def _of_spikes(tree: xr.DataTree) -> Judgement | None:
    """Judge whether a component has shrunk onto one recorded value of a column."""
    model, labels = model_of(tree), _labellings(tree)
    components = getattr(model, family_field(model), None)
    if not isinstance(components, ComponentPrior) or labels is None or "observed_data" not in tree.children:
        return None
    chosen = [c for family, own in components.by_columns if family.has_location for c in own]
    if components.rounding is not None:
        chosen = [c for c in chosen if not components.rounding[c]]
    if not chosen:  # counts may be stored as the nonzeros alone
        return None
    whole = tree["observed_data"].to_dataset()[model.data_names[0]].to_pandas()
    x = whole.iloc[:, chosen]
    x = x.loc[:, x.nunique() > 1]
    columns = x.columns.tolist()  # numbers where the columns have no names
    rows: dict[tuple[Hashable, float], list[np.ndarray]] = {}  # their rows and clusters, by labelling
    for own in labels:
        found: dict[tuple[Hashable, float], np.ndarray] = {}
        groups = x.groupby(own)
        least, count = groups.min(), groups.count()
        for place in np.argwhere((least.eq(groups.max()) & (count >= _SPIKE)).to_numpy()):
            value = columns[place[1]], float(least.iat[*place])
            found[value] = found.get(value, np.zeros(2)) + [count.iat[*place], 1]
        for value, held in found.items():
            rows.setdefault(value, []).append(held)
    often = {v: np.median(held, axis=0) for v, held in rows.items() if len(held) >= len(labels) / 2}
    if not often:
        return None
    largest = sorted(often, key=lambda value: -often[value][0])
    told = [
        f"{c} is {at:g} in all {often[c, at][0]:.0f} rows"
        + (f" of {often[c, at][1]:.0f} clusters" if often[c, at][1] > 1 else "")
        for c, at in largest
    ]
    more = f", and {len(told) - _MOST_PAIRS} more" if len(told) > _MOST_PAIRS else ""
    text = f"Components sit on single numbers: {'; '.join(told[:_MOST_PAIRS])}{more}"
    names = list(dict.fromkeys(name for name, _ in largest))
    steps = {name: recorded_step(x[name].to_numpy()) for name in names}
    known = [f"{name} in steps of {step:g}" for name, step in steps.items() if step]
    reason = f"some columns are recorded coarsely ({', '.join(known)}); " if known else ""
    reason += "a Gaussian shrinks onto equal cells as far as its prior lets it, and counts as a cluster"
    advice = f"leave these columns out, x.drop(columns={names}), and compare"
    codes: dict[Hashable, list[float]] = {}
    for name, at in largest:
        if _is_apart(x[name], at):
            codes.setdefault(name, []).append(int(at) if at.is_integer() else at)
    if codes:
        values = listed(f"{at:g} in {name}" for name, held in codes.items() for at in held)
        advice = f"if {values} stands for missing cells, empty these, x.replace({codes}, np.nan); or {advice}"
    takes = "rounding" in components.field_dims and not (
        components.has_correlations and whole.isna().any(axis=None)
    )
    if all(steps.values()) and takes:
        former = np.zeros(whole.shape[1]) if components.rounding is None else components.rounding
        given = [steps.get(name, own) for name, own in zip(whole.columns.tolist(), former, strict=True)]
        rounding = ", ".join(f"{step:g}" for step in given)
        advice = f"say so, rounding=[{rounding}] of the components, by method='gibbs'; or {advice}"
    return Judgement(None, text, reason, advice)


def _labellings(tree: xr.DataTree) -> np.ndarray | None:
    """Labels of the rows in a few draws, or by the largest responsibility; None where none are stored."""
    if kind_of(tree) == "sampling":
        found = labels_of(tree)
        if found is None:
            return None
        draws = flat_draws(found)
        return draws[:: -(-len(draws) // _LABELLINGS)]
    responsibilities = responsibilities_of(tree)
    return None if responsibilities is None else responsibilities.to_numpy().argmax(-1)[None]


def _is_apart(cells: Any, at: float) -> bool:
    """Whether a number lies beside all others of a column by more than half their range."""
    others = cells[cells.notna() & (cells != at)]
    gap = max(others.min() - at, at - others.max())
    return bool(gap > np.ptp(others) / 2)


def _to_leave_out(x: Any, names: list[str], pairs: Sequence[np.ndarray]) -> str:
    """Advice to leave these columns out, and of each pair the one that is in most pairs."""
    held = [x.columns[pair].tolist() for pair in pairs]
    while held := [pair for pair in held if not set(pair) & set(names)]:
        names = [*names, Counter(chain(*held)).most_common(1)[0][0]]
    advice = "act on no single cluster"
    if len(names) < x.shape[1] - 1:
        advice += f": fit x.drop(columns={names}), and see how many clusters remain"
    return f"{advice}; {_DIRECTIONS}" if pairs else advice


def _of_doubtful(tree: xr.DataTree) -> Judgement | None:
    """Judge whether rows have one cluster each, by the error that naming the most probable one makes."""
    shares = memberships(tree, numbered=True)
    if shares is None:
        return None
    wrong = 1.0 - float(np.average(shares.max(1), weights=sample_weight_of(tree)))
    if wrong < _MISPLACED:
        return None
    text = (
        f"Clusters overlap: about {wrong:.0%} of the rows are expected in another cluster than the one named"
    )
    reason = "their probabilities are divided: the groups shade into each other"
    if kind_of(tree) == "variational":
        reason += "; q is surer of them than the posterior, so that more may be"
    advice = "act on probabilities (what='probabilities' of predict), not on the label of a single row"
    if not model_of(tree).data[0].holds_documents:
        advice += f"; {_DIRECTIONS}"
    return Judgement(None, text, reason, advice)


def _of_scales(tree: xr.DataTree) -> Judgement | None:
    model = model_of(tree)
    if "observed_data" not in tree.children or not any(model.scale_remedies):
        return None
    held = tree["observed_data"].to_dataset()
    coords = {str(dim): values.to_numpy() for dim, values in held.coords.items()}
    weight = tree["constant_data"].to_dataset().get("sample_weight")
    tables = tuple(held[name].to_numpy() if name in held else None for name in model.data_names)  # not sparse
    reason, remedy = scales_in_words(model, tables, coords, None if weight is None else weight.to_numpy())
    if not reason:
        return None
    text = "Columns with large numbers decide this fit: all share one noise variance"
    return Judgement(None, text, reason, f"unless all are in the same unit, {remedy}")


def _of_repeats(tree: xr.DataTree) -> Judgement | None:
    """Judge whether rows are named alike, as repeated measurements of one person are."""
    model = model_of(tree)
    row_dim = model.variable_dims[model.data_names[0]][0]
    labels = group_or_empty(tree, "observed_data").coords.get(row_dim)
    if labels is None:
        return None
    names = pd.Index(labels.to_numpy())
    number = names.nunique()
    if number < _FEWEST_NAMES or len(names) < _REPEATED * number or _are_counted(names):
        return None
    text = f"Rows repeat: {len(names)} rows go by {number} names, and each counts as evidence of its own"
    reason = "measurements of one thing are alike, so that groups may be things and intervals are too narrow"
    advice = "if a name stands for one thing, fit one row for each (in pandas table.groupby(level=0).mean())"
    return Judgement(None, text, reason, advice)


def _are_counted(names: pd.Index) -> bool:
    """Whether rows are numbered from 0, and from 0 again in each of several tables that were put together."""
    return (
        pd.api.types.is_integer_dtype(names) and names[0] == 0 and set(names[1:][np.diff(names) != 1]) <= {0}
    )


def _of_evidence(tree: xr.DataTree) -> Judgement | None:
    """Tell the log evidence with its error, or why there is none."""
    told = tree.attrs
    if "why_no_evidence" not in told:
        return None
    if why := str(told["why_no_evidence"]):
        return Judgement(None, "The log evidence is not told", *why.partition(". Next: ")[::2])
    text = (
        f"The log evidence is {told['log_evidence']:.2f} nats, standard error {told['log_evidence_se']:.2g}"
    )
    reason = "it is of this prior as much as of these data"
    if "round_trips" in told:
        trips = f"{told['round_trips']} round trips between prior and posterior"
        reason = f"{trips}, and both directions and all replicates agree; {reason}"
    return Judgement(True, text, reason, "compare it with that of other models of the same data (compare)")


#: What is said of a fit beside its convergence: each looks at a tree, and returns a remark or None.
REMARKS: tuple[Callable[[xr.DataTree], Judgement | None], ...] = (
    _of_divergences,
    _of_truncation,
    _of_joint_mode,
    _of_places,
    _of_pieces,
    _of_spikes,
    _of_doubtful,
    _of_scales,
    _of_repeats,
    _of_evidence,
)
