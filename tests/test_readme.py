"""The Python of the README runs as it stands there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.filterwarnings("default")  # ten draws of NUTS have no reason to converge
def test_python_blocks_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": "readme"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert (tmp_path / "faithful.nc").stat().st_size > 0
    assert len(blocks) == 3 and names["prior"].shape == (3, 50, 2)
    assert (
        names["from_file"].attrs["num_observations"] == names["from_chunks"].attrs["num_observations"] == 5000
    )
    assert "num_occupied" in capsys.readouterr().out
