"""What a type checker makes of scripts as users write them: types inferred, and mistakes found."""

import re
import sys

import pytest

from tests.support.processes import LIMIT, started

pytestmark = pytest.mark.repo

SCRIPTS = {
    "fit_a_table": """
        import numpy as np
        import inference
        import zoo

        x = np.zeros((10, 2))
        model = zoo.Mixture.from_data(x, num_components=2)
        tree = inference.fit(model, x, seed=0)
        reveal_type(model)  # Mixture
        reveal_type(tree)  # DataTree
        inference.save("faithful.nc", tree)  # mistake: the two arguments exchanged
        zoo.Mixtur(num_components=2)  # mistake: a name that is misspelt
    """,
    "ask_a_fit": """
        import inference
        from inference.diagnostics import summary_text

        tree = inference.load("faithful.nc")
        reveal_type(summary_text(tree))  # str
        reveal_type(inference.predict(tree))  # xarray
        print(summary_text("faithful.nc"))  # mistake: a path in place of the fit
    """,
    "own_model": """
        from dataclasses import dataclass
        import zoo

        @dataclass(frozen=True, eq=False)
        class Own(zoo.Model):
            pass

        reveal_type(zoo.register(Own, methods={}))  # type[
        reveal_type(zoo.canonical_name("gmm"))  # str
        zoo.register(Own(), methods={})  # mistake: an object in place of its class
    """,
    "settings_as_objects": """
        import numpy as np
        import inference
        import zoo
        from inference.methods import mixture

        x = np.zeros((10, 2))
        nuts = inference.NUTS(num_chains=2, target_accept_prob=0.9)
        reveal_type(nuts.target_accept_prob)  # float
        reveal_type(inference.fit(zoo.PPCA(), x, method=nuts))  # DataTree
        inference.NUTS(target_acept_prob=0.9)  # mistake: an option that is misspelt
        mixture.VB(moves="merge")  # mistake: a string in place of a tuple
        mixture.Gibbs(max_iterations=10)  # mistake: a setting of ascents
        nuts.num_chains = 4  # mistake: settings are frozen
    """,
    "settings_as_keywords": """
        import numpy as np
        import inference
        import zoo

        x, model = np.zeros((10, 2)), zoo.Mixture(num_components=2)
        inference.fit(model, x, method="vb", moves=("merge",), tolerance=1e-3, id=None)
        inference.fit(model, x, tolernace=1e-3)  # mistake: a parameter that is misspelt
        inference.fit(model, x, method="nuts", target_acept_prob=0.9)  # mistake: an option that is misspelt
        inference.fit(model, x, method="gibbs", until="convergence")  # mistake: a word that is not known
        inference.fit(model, x, num_chains="4")  # mistake: a string in place of a number
    """,
    "settings_passed_on": """
        import numpy as np
        import inference
        import zoo
        from inference.settings import Climb, Settings

        def fitted(x: np.ndarray, method: Settings) -> float:
            return float(inference.fit(zoo.PPCA(num_latents=1), x, method=method).attrs["sampling_time"])

        def slower(settings: Climb) -> int:
            return 10 * settings.max_iterations

        reveal_type(inference.MAP().memory_size)  # int
        fitted(np.zeros((10, 2)), inference.SVI(guide="multivariate_normal", step_size=0.1))
        fitted(np.zeros((10, 2)), inference.SVI)  # mistake: a class in place of settings
        slower(inference.HMC())  # mistake: a sampler in place of an ascent
        inference.SVI(guide="normall")  # mistake: a word that is not known
    """,
}


@pytest.mark.slow
def test_types_of_scripts_are_inferred_and_their_mistakes_found(tmp_path):
    lines = {}
    for name, text in SCRIPTS.items():
        lines[name] = [line[8:] for line in text.strip("\n").splitlines()]
        (tmp_path / f"{name}.py").write_text("\n".join(lines[name]) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports"]
    command += ["--config-file=", "--cache-dir", str(tmp_path / "cache"), *map("{}.py".format, SCRIPTS)]
    with started(command, cwd=tmp_path) as checked:
        output, _ = checked.communicate(timeout=LIMIT)
    said = re.findall(r"^(\w+)\.py:(\d+): (error|note): (.*)$", output, re.MULTILINE)
    errors = {(name, int(line)) for name, line, kind, _ in said if kind == "error"}
    planted = {
        (name, number)
        for name, own in lines.items()
        for number, line in enumerate(own, start=1)
        if "# mistake" in line
    }
    assert len(planted) == 15 and errors == planted, output
    for name, own in lines.items():
        for number, line in enumerate(own, start=1):
            if line.startswith("reveal_type"):
                found = [words for n, at, kind, words in said if (n, int(at), kind) == (name, number, "note")]
                assert any(line.partition("# ")[2] in words and '"Any"' not in words for words in found), (
                    line, output,
                )  # fmt: skip
