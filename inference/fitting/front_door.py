"""`fit`: read the call, plan a run, drive it, build the tree."""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import Any, Unpack

import jax
import xarray as xr

from inference.algorithm import Direct, FitRequest, Init, Sampler, model_name
from inference.convergence.numbering import numbered
from inference.coordinates import inward
from inference.fitting.arguments import Call, read_call, unsaid
from inference.fitting.in_batches import BatchPlan, MemoisedPlan, NaturalGradientPlan, SummedPlan
from inference.fitting.in_memory import AscentPlan, DirectPlan, SamplerPlan
from inference.fitting.memory import one_memory_error
from inference.fitting.models_of_others import check_facts, check_outcome
from inference.fitting.verdict import WHY_NOT, has_converged, verdict
from inference.methods.units import fitted_in_data_units
from inference.numerics.atomic_files import held_alone
from inference.numerics.compiled import for_work
from inference.numerics.devices import of_first_process
from inference.precision import in_precision
from inference.processes import among_processes
from inference.results.build import build_tree, is_for_new_rows
from inference.settings import More, Settings
from zoo.answers import answer_of
from zoo.checks import warn
from zoo.model import Model


@among_processes()
def fit(
    model: Model,
    *data: Any,
    method: str | Settings = "auto",
    seed: int | jax.Array = 0,
    num_chains: int = unsaid(4),
    num_warmup: int = unsaid(1000),
    num_samples: int = unsaid(1000),
    thinning: int = unsaid(1),
    chain_method: str = unsaid("vectorized"),
    max_iterations: int = unsaid(1000),
    tolerance: float = unsaid(1e-6),
    num_restarts: int | None = None,
    init: Init = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    dtype: str = "float64",
    keep: tuple[str, ...] = (),
    progress: bool | None = None,
    checkpoint: str | os.PathLike | None = None,
    **more: Unpack[More],
) -> xr.DataTree:
    """Fit a model to data; the result is a DataTree that ArviZ reads.

    Args:
        model: a model of the zoo; fields that are None are read off the data.
        *data: the arguments of the model's program: arrays of shape (num_observations, num_features),
            DataFrames, a folder of texts, or, with ``batch_size``, rows stored elsewhere (paths, objects of
            pyarrow, Zarr and Dask; see `inference.inputs.sources`). The labels of a DataFrame become coords,
            and its columns are read by what they hold, words, dates, counts and ids included
            (`zoo.intake`); `inference.columns_of(tree)` tells how. None, NaN, ``pandas.NA`` and masked cells
            of ``numpy.ma`` are missing cells, which the model takes or refuses. If several parts are tables
            or Series of pandas, their rows are paired by index: a part with the same labels in another order
            is reordered, one with other labels is refused. An array has no labels: beside a table it is
            paired by position, and a pandas part after a first part that is an array must have the index
            0, 1, ... (otherwise pass ``.to_numpy()``).
        method: one of ``model.methods``; ``"auto"``: the first that accepts this model and data (and this
            ``init``, if given). Or its settings: ``method=inference.NUTS(num_chains=2)`` is ``method="nuts",
            num_chains=2``; those of a model's own methods are beside them, such as
            ``inference.methods.mixture.VB``.
        seed: a whole number in [0, 2**32) or a JAX key. The same seed, machine, versions, ``chain_method``
            and devices give the same answer bit for bit.
        num_chains: chains of a sampler.
        num_warmup: sweeps before draws are kept.
        num_samples: draws kept per chain; for VB and SVI, independent draws from q, as one chain. Of tables
            with 16 columns or more as many are made as fit into 250 MB (of full covariances, where there are
            any), with a warning; ``keep`` with the name of one makes all. Where a call says neither this nor
            ``until``, ``gibbs`` and ``collapsed_gibbs`` of mixtures run until their chains have converged,
            500 draws at a time, up to a limit in sweeps that is read off the sizes of the table.
        thinning: sweeps per kept draw; such a run has its own where the call does not say.
        chain_method: ``"vectorized"``, ``"sequential"`` or ``"parallel"`` (over devices). Several processes
            (`inference.join_processes`) share the chains of a sampler, each running its chains one after
            another: every process passes the same data and gets all draws, equal bit for bit to
            ``"sequential"`` in one process. They share the rows of ``vb`` of `zoo.Mixture`, `zoo.LDA` and
            `zoo.PCP`, and with ``batch_size`` those of `zoo.PPCA`: each process passes its own rows and
            contributes an equal share of every batch.
        max_iterations: the most steps of VB, EM or MAP; the number of steps of SVI.
        tolerance: gain of the objective in nats per row, by default .3 nats a step for 300 000 rows; five
            consecutive steps below it mean convergence. 0: exactly ``max_iterations`` steps.
        num_restarts: starts of VB, EM or MAP, run side by side; the best objective is kept. None: as many as
            model and method need, if that is cheap for tables of this size: 10 for mixtures, 5 for MAP under
            weak priors, 2 for LDA and for PCP with more clusters than topics (the card has the limits); 1
            otherwise, and with ``init``, ``batch_size`` or several devices. With None a start of ``em`` of
            mixtures or ``vb`` of LDA and PCP that can no longer catch up is stopped early; all others end by
            ``tolerance`` or ``max_iterations``. Their traces in the tree are cut where that of the best ends.
        init: where to start: a former tree, of these rows or others, a dict of variables
            (``{"responsibilities": r}``), or the name of a strategy.
        sample_weight: weight per row, at least 0, shape (num_observations,): a row of weight w counts as w
            copies, that is, its likelihood (labels and latents summed out) is raised to the power w. Taken by
            ``vb`` and ``em`` of mixtures and PPCA, by ``nuts`` and ``hmc`` of both, and, as whole numbers, by
            ``gibbs`` of mixtures. A Series is paired with the rows by its index, as parts of the data are; a
            string names a column of the first part, which is then not modelled. Default priors are read off
            the weighted rows too; the group ``log_likelihood`` is of each row once.
        batch_size: rows per batch; files (`inference.inputs.sources`), memory maps and chunks (an object with
            ``__iter__``, or a callable that makes a fresh iterator) are never held whole. ``vb`` of mixtures:
            an iteration is one pass over all batches (memoised variational inference, Hughes and Sudderth
            2013). VB first converges on ``batch_size`` rows (with ``moves``, if asked), evenly spaced ones or
            the first of the chunks; data-dependent default priors are read off at most 100 000 rows of a file
            or of chunks. The kinds of the columns of a table in files are decided from all of its rows
            (`inference.inputs.surveys`), weights are held in memory, 8 bytes per row, and missing cells are
            taken if the columns of a component are independent. `zoo.PPCA`, by ``closed_form``, ``em`` and
            ``vb``: one pass computes the number, mean and scatter matrix of the rows, and the fit equals that
            of all rows in memory to rounding (`inference.numerics.summed_rows`); a missing cell is refused.
            ``vb`` of `zoo.LDA` and `zoo.PCP`: documents per batch, from counts, texts or chunks of them, by
            stochastic steps (`inference.methods.lda.vb`, `inference.methods.pcp.vb_batches`); the last value
            of the trace is the bound of all documents. Other models are refused, because they optimise or
            sample a variable per row (such as the latents of `zoo.EPCA`).
        dtype: ``"float64"`` or ``"float32"``.
        keep: names of variables to store whatever their size (``"assignments"``, ``"log_likelihood"``).
        progress: whether to show a bar; None: on a terminal or in a notebook.
        checkpoint: a file to save to, about every five seconds, and to resume from: the same call continues
            the run, and another call is refused with what differs. If the file cannot be written (the disk is
            full, the folder gone) a warning is given, and the run continues and tries again. Only one run at
            a time may use the file; a second one, of another process or thread, is refused (by ``flock``; on
            systems without it, such as Windows, the last to save wins). The processes of one
            ``jax.distributed`` run count as one: the first reads and writes. Ctrl-C or SIGTERM, in the main
            thread, saves the run and returns what there is.
        **more: options of the method, which its settings describe; ``until``, ``max_sweeps`` and
            ``max_seconds`` of samplers, see `inference.settings.Sampling`; and how the columns of a DataFrame
            are read: ``families`` (column to its family or kind, such as ``{"income": "gaussian"}``, one of
            `zoo.intake.KINDS`, in place of what `zoo.intake.read_columns` found; ``"leave_out"`` leaves the
            column out), ``levels`` (column to its levels in rising order, which makes it ordered) and ``id``
            (the column whose cells label the rows).

    Returns:
        The tree, with groups ``posterior``, ``variational`` (except for samplers), ``trace``,
        ``sample_stats``, ``log_likelihood`` (where there is a posterior), ``observed_data`` and
        ``constant_data``; dims are those of ``model.dims``.

    Raises:
        FileNotFoundError: a path at which there is nothing.
        ModuleNotFoundError: rows of a kind that needs an extra; the message names it.
        TypeError: an argument of the wrong kind, an option that the method does not have, a setting given
            twice with different values, more or fewer parts of data than the model takes, or data that are
            not numeric.
        ValueError: anything else that is wrong with the call, including a run whose states and draws cannot
            fit into the memory of this machine; always before anything is compiled.
        MemoryError: memory ran out nevertheless.
        FloatingPointError: the objective, or the log joint of a chain, is not finite from the first step;
            or clusters lie so far apart that sums over the rows lose their spread to rounding.

    Example:
        >>> import numpy as np, inference, zoo
        >>> x = np.random.default_rng(0).normal(size=(20, 3))
        >>> tree = inference.fit(zoo.PPCA(num_latents=1), x, method="closed_form")
        >>> tree.attrs["method"], tree["variational"]["loadings"].dims
        ('closed_form', ('feature', 'latent'))
    """
    begun = time.perf_counter()
    settings: dict[str, Any] = {
        "num_chains": num_chains,
        "num_warmup": num_warmup,
        "num_samples": num_samples,
    }
    settings |= {"thinning": thinning, "chain_method": chain_method, "max_iterations": max_iterations}
    settings |= {"tolerance": tolerance, "num_restarts": num_restarts, **more}
    of_run = dtype, keep, progress, checkpoint
    call = Call(model, data, method, seed, settings, init, sample_weight, batch_size, *of_run)
    request = inward(read_call(call))
    check_facts(request)
    with in_precision(dtype), for_work(*request.work), one_memory_error(request), _held(request):
        run = plan(request)
        concluded = run.drive()
        check_outcome(request, concluded)
        fitted = fitted_in_data_units(request, concluded)
        rows, weight = request.data[0], request.sample_weight
        num_rows = len(rows) if weight is None else weight.sum()
        answer_of(request.model, "check_resolved", fitted.outcome.posterior, num_rows, dtype, rows)
        tree, is_judged = build_tree(request, fitted), not is_for_new_rows(request, fitted.outcome)
        if is_judged:
            tree = numbered(tree, request.spreads_rows)
    converged, why = has_converged(request, fitted.run, tree)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    tree.attrs |= {
        "converged": int(converged),
        "sampling_time": time.perf_counter() - begun,
        "created_at": now,
    }
    if not converged and why:
        tree.attrs[WHY_NOT] = why
        warn(f"{model_name(request.model)} by {request.name} has not converged: {why}")
    if not is_judged:
        return tree
    found = verdict(tree)
    tree.attrs["verdict"] = found.said
    if converged and found.good is False:  # its draws cannot be trusted for another reason
        warn(f"{model_name(request.model)} by {request.name}: {found.text}. Next: {found.advice}")
    return tree


@contextmanager
def _held(request: FitRequest) -> Iterator[None]:
    """Hold the checkpoint of a run against every other run; the processes of one run hold it together."""
    with ExitStack() as stack:

        def hold() -> None:
            stack.enter_context(held_alone(request.checkpoint))

        if request.checkpoint is not None and not isinstance(request.method, Direct):
            of_first_process(hold)
        yield


def plan(
    request: FitRequest,
) -> DirectPlan | SamplerPlan | AscentPlan | MemoisedPlan | NaturalGradientPlan | SummedPlan:
    """The plan of a run; options that do not go with the data are refused here."""
    if request.stream is not None and "moments" in request.method.takes:
        return SummedPlan(request)
    if request.stream is not None:
        return BatchPlan.of(request)
    if isinstance(request.method, Direct):
        return DirectPlan(request)
    return (SamplerPlan if isinstance(request.method, Sampler) else AscentPlan).of(request)
