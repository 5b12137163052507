"""Whether noise variances of SPPCA are at their floor, or nothing else bounds the likelihood."""

from typing import Any

import numpy as np

from zoo.checks import warn
from zoo.shapes import Values
from zoo.sppca import SPPCA

FLOOR_SLACK = 1.0 + 1e-9


def warn_of_floors(values: Values, model: SPPCA, y: np.ndarray, variance_x: float | None) -> None:
    """Warn if a noise variance is at its floor, or if the likelihood may have no maximum without the floor.

    Args:
        values: the estimate.
        model: the model.
        y: outputs, NaN where missing.
        variance_x: mean variance of the columns of x; None where the noise of x is given.
    """
    variance_y = np.nanvar(y, axis=0)
    shared, has_noise_y = model.output_noise == "shared", model.output_likelihood == "gaussian"
    floors: dict[str, Any] = {}
    if has_noise_y:
        floors["y"] = float(model.noise_floor[1]) * (variance_y.mean() if shared else variance_y)
    if variance_x is not None:
        floors["x"] = float(model.noise_floor[0]) * variance_x
    for name, floor in floors.items():
        held = np.atleast_1d(np.asarray(values[f"noise_variance_{name}"]) <= floor * FLOOR_SLACK)
        if held.any():
            which = f" of output {int(np.argmax(held))}" if name == "y" and not shared else ""
            share = float(model.noise_floor[int(name == "y")])
            warn(
                f"noise_variance_{name}{which} is at its floor, {share:g} of the variance: the likelihood "
                f"rises as it goes to 0; use fewer latents or more rows"
                + (", or label_coding='reduced'" if model.is_classes else "")
            )
    if not has_noise_y:
        return
    labelled = y[~np.isnan(y).any(axis=1)]
    rank = int(np.linalg.matrix_rank(labelled - labelled.mean(axis=0))) if len(labelled) else y.shape[1]
    if rank < y.shape[1] and model.num_latents >= rank:
        warn(
            f"the {y.shape[1]} outputs have rank {rank} and there are {model.num_latents} latents: they can "
            f"be fitted exactly and only noise_floor bounds the likelihood; "
            + (
                "label_coding='reduced' leaves out the column of class labels that the others determine"
                if model.is_classes
                else "leave out an output that the others determine, or use fewer latents"
            )
        )
    elif model.num_latents >= len(labelled) - 1 > 0:
        warn(
            f"there are {model.num_latents} latents and only {len(labelled)} labelled rows: their outputs "
            f"can be fitted exactly"
        )
