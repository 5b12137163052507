r"""Convergence of chains: the PSRF of every invariant, its path over the run, and the verdict.

The potential scale reduction factor compares m chains of n draws: with B/n the variance of the chain means
and W the mean of the chain variances, :math:`\hat R = \sqrt{(\frac{n-1}{n} W + \frac1n B) / W}` (Gelman and
Rubin 1992, "Inference from iterative simulation using multiple sequences"; method ``"identity"``, the one the
papers print). The default is rank-normalised, split and folded, which also sees chains that drift, or that
differ in spread or in the tails only (Vehtari et al. 2021, "Rank-normalization, folding, and localization: an
improved R-hat"). The numbers are computed by ArviZ. Draws that are independent by construction (from q)
have nothing to forget: they are refused.
"""

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from inference.convergence.identifiable import draws_of, invariants, kind_of, named_variables, scalars
from zoo import late
from zoo.checks import check_choice

_METHODS = ("rank", "split", "folded", "z_scale", "identity")
_FEWEST_DRAWS = 4
R_HAT_WANTED = 1.01  # below it: recommended by Vehtari et al. 2021
R_HAT_NEAR, ESS_NEAR = 1.05, 100  # of all chains: a standard error of a tenth of a posterior deviation
APART = 1.1  # above it the chains may sit in different modes
ESS_PER_CHAIN_WANTED = 100


def psrf(tree: xr.DataTree, var_names: Sequence[str] | None = None, method: str = "rank") -> xr.Dataset:
    """Potential scale reduction factor (R-hat, `rhat`) between the chains of a sampler's fit.

    Args:
        tree: a fit by MCMC with at least two chains.
        var_names: names of invariants or of variables of the posterior; all invariants by default. Raw
            labelled parameters are computed when named, and then show the label switching itself.
        method: ``"rank"``, or ``"identity"`` for the papers' Gelman-Rubin statistic, or another of ArviZ's.

    Returns:
        Dataset of R-hats without the dims chain and draw. A quantity that never changed has none: NaN, and
        the attribute ``constant`` names it.

    Raises:
        ValueError: the draws are not Markov chains, there is one chain or fewer than 4 draws, or a name or
            the method is unknown.
    """
    _check(tree, method)
    values = named_variables(tree, var_names)
    return _factors(values, method).assign_attrs(method=method, constant=_constant(values))


rhat = psrf  # its name today; the papers of the models say PSRF


