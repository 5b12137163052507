"""``zoo film``: fit a model and write the film of the fit."""

from types import SimpleNamespace

from inference.cli.options import FIT_OPTIONS
from inference.cli.printing import collected_warnings, print_line, print_notes
from inference.cli.selection import data_of, in_words, settle_parts
from inference.cli.settings import resolve
from inference.plots.films import check_films, film
from inference.program_cache import compile_cache
from zoo import model_class


def write_film(options: SimpleNamespace) -> int:
    """Fit a model, film it, and write the page."""
    compile_cache()
    card, settings = options.card, options.settings
    given = {name: getattr(options, name, None) for name in (*FIT_OPTIONS, "families", "levels", "id")}
    chosen = model_class(card.name)
    check_films(chosen)
    name, data = data_of(options)
    settle_parts(chosen, settings, data)
    with collected_warnings() as notes:
        made = film(
            chosen(**resolve(settings)),
            *data,
            features=options.features,
            method=options.method,
            progress=options.progress,
            **{key: value for key, value in given.items() if value is not None},
            **options.method_options,
        )
        made.tree.attrs["data_name"] = name
        place = made.save(options.out.settled())
    print(f"data       {name}: {in_words(data)}")
    print_notes(data, made.tree.fit.columns, notes)
    print_line("verdict", str(made.tree.attrs["verdict"]))
    print_line("last frame", made.sentences[0][-1])
    print(f"saved to {place} ({len(made.numbers)} frames, {place.stat().st_size / 1e6:.1f} MB)")
    return 0
