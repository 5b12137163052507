"""A film in Chromium: it plays, steps by keys, is read aloud when it rests, and asks no host."""

import pytest

import zoo
from inference.plots import film as film_of
from tests.tools.pages.browser import CHROMIUM, Browser
from tests.tools.pages.pictures import AUDIT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
    pytest.mark.filterwarnings("ignore:mixture by .*"),
]
NOT_OF_FILMS = {"landmarks: not one nav"}  # there is one section
LAST, WORDS = "last", "words.textContent"


@pytest.fixture(scope="module")
def browser():
    with Browser() as running:
        yield running


@pytest.fixture(scope="module")
def film(two_clusters):
    call = {"method": "gibbs", "num_chains": 2, "num_warmup": 30, "num_samples": 40}
    return film_of(zoo.Mixture.from_data(two_clusters, num_components=3), two_clusters, **call)


@pytest.fixture(scope="module")
def page(film, tmp_path_factory):
    return film.save(tmp_path_factory.mktemp("film") / "film.html")


def after(milliseconds):
    return f"new Promise((done) => setTimeout(done, {milliseconds}))"


@pytest.mark.parametrize("state", ["", "to(3)", "chainChoice.value='all';colourChoice.value='own';lay()"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_film_can_be_read(page, browser, width, dark, state):
    view = browser.open(page, width, dark=dark)
    view.run(after(100))
    view.run(state)
    found = view.run(AUDIT)
    assert set(found["faults"]) <= NOT_OF_FILMS and found["least"] >= 4.5 and found["labels"] > 25
    assert view.console == [] and view.requests == []
    view.close()


def test_the_picture_and_its_controls_are_on_the_first_screen(page, browser):
    for width, height in ((1280, 800), (390, 844)):
        view = browser.open(page, width)
        below = "Math.ceil(document.querySelector('{}').getBoundingClientRect().bottom)"
        assert view.run(below.format(".controls")) < height and view.run(below.format(".words")) < height
        view.close()


def test_it_plays_and_is_silent_meanwhile(page, browser, film):
    view = browser.open(page, 1280)
    assert view.run("frame === last") and view.run(WORDS) == film.sentences[0][-1]
    view.run("play.focus()")
    view.press("Enter", 13)
    view.run(after(1500))
    assert view.run("play.textContent") == "Pause" and view.run("words.ariaLive") == "off"
    assert 2 <= view.run("frame") < len(film.numbers) - 1
    view.press("Enter", 13)
    rested = view.run("frame")
    view.run(after(500))
    assert view.run("frame") == rested and view.run("words.ariaLive") == "polite"
    assert view.run(WORDS) == film.sentences[0][rested]
    view.close()


def test_keys_move_it_frame_by_frame(page, browser, film):
    view = browser.open(page, 1280)
    view.run("slider.focus()")
    view.press("ArrowLeft", 37)
    view.press("ArrowLeft", 37)
    assert view.run(WORDS) == film.sentences[0][-3]
    assert view.run("slider.ariaValueText || slider.getAttribute('aria-valuetext')") == "sweep 68"
    view.press("Home", 36)
    assert view.run(WORDS) == film.sentences[0][0]
    view.run("chainChoice.value = '1'; chainChoice.dispatchEvent(new Event('change'))")
    assert view.run(WORDS) == film.sentences[1][0]
    assert view.run("screens[0].svg.getAttribute('aria-label')") == film.sentences[1][0]
    view.close()


def test_rows_are_drawn_by_the_numbers_of_the_frame(page, browser, film):
    view = browser.open(page, 1280)
    for place in (0, 20, 69):
        view.run(f"to({place})")
        kinds = view.run("screens[0].rows.map((row) => row.kind)")
        assert kinds == film.labels[0, place].tolist()
    view.run("colourChoice.value = 'own'; lay()")
    drawn = film.tree["posterior"]["assignments"].values[0, -1].tolist()
    assert view.run("screens[0].rows.map((row) => row.kind)") == drawn
    view.close()


def test_it_moves_slowly_for_those_who_ask_for_less_motion(page, browser):
    view = browser.open(page, 1280)
    features = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    browser.call("Emulation.setEmulatedMedia", view._session, features=features)
    view.run("play.click()")
    view.run(after(1200))
    assert view.run("frame") == 1
    view.close()


def test_it_plays_within_another_page(film, browser, tmp_path):
    """As a notebook shows it; the frame may run its script and has no other right."""
    place = tmp_path / "notebook.html"
    place.write_text(f"<!DOCTYPE html><html lang=en><title>t</title><body>{film._repr_html_()}</body></html>")
    view = browser.open(place, 1280)
    view.run(after(500))
    targets = browser.call("Target.getTargets")["targetInfos"]
    (inner,) = (own for own in targets if own["type"] == "iframe")
    session = browser.call("Target.attachToTarget", targetId=inner["targetId"], flatten=True)["sessionId"]
    found = browser.call(
        "Runtime.evaluate",
        session,
        expression="[document.querySelectorAll('.row').length, document.querySelector('.words').textContent, "
        "document.querySelector('.film').getBoundingClientRect().bottom]",
        returnByValue=True,
    )["result"]["value"]
    assert found[0] >= 60 and found[1] == film.sentences[0][-1] and found[2] < 660
    assert view.console == [] and view.requests == []
    view.close()


def test_without_scripts_the_last_frame_is_told(page, browser, film):
    view = browser.open(page, 390, scripts=False)
    text = view.run("document.querySelector('.film').innerText")
    assert film.sentences[0][-1] in text and "switched off" in text
    view.close()