def psrf_path(
    tree: xr.DataTree, var_names: Sequence[str] | None = None, method: str = "rank", num_points: int = 50
) -> xr.Dataset:
    """PSRF against the number of draws: the papers' convergence plot, as numbers.

    At n draws the second half of the first n is used (Brooks and Gelman 1998), so that a bad start is dropped
    as the window grows.

    Args:
        tree: a fit by MCMC with at least two chains.
        var_names: as for ``psrf``.
        method: as for ``psrf``.
        num_points: window ends, evenly spread; at most one per draw.

    Returns:
        Dataset like that of ``psrf`` with the leading dim ``draw``, whose coordinate counts the draws (per
        chain) seen so far; the attribute ``constant`` names the variables that never changed.

    Raises:
        ValueError: as for ``psrf``, or ``num_points`` is not positive.
    """
    _check(tree, method)
    if num_points < 1:
        raise ValueError(f"num_points must be at least 1; got {num_points}")
    values = named_variables(tree, var_names)
    total = values.sizes["draw"]
    first = min(total, max(20, total // num_points))
    ends = np.unique(np.linspace(first, total, num_points).round().astype(int))
    path = [_factors(values.isel(draw=slice(end // 2, end)), method) for end in ends]
    along = xr.DataArray(ends, dims="draw", name="draw")
    return xr.concat(path, dim=along).assign_attrs(method=method, constant=_constant(values))


class Mixing(NamedTuple):
    """What `judge` goes by, invariant by invariant.

    Attributes:
        factors: rank-normalised R-hat of each scalar that varies, by its name.
        sizes: bulk effective sample size of the same scalars.
        constant: names of the scalars that never change.
        broken: name and number of draws that are not finite of the first scalar that has such; empty if none.
        needed: the effective sample size that is wanted.
    """

    factors: dict[str, float]
    sizes: dict[str, float]
    constant: list[str]
    broken: tuple[str, int] | tuple[()]
    needed: int

    @property
    def apart(self) -> list[str]:
        """Names of the scalars on which the chains disagree, the worst first."""
        failed = [name for name, factor in self.factors.items() if not factor < R_HAT_WANTED]
        return sorted(failed, key=lambda name: -self.factors[name])

    @property
    def slow(self) -> list[str]:
        """Names of the scalars with too few effective draws, the worst first."""
        return sorted((n for n, size in self.sizes.items() if not size > self.needed), key=self.sizes.get)

    @property
    def nearly(self) -> bool:
        """Whether all chains agree but for the noise of few draws: averages can be used, tails cannot."""
        close = all(factor < R_HAT_NEAR for factor in self.factors.values())
        return close and all(size > ESS_NEAR for size in self.sizes.values())

    @property
    def worst(self) -> list[str]:
        """Names of all scalars that vary, the largest R-hat first."""
        return sorted(self.factors, key=lambda name: -np.nan_to_num(self.factors[name], nan=np.inf))


def mixing(tree: xr.DataTree) -> Mixing:
    """R-hat and effective sample size of every invariant.

    Raises:
        ValueError: the draws are not Markov chains.
    """
    if kind_of(tree) != "sampling":
        raise ValueError(why_no_psrf(tree))
    values = invariants(tree)
    factors, sizes, constant = {}, {}, []
    needed = ESS_PER_CHAIN_WANTED * values.sizes["chain"]
    for name, draws in scalars(values):
        if number := np.count_nonzero(~np.isfinite(draws)):
            return Mixing(factors, sizes, constant, (name, number), needed)
        if is_constant(draws):
            constant.append(name)
        else:
            factors[name], sizes[name] = psrf_of(draws, "rank"), effective_sample_size(draws, "bulk")
    return Mixing(factors, sizes, constant, (), needed)


class Agreement(NamedTuple):
    """What the chains of a sampler say.

    Attributes:
        converged: the verdict.
        reasons: one sentence, with the next step if the verdict is no.
        r_hat: the largest R-hat, NaN where none could be computed.
    """

    converged: bool
    reasons: str
    r_hat: float


def judge(tree: xr.DataTree, mixed: Mixing | None = None) -> tuple[bool, str]:
    """Whether the chains of a sampler agree on every invariant, and why.

    Converged means: rank-normalised R-hat below 1.01 and bulk ESS above 100 per chain, for all invariants
    that vary.

    Args:
        tree: a fit by MCMC.
        mixed: its `mixing`, where it is known.

    Returns:
        The verdict and one sentence of reasons, with the next step if the verdict is no.

    Raises:
        ValueError: the draws are not Markov chains.
    """
    return judgement(tree, mixed)[:2]


def judgement(tree: xr.DataTree, mixed: Mixing | None = None) -> Agreement:
    """The verdict of `judge` with the largest R-hat.

    Raises:
        ValueError: the draws are not Markov chains.
    """
    if kind_of(tree) != "sampling":
        raise ValueError(why_no_psrf(tree))
    sizes = draws_of(tree).sizes
    if sizes["chain"] < 2:
        return Agreement(
            False, "one chain: nothing to compare it with. Run at least two (num_chains=4)", np.nan
        )
    if sizes["draw"] < _FEWEST_DRAWS:
        return Agreement(
            False, f"{sizes['draw']} draws per chain are too few to judge. Raise num_samples", np.nan
        )
    mixed = mixing(tree) if mixed is None else mixed
    if mixed.broken:
        name, number = mixed.broken
        reasons = f"{name} is not finite in {number} draws. Check the data and the prior's scale"
        return Agreement(False, reasons, np.nan)
    if not mixed.factors:
        return Agreement(True, f"all {len(mixed.constant)} invariants are constant over the draws", np.nan)
    worst, least = max(mixed.factors, key=mixed.factors.get), min(mixed.sizes, key=mixed.sizes.get)
    largest = mixed.factors[worst]
    figures = (
        f"largest R-hat {_beside(largest, R_HAT_WANTED, 3)} ({worst}; below {R_HAT_WANTED} wanted), "
        f"smallest bulk ESS {_beside(mixed.sizes[least], mixed.needed, 0)} "
        f"({least}; above {mixed.needed} wanted), "
        f"over {len(mixed.factors)} invariants"
    )
    if largest < R_HAT_WANTED and mixed.sizes[least] > mixed.needed:
        return Agreement(True, figures, largest)
    advice = _longer(tree, bool(mixed.apart))
    if largest > APART:
        advice += ", and look at psrf_path and the trace: the chains may sit in different modes"
    failing = {"R-hat": len(mixed.apart), "ESS": len(mixed.slow)}
    on = [f"{number} on {figure}" for figure, number in failing.items() if number]
    first, _, others = " and ".join(on).partition(" ")
    failed = f"{first} invariant{' fails' if first == '1' else 's fail'} {others}"
    return Agreement(False, f"{failed}: {figures}. Next: {advice}", largest)


def _beside(figure: float, bound: float, decimals: int) -> str:
    """A figure in so many decimals, and in more where it would read as the bound that it misses or meets."""
    while float(f"{figure:.{decimals}f}") == bound != figure and decimals < 6:
        decimals += 1
    return f"{figure:.{decimals}f}"


def _longer(tree: xr.DataTree, are_apart: bool) -> str:
    """Advice on lengthening the run: which limit to raise, if it was to run until it had converged."""
    if "looks" in tree.attrs and tree.attrs["stop_reason"] == "completed":
        options = json.loads(tree.attrs["options"])
        next_look = tree.attrs["num_iterations"] + options["num_samples"] * options["thinning"]
        limit = "max_sweeps" if next_look > options["max_sweeps"] else "max_seconds"
        if options[limit] is not None:  # else it had converged, and these are other draws than it judged
            return f"raise {limit} (the run ended at {options[limit]:g}, look {tree.attrs['look']})"
    return "raise num_warmup and num_samples" if are_apart else "raise num_samples or thinning"


def why_no_psrf(tree: xr.DataTree) -> str:
    """Why R-hat does not apply to a fit that is not by MCMC, in one sentence."""
    method = tree.attrs.get("method", "this method")
    if kind_of(tree) == "point":
        return (
            f"method {method!r} gives one point estimate: there are no chains to compare, "
            "so R-hat and ESS do not apply"
        )
    return (
        f"method {method!r} gives independent draws from an approximate posterior q: R-hat would be 1 "
        "whatever q is, so it is not shown. To see what q misses, compare restarts, or start a sampler from "
        "it (init=tree)"
    )


def psrf_of(draws: np.ndarray, method: str) -> float:
    """R-hat of one scalar, draws (chain, draw): NaN if constant, infinite if each chain is stuck."""
    if is_constant(draws) or not np.isfinite(draws).all():
        return np.nan
    if not np.ptp(draws, axis=1).any():  # no chain moves: W = 0, which rounding would hide
        return np.inf
    # ArviZ's "rank" is the larger of these two; a two-valued quantity can be constant once folded, and then
    # only the first speaks
    methods = ("z_scale", "folded") if method == "rank" else (method,)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = [late.array_stats.rhat(draws, chain_axis=0, draw_axis=1, method=m) for m in methods]
    return float(np.fmax.reduce(np.array(found, float)))


def largest_psrf(scalars: Iterable[np.ndarray]) -> float:
    """The largest rank-normalised R-hat of scalars that vary, each (chain, draw); 1 if all are constant."""
    return float(max([1.0, *(psrf_of(draws, "rank") for draws in scalars if not is_constant(draws))]))


def effective_sample_size(draws: np.ndarray, kind: str) -> float:
    """Effective sample size of one scalar.

    Args:
        draws: shape (chain, draw).
        kind: ``"bulk"`` or ``"tail"`` (5 and 95 %).

    Returns:
        The number of independent draws that are worth as much; NaN if the draws are constant or not finite.
    """
    if is_constant(draws) or not np.isfinite(draws).all():
        return np.nan
    prob = {"prob": (0.05, 0.95)} if kind == "tail" else {}
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(late.array_stats.ess(draws, chain_axis=0, draw_axis=1, method=kind, **prob))


def is_constant(draws: np.ndarray) -> bool:
    """Whether every draw is the same (finite) number."""
    return bool(np.isfinite(draws).all() and draws.size and np.ptp(draws) == 0)


def _check(tree: xr.DataTree, method: str) -> None:
    check_choice("method", method, _METHODS)
    sizes = draws_of(tree).sizes
    if kind_of(tree) != "sampling":
        raise ValueError(why_no_psrf(tree))
    if sizes["chain"] < 2:
        raise ValueError("R-hat compares chains and this fit has one: fit with num_chains=4")
    if sizes["draw"] < _FEWEST_DRAWS:
        raise ValueError(f"R-hat needs at least {_FEWEST_DRAWS} draws per chain; got {sizes['draw']}")


def _factors(values: xr.Dataset, method: str) -> xr.Dataset:
    """R-hat of every scalar."""
    return xr.apply_ufunc(
        partial(psrf_of, method=method),
        values.astype(float),
        input_core_dims=[["chain", "draw"]],
        vectorize=True,
        output_dtypes=[float],
    )


def _constant(values: xr.Dataset) -> str:
    """Names of the variables that never change."""
    return ", ".join(name for name, value in values.items() if is_constant(value.values))
