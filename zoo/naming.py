"""Names that are not known, in messages."""

import difflib
from collections.abc import Iterable

_ELSEWHERE = {  # names in scikit-learn, PyMC and Stan, to what they are here
    "n_components": ("num_components", "num_latents", "num_topics"),
    "n_clusters": ("num_components", "num_clusters"),
    "random_state": ("seed",),
    "rng_key": ("seed",),
    "n_init": ("num_restarts",),
    "max_iter": ("max_iterations",),
    "tol": ("tolerance",),
    "draws": ("num_samples",),
    "iter_sampling": ("num_samples",),
    "tune": ("num_warmup",),
    "iter_warmup": ("num_warmup",),
    "chains": ("num_chains",),
}


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A name that is near to one that is not known, as the end of a message.

    Args:
        name: as it was written.
        known: the names that there are.

    Returns:
        "; did you mean ...?", or nothing where none is near.
    """
    known = list(known)
    near = [own for own in _ELSEWHERE.get(name, ()) if own in known]
    near += [own for own in known if own.casefold() == name.casefold()]
    near += difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
