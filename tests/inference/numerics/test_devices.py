"""The same step over several devices and several processes: the same bound.

How many devices there are must be said before JAX computes anything, hence the subprocesses.
"""

import json
import os
import socket
import sys

import numpy as np
import pytest

import zoo
from inference import fit
from tests.support.processes import LIMIT, started

DATA = """
import json, sys
import numpy as np
rng = np.random.default_rng(0)
centres = rng.normal(size=(5, 2)) * 4
x = centres[rng.integers(5, size=5001)] + rng.normal(size=(5001, 2))
weight = rng.uniform(size=5001)
model = {"num_components": 8, "weight_prior": "stick_breaking"}
call = {"max_iterations": 20, "tolerance": 0, "num_samples": 3, "num_restarts": 1}
"""

TWO_DEVICES = """
import warnings
import numpyro
numpyro.set_host_device_count(2)
import scipy.sparse
import zoo
from inference import fit
from zoo.conjugate import MultinomialDirichlet
traces = {}
chunks = np.split(x, (700, 2900))
ways = {
    "all": {"sample_weight": weight},
    "batches": {"batch_size": 1001},
    "chunks": {"batch_size": 1001, "data": chunks},
    "restarts": {"num_restarts": 2},
    "float32": {"dtype": "float32"},
    "missing": {"data": np.where(weight[:, None] < [0.1, 0.0], np.nan, x)},
    "hyperparameters": {"learn": ("concentration",), "max_iterations": 210},
}
for name, own in ways.items():
    data = own.pop("data", x)
    for num_devices in (1, 2):
        tree = fit(zoo.Mixture(**model), data, num_devices=num_devices, **call | own)
        traces[f"{name} {num_devices}"] = tree["trace"]["objective"].to_numpy().tolist()
together = {"responsibilities": np.eye(8)[np.zeros(len(x), int)]}  # the clusters are to be found by births
moved = fit(zoo.Mixture(**model), x, num_devices=2, moves=("merge", "birth"), num_samples=3, init=together)
traces["clusters found"] = int(moved["variational"]["num_occupied"])
texts = np.random.default_rng(1).poisson(0.4, (41, 12)) + np.eye(41, 12)
of_texts = {"lda": zoo.LDA(num_topics=3), "pcp": zoo.PCP(num_topics=2, num_clusters=4)}
for name, model_of_texts in of_texts.items():
    for num_devices in (1, 2):
        tree = fit(model_of_texts, texts, num_devices=num_devices, **call)
        traces[f"{name} {num_devices}"] = tree["trace"]["objective"].to_numpy().tolist()
for name, own in {
    "batches": (zoo.LDA(num_topics=3), {"batch_size": 9}),
    "mean field": (zoo.PCP(num_topics=2, num_clusters=4), {"family": "mean_field"}),
}.items():
    try:
        warnings.simplefilter("ignore")
        fit(own[0], texts, num_devices=2, **own[1], **call)
    except ValueError as error:
        traces[f"error {name}"] = str(error)
counts = scipy.sparse.eye(9)
topics = zoo.Mixture(num_components=2, components=MultinomialDirichlet.from_data(counts))
for name, refused in {"3": (zoo.Mixture(**model), x), "2": (topics, counts)}.items():
    try:
        fit(*refused, num_devices=int(name), **call)
    except ValueError as error:
        traces[f"error {name}"] = str(error)
print(json.dumps(traces))
"""

