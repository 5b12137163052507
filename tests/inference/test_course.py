"""What the notebooks import: sizes, warnings that the text speaks of, pages below a cell, no bars."""

import warnings

import matplotlib.pyplot as plt
import pytest

from inference.fitting import in_memory


@pytest.fixture
def course(monkeypatch):
    """The module, without what its import would leave in this process."""
    monkeypatch.setenv("TQDM_DISABLE", "1")
    with plt.rc_context():
        from inference import course

        yield course


def test_a_size_is_that_of_the_environment(course, monkeypatch):
    assert course.SIZE == "full" and course.at_size(full=1, small=2) == 1
    monkeypatch.setattr(course, "SIZE", "small")
    assert course.at_size(full=1, small=2) == 2


def test_quiet_hides_what_it_is_told_and_nothing_else(course):
    @course.quiet("guard holds")
    def warn(text):
        warnings.warn(text, stacklevel=1)

    warn("em: a guard holds the covariance")
    with pytest.warns(UserWarning, match="has not converged"):
        warn("mixture has not converged")
    with course.quiet():
        warnings.warn("mixture has not converged", stacklevel=1)


def test_a_page_below_a_cell_needs_no_file_and_keeps_its_quotes(course, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("<p title=\"a 'b'\">1 &lt; 2</p>", encoding="utf-8")
    shown = course.show_page(path, 'The "report"')._repr_html_()
    assert str(tmp_path) not in shown and 'title="The &quot;report&quot;"' in shown
    assert 'srcdoc="&lt;p title=&quot;a &#x27;b&#x27;&quot;&gt;1 &amp;lt; 2&lt;/p&gt;"' in shown


def test_a_set_is_held_where_its_file_is(course, tmp_path, monkeypatch):
    monkeypatch.delenv("ZOO_DATA", raising=False)
    assert not course.is_held("spect")
    monkeypatch.setenv("ZOO_DATA", str(tmp_path))
    assert not course.is_held("spect")
    file = tmp_path / course.catalogue()["spect"]["file"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    assert course.is_held("spect")


def test_the_environment_decides_about_bars_that_are_shown(monkeypatch):
    said = {}
    monkeypatch.setattr(in_memory, "tqdm", lambda **given: said.update(given))
    in_memory.progress_line(True)(3, 0)
    assert "disable" not in said  # tqdm takes TQDM_DISABLE where nothing is given
    in_memory.progress_line(False)(3, 0)
    assert said["disable"] is True
