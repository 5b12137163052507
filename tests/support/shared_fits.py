"""Fits that several processes share: a script that each of them runs, and the same fits in one process.

``python tests/support/shared_fits.py FILE NAME ...`` in several processes (`processes.sharing`) writes what
the fits found in process 0 to FILE. With ``--die PROCESS LOOKS`` a process kills itself when its driver has
looked for Ctrl-C so often.
"""

import json
import os
import signal
import sys
import warnings

import numpy as np

__all__ = ["FITS", "OF_CHAINS", "SPREAD", "found_in"]

CALL = {"max_iterations": 40, "tolerance": 0, "num_samples": 3, "num_restarts": 1}
CHAINS = {"num_warmup": 15, "num_samples": 12, "num_chains": 3, "chain_method": "sequential"}
BATCH = 40


def _rows():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 2)) * 4
    return centres[rng.integers(5, size=502)] + rng.normal(size=(502, 2))


def _texts():
    texts = np.random.default_rng(1).poisson(0.4, (41, 12)) + np.eye(41, 12)
    texts[7] = 0
    return texts


def _cut(rows, number, count):
    """A process's rows; the shares differ in length."""
    if count == 1:
        return rows
    ends = [int(len(rows) * (i / count) ** 1.5) for i in range(count + 1)]
    return rows[ends[number] : ends[number + 1]]


def _dealt(rows, number, count):
    """A process's share of every batch of one process, so that together they pass as they stand."""
    share = BATCH // count
    batches = (rows[begin : begin + BATCH] for begin in range(0, len(rows), BATCH))
    return np.concatenate([batch[share * number : share * (number + 1)] for batch in batches])


def _mixture(fit, zoo, number, count, **call):
    model = zoo.Mixture(num_components=8, weight_prior="stick_breaking")
    weight = np.random.default_rng(2).uniform(size=502)
    return fit(model, _cut(_rows(), number, count), sample_weight=_cut(weight, number, count), **CALL, **call)


def _mixture_float32(fit, zoo, number, count, **call):
    return fit(zoo.Mixture(num_components=4), _cut(_rows(), number, count), dtype="float32", **CALL, **call)


def _mixture_moves(fit, zoo, number, count, **call):
    settings = CALL | {"max_iterations": 100}
    moves = {"moves": ("merge", "birth")}
    return fit(zoo.Mixture(num_components=8), _cut(_rows(), number, count), **moves, **settings, **call)


def _mixture_batches(fit, zoo, number, count, **call):
    settings = CALL | {"max_iterations": 6, "batch_size": BATCH}
    return fit(zoo.Mixture(num_components=8), _dealt(_rows(), number, count), **settings, **call)


def _lda(fit, zoo, number, count, **call):
    learn = {"learn": ("word_smoothing", "topic_prior")}
    return fit(zoo.LDA(num_topics=3), _cut(_texts(), number, count), **learn, **CALL, **call)


def _pcp(fit, zoo, number, count, **call):
    return fit(zoo.PCP(num_topics=2, num_clusters=40), _cut(_texts(), number, count), **CALL, **call)


def _pcp_annealed(fit, zoo, number, count, **call):
    return fit(zoo.PCP(num_topics=4, num_clusters=3), _cut(_texts(), number, count), **CALL, **call)


def _lda_batches(fit, zoo, number, count, **call):
    settings = CALL | {"max_iterations": 6, "batch_size": 12}
    return fit(zoo.LDA(num_topics=3), _cut(_texts(), number, count), **settings, **call)


def _pcp_batches(fit, zoo, number, count, **call):
    settings = CALL | {"max_iterations": 6, "batch_size": 12}
    return fit(zoo.PCP(num_topics=2, num_clusters=4), _cut(_texts(), number, count), **settings, **call)


def _ppca_batches(fit, zoo, number, count, **call):
    rng = np.random.default_rng(2)
    weight, noise = rng.uniform(size=502), rng.normal(size=(502, 5))
    rows = _cut(_rows() @ rng.normal(size=(2, 5)) + noise, number, count)
    settings = CALL | {"batch_size": BATCH, "sample_weight": _cut(weight, number, count)}
    return fit(zoo.PPCA(num_latents=2, loading_prior="ard"), rows, method="vb", **settings, **call)


def _gibbs(fit, zoo, number, count, **call):
    return fit(zoo.Mixture(num_components=6), _rows(), method="gibbs", **CHAINS, **call)