ONE_OF_TWO_PROCESSES = """
import jax
number, port = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"localhost:{port}", num_processes=2, process_id=number)
import zoo
from inference import fit
mine = slice(0, 1800) if number == 0 else slice(1800, None)
given_x = x
x, weight = x[mine], weight[mine]
refused = {}
for name, own in {
    "em": {"method": "em"},
    "init": {"init": {"responsibilities": np.ones((len(x), 8)) / 8}},
}.items():
    try:
        fit(zoo.Mixture(**model), x, **own)
    except ValueError as error:
        refused[name] = str(error)
moved = fit(zoo.Mixture(**model), x, moves=("merge", "birth"), num_samples=3, max_iterations=100)
tree = fit(zoo.Mixture(**model), x, sample_weight=weight, **call)
from inference.driver import ascent
asked = iter(range(1000))
class Cut(ascent.Interrupt):
    requested = property(lambda self: number == 1 and next(asked) > 1)  # one process alone is told to stop
path, other = sys.argv[3], {**call, "max_iterations": call["max_iterations"] + 1}
def attempt(**own):
    try:
        return fit(zoo.Mixture(**model), x, sample_weight=weight, checkpoint=path, **own)
    except ValueError as error:
        return str(error)
ascent.Interrupt, interrupt = Cut, ascent.Interrupt
part = attempt(**call)
ascent.Interrupt = interrupt
refused_checkpoint = attempt(**other)
if number == 1:
    x = x + 1e-9
refused_rows = attempt(**call)
x = given_x[mine]
resumed = attempt(**call)
checkpoints = {
    "part": part.attrs["stop_reason"], "refused": [refused_checkpoint, refused_rows],
    "resumed": resumed["trace"]["objective"].to_numpy().tolist(),
}
moved = moved["trace"]["objective"].to_numpy().tolist()
found = {"refused": refused, "moved": moved, "objective": tree["trace"]["objective"].to_numpy().tolist()}
found |= {"checkpoints": checkpoints}
found |= {"rows": tree["posterior"].sizes["observation"]}
print(json.dumps(found | {"num_occupied": int(tree["variational"]["num_occupied"])}))
"""


def run(program, *arguments):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return started([sys.executable, "-c", DATA + program, *arguments], env=environment)


def answer(process):
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
def test_two_devices_give_the_bound_of_one():
    with run(TWO_DEVICES) as process:
        traces = answer(process)
    alike = ("all", "batches", "chunks", "restarts", "missing", "hyperparameters", "lda", "pcp")
    for name in alike:
        np.testing.assert_allclose(traces[f"{name} 2"], traces[f"{name} 1"], rtol=1e-10)
    np.testing.assert_allclose(traces["float32 2"], traces["float32 1"], rtol=1e-5)
    assert traces["clusters found"] == 4  # as on one device: two of the five centres lie side by side
    assert "num_devices must be between 1 and 2, the devices that JAX has here; got 3" in traces["error 3"]
    assert traces["error batches"] == "documents in batches lie on one device; got num_devices=2"
    assert "the structured one on several; got num_devices=2" in traces["error mean field"]
    assert traces["error 2"] == "sparse counts lie on one device; got num_devices=2"


@pytest.mark.slow
def test_two_processes_give_the_bound_of_one(tmp_path):
    """Each holds rows of its own, of different number; the prior and the start are those of all rows."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    path = str(tmp_path / "run")  # which only the first writes and reads
    with (
        run(ONE_OF_TWO_PROCESSES, "0", port, path) as one,
        run(ONE_OF_TWO_PROCESSES, "1", port, str(tmp_path / "of the other" / "run")) as other,
    ):
        first, second = map(answer, (one, other))
    given = {}
    exec(DATA, given)
    tree = fit(zoo.Mixture(**given["model"]), given["x"], sample_weight=given["weight"], **given["call"])
    np.testing.assert_allclose(first["objective"], tree["trace"]["objective"], rtol=1e-10)
    assert first["objective"] == second["objective"]
    assert first["moved"] == second["moved"]
    refused = first["refused"]
    assert refused["em"] == "method 'em' of mixture runs in one process; this one is one of 2"
    assert refused["init"].startswith("init with variables per row goes with one process")
    for own in (first, second):
        checkpoints = own["checkpoints"]
        assert checkpoints["part"] == "interrupted"
        assert checkpoints["resumed"] == first["objective"]
        assert "what differs: max_iterations: " in checkpoints["refused"][0]
        assert "what differs: data.x: " in checkpoints["refused"][1]
    assert os.listdir(tmp_path) == ["run"]
    assert (first["rows"], second["rows"]) == (1800, 3201)
    assert first["num_occupied"] == second["num_occupied"]


@pytest.mark.parametrize(
    ("num_devices", "error", "message"),
    [
        (0, ValueError, "num_devices must be between 1 and 1, the devices that JAX has here; got 0"),
        (64, ValueError, r"got 64\. On a CPU call numpyro.set_host_device_count\(64\)"),
        (1.5, TypeError, "num_devices must be a whole number; got 1.5"),
    ],
)
def test_a_device_count_that_does_not_fit_is_an_error(num_devices, error, message):
    with pytest.raises(error, match=message):
        fit(zoo.Mixture(num_components=2), np.eye(9)[:, :2], num_devices=num_devices)
