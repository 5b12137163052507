"""Every record says how it came about; those that are older than the code they describe are listed."""

import json
import os
from types import SimpleNamespace

import pytest
from conftest import OLDER_RECORDS

from tests.tools.recording import DESCRIBED, REFERENCE, code_of, mean_and_error, older_than_their_code

pytestmark = pytest.mark.repo
RECORDS = sorted(REFERENCE.rglob("*.json"))
WITHOUT_MACHINE = 21  # written before records named it: each goes when it is written anew


def name_of(path):
    return path.relative_to(REFERENCE).with_suffix("").as_posix()


def test_records_name_their_command_versions_and_machine():
    lack = {key: set() for key in ("command", "versions", "machine")}
    for path in RECORDS:
        held = json.loads(path.read_text(encoding="utf-8"))
        for key, names in lack.items():
            parts = [part for part in held.values() if isinstance(part, dict)]
            if key not in held and not (parts and all(key in part for part in parts)):
                names.add(name_of(path))
    assert not lack["command"] and not lack["versions"], lack
    assert len(lack["machine"]) <= WITHOUT_MACHINE, lack["machine"]


def test_every_record_says_what_code_it_describes():
    for path in RECORDS:
        assert any(name_of(path).startswith(beginning) for beginning in DESCRIBED), path
    for paths in DESCRIBED.values():
        assert all((REFERENCE.parents[1] / path).exists() for path in paths), paths


def test_records_that_are_older_than_their_code_are_told(tmp_path, monkeypatch, record_property):
    """Planted: a record of other code is older, one of this code is not, one that does not say is undated."""
    import tests.tools.recording as recording

    record_property(OLDER_RECORDS, older_than_their_code())
    monkeypatch.setattr(recording, "REFERENCE", tmp_path / "tests" / "reference")
    recording.REFERENCE.mkdir(parents=True)
    (tmp_path / "inference" / "numerics").mkdir(parents=True)
    (tmp_path / "zoo").mkdir()
    code = tmp_path / "zoo" / "gamma_functions.py"
    code.write_text("x = 1  # a comment\ndef f():\n    'A docstring.'\n")
    recording.write_record("benchmark_numerics", "a command", figure=1)
    (recording.REFERENCE / "mixture_moves.json").write_text("{}")
    assert older_than_their_code() == ([], ["mixture_moves"])
    code.write_text("'A docstring.'\nx = 1  # another comment\ndef f():\n    'Another.'\n")
    assert older_than_their_code() == ([], ["mixture_moves"])
    code.write_text("x = 2\n")
    assert older_than_their_code() == (["benchmark_numerics"], ["mixture_moves"])
    assert set(code_of("benchmark_numerics")) == {"inference/numerics", "zoo/gamma_functions.py"}
    recording.add_part_to_record("benchmark_numerics", "one", "a command", figure=1)
    code.write_text("x = 3\n")
    for part in ("one", "two"):
        recording.add_part_to_record("benchmark_numerics_in_parts", part, "a command", figure=1)
    assert older_than_their_code() == (["benchmark_numerics"], ["mixture_moves"])
    code.write_text("x = 4\n")
    recording.add_part_to_record("benchmark_numerics_in_parts", "two", "a command", figure=1)
    assert older_than_their_code()[0] == ["benchmark_numerics", "benchmark_numerics_in_parts"]
    recording.add_part_to_record("benchmark_numerics_in_parts", "one", "a command", figure=1)
    assert older_than_their_code()[0] == ["benchmark_numerics"], "each part of it is of this code"


def test_a_figure_put_into_a_record_makes_no_other_of_this_code(tmp_path, monkeypatch):
    """A part that was kept once took the digest of the code that another part was made with."""
    import tests.tools.recording as recording

    monkeypatch.setattr(recording, "REFERENCE", tmp_path / "tests" / "reference")
    recording.REFERENCE.mkdir(parents=True)
    (tmp_path / "inference" / "numerics").mkdir(parents=True)
    (tmp_path / "zoo").mkdir()
    code, name = tmp_path / "zoo" / "gamma_functions.py", "benchmark_numerics"
    for number, part in enumerate(("one", "two")):
        code.write_text(f"x = {number}\n")
        recording.add_to_record(name, "a command", **{part: {"figure": 1}})
    assert older_than_their_code() == ([name], [])
    recording.add_to_record(name, "a command", one={"figure": 1})
    assert older_than_their_code() == ([], [])
    (recording.REFERENCE / f"{name}.json").write_text('{"command": "a command", "one": {"figure": 1}}')
    recording.add_to_record(name, "a command", two={"figure": 1})
    assert older_than_their_code() == ([], [name]), "the part that was kept does not say what code it is of"


def test_one_split_has_a_mean_and_no_standard_error():
    """A table of one split once recorded NaN, which is no number of JSON."""
    assert mean_and_error([0.25]) == {"mean": 0.25}
    assert mean_and_error([1.0, 3.0]) == {"mean": 2.0, "standard_error": 1.0}


def test_a_fit_that_was_interrupted_is_not_recorded(monkeypatch):
    """Told to stop, a benchmark went on with the fit cut short."""
    from tests.benchmarks import paper_settings

    for reason in ("converged", "interrupted"):
        cut_short = SimpleNamespace(attrs={"stop_reason": reason})
        monkeypatch.setattr(paper_settings, "fit", lambda *_, own=cut_short, **__: own)
        if reason == "converged":
            assert paper_settings.quiet(None) is cut_short
        else:
            with pytest.raises(KeyboardInterrupt):
                paper_settings.quiet(None)


def test_the_numbers_of_a_fit_that_was_interrupted_are_not_recorded(monkeypatch, tmp_path):
    """Told to stop, ``same_numbers --record`` recorded the fit cut short and went on with the next."""
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # which the tool sets as it is imported
    from tests.tools import same_numbers

    cut_short = SimpleNamespace(attrs={"stop_reason": "interrupted"})
    monkeypatch.setattr(same_numbers, "RECORD", tmp_path / "same_numbers.json")
    monkeypatch.setattr(same_numbers, "fitted", lambda name: cut_short)
    with pytest.raises(KeyboardInterrupt):
        same_numbers.main(["--record", "ppca em"])
    assert not (tmp_path / "same_numbers.json").exists()