def _collapsed(fit, zoo, number, count, **call):
    model = zoo.Mixture(num_components=6, weight_prior="stick_breaking")
    return fit(model, _rows()[:100], method="collapsed_gibbs", **CHAINS, **call)


def _nuts(fit, zoo, number, count, **call):
    model = zoo.PPCA(num_latents=1, loading_prior="gaussian")
    return fit(model, _rows()[:60], method="nuts", **CHAINS, **call)


def _hmc(fit, zoo, number, count, **call):
    model = zoo.PPCA(num_latents=1, loading_prior="gaussian")
    return fit(model, _rows()[:60], method="hmc", **CHAINS, **call)


def _until(fit, zoo, number, count, **call):
    settings = CHAINS | {"until": "converged", "max_sweeps": 60}
    return fit(zoo.LDA(num_topics=2), _texts(), method="gibbs", **settings, **call)


SPREAD = {
    "mixture": _mixture,
    "mixture float32": _mixture_float32,
    "mixture moves": _mixture_moves,
    "mixture batches": _mixture_batches,
    "lda": _lda,
    "lda batches": _lda_batches,
    "pcp": _pcp,
    "pcp annealed": _pcp_annealed,
    "pcp batches": _pcp_batches,
    "ppca batches": _ppca_batches,
}


def _tempered(fit, zoo, number, count, **call):
    """Of which temperatures and slots become more in warm-up."""
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.normal(size=(8, 1)) * 0.1 + 10 * rng.normal() for _ in range(5)])
    model = zoo.Mixture(num_components=2, weight_prior="stick_breaking")
    return fit(model, rows, method="tempered", **CHAINS | {"num_warmup": 130}, **call)


OF_CHAINS = {"gibbs": _gibbs, "collapsed": _collapsed, "nuts": _nuts, "hmc": _hmc, "until": _until}
OF_CHAINS |= {"tempered": _tempered}
FITS = SPREAD | OF_CHAINS
GLOBAL = {  # variables of q that are not of rows
    *("num_occupied", "topic_word_concentration", "cluster_topic_concentration"),
    *("loadings_mean", "loc_mean"),
}


def found_in(name, number=0, count=1, **call):
    """What a fit found: its whole trace, and of chains all draws."""
    import zoo
    from inference import fit

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short runs have not converged
        tree = FITS[name](fit, zoo, number, count, **call)
    groups = {"trace": tree["trace"].data_vars}
    if name in OF_CHAINS:
        groups |= {"posterior": tree["posterior"].data_vars, "sample_stats": tree["sample_stats"].data_vars}
    else:
        groups["variational"] = {n: v for n, v in tree["variational"].data_vars.items() if n in GLOBAL}
    found = {
        f"{group} {key}": np.nan_to_num(np.asarray(value)).tolist()
        for group, variables in groups.items()
        for key, value in variables.items()
    }
    held = tree["observed_data"].sizes if "observed_data" in tree.children else {}  # not of summed-up rows
    return found | {"rows": held.get("observation", 0)}


def _end_at(looks):
    """Kill this process when its driver has looked for Ctrl-C so often, and count the looks."""
    from inference.driver import ascent, chains, checkpoint, host, memoised, stochastic

    checkpoint.SECONDS_BETWEEN_SAVES = 0.0  # at every look
    host.ChunkLength.__exit__ = lambda self, *error: None  # ten steps a chunk

    class Interrupt(host.Interrupt):
        asked = 0

        @property
        def requested(self):
            type(self).asked += 1
            if self.asked == looks:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        @requested.setter
        def requested(self, value):
            raise AssertionError("nobody interrupts")

    for module in (ascent, chains, memoised, stochastic):
        module.Interrupt = Interrupt
    return Interrupt


def main(file, *names):
    import inference

    number, count = inference.join_processes()
    counted = None
    if "--die" in names:
        at = names.index("--die")
        victim, looks = map(int, names[at + 1 : at + 3])
        names = names[:at]
        counted = _end_at(looks if number == victim else 0)
    call = {} if counted is None else {"checkpoint": f"{file}.npz"}
    found = {name: found_in(name, number, count, **call) for name in names}
    if counted is not None:
        found["looks"] = counted.asked
    if number == 0:
        with open(file, "w") as out:
            json.dump(found, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
