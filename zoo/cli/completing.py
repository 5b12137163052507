"""``zoo completion``: the script by which a shell completes commands, options and names.

The script is made from the parser and the catalogue, and holds all words: completing runs nothing of Python.
It is printed again after an upgrade.
"""

import argparse

from zoo import ALIASES, MODELS
from zoo.cards import read_card
from zoo.cli.arguments import CHAIN_METHODS, DTYPES, SHELLS, parser
from zoo.datasets import catalogue

__all__ = ["completion"]


def completion(options: argparse.Namespace) -> int:
    """Print the script for a shell.

    Args:
        options: of the command line.

    Returns:
        The exit status.
    """
    writers = dict(zip(SHELLS, (_bash, _zsh, _fish), strict=True))
    print(writers[options.shell]())
    return 0


def _commands() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


def _options(command: argparse.ArgumentParser) -> list[str]:
    return [flag for action in command._actions for flag in action.option_strings if flag != "-h"]


def _values() -> dict[str, list[str]]:
    """Words that follow an option."""
    methods = dict.fromkeys(method for name in MODELS for method in read_card(name).methods)
    fields = dict.fromkeys(field for name in MODELS for field in read_card(name).fields)
    return {
        "--method": ["auto", *methods],
        "--methods": list(methods),
        "--models": [*MODELS, *ALIASES],
        "--chain-method": list(CHAIN_METHODS),
        "--dtype": list(DTYPES),
        "--heldout": list(catalogue()),
        "--set": [f"{field}=" for field in fields],
        "--read": ["separator=", "decimal=", "header=no", "header=yes", "encoding="],
        "--what": ["prediction", "scores", "log_density", "classes", "cells", "outputs"],
    }


def _places() -> dict[str, list[list[str]]]:
    """Words of the arguments without option of each command, in order; after them files."""
    models, datasets = [*MODELS, *ALIASES], list(catalogue())
    return {
        "show": [models],
        "fit": [models, datasets],
        "predict": [[], datasets],
        "sweep": [models, datasets],
        "compare": [datasets],
        "completion": [list(SHELLS)],
    }


def _cases(values: dict[str, list[str]], layout: str) -> str:
    return "\n".join(layout.format(name, " ".join(words)) for name, words in values.items())


def _bash() -> str:
    commands = _commands()
    options = _cases({name: _options(command) for name, command in commands.items()}, '    {}) echo "{}";;')
    values = _cases(_values(), '    {}) echo "{}";;')
    places = "\n".join(
        f'    {name}:{place}) echo "{" ".join(words)}";;'
        for name, held in _places().items()
        for place, words in enumerate(held)
    )
    return f"""# Completion of zoo for bash, printed by: zoo completion bash
_zoo_options() {{
  case "$1" in
{options}
  esac
}}
_zoo_values() {{
  case "$1" in
{values}
  esac
}}
_zoo_places() {{
  case "$1:$2" in
{places}
  esac
}}
_zoo() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" command="" place=0 i word
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    if [[ "$word" == -* ]]; then
      [[ "$word" == --no-progress || "$word" == --force || "$word" == --traceback \\
        || "$word" == --deviations ]] || ((i++))
    elif [[ -z "$command" ]]; then command="$word"
    else ((place++)); fi
  done
  if [[ -z "$command" ]]; then
    COMPREPLY=($(compgen -W "{" ".join(commands)} --help --version --traceback" -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$(_zoo_options "$command")" -- "$current"))
  elif [[ "$before" == --* && -n "$(_zoo_values "$before")" ]]; then
    COMPREPLY=($(compgen -W "$(_zoo_values "$before")" -- "$current"))
    [[ "${{COMPREPLY[0]}}" == *= ]] && compopt -o nospace
  elif [[ "$before" == --* ]]; then
    COMPREPLY=($(compgen -f -- "$current"))
  else
    COMPREPLY=($(compgen -W "$(_zoo_places "$command" "$place")" -- "$current") $(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _zoo zoo"""


def _zsh() -> str:
    return f"""#compdef zoo
# Completion of zoo for zsh, printed by: zoo completion zsh
autoload -U +X bashcompinit && bashcompinit
{_bash()}"""


def _fish() -> str:
    commands = _commands()
    first = "complete -c zoo -n __fish_use_subcommand"
    lines = [
        "# Completion of zoo for fish, printed by: zoo completion fish",
        "complete -c zoo -n __fish_use_subcommand -f",
    ]
    lines += [
        f"{first} -f -a {name} -d {_quoted(command.description or '')}" for name, command in commands.items()
    ]
    lines += [
        f"complete -c zoo -n __fish_use_subcommand -l {name}" for name in ("help", "version", "traceback")
    ]
    values = _values()
    for name, command in commands.items():
        of_command = f"-n '__fish_seen_subcommand_from {name}'"
        for action in command._actions:
            for flag in action.option_strings:
                if not flag.startswith("--"):
                    continue
                takes = "" if action.nargs == 0 else " -r"
                words = values.get(flag)
                given = f" -f -a {_quoted(' '.join(words))}" if words else ""
                meaning = _quoted((action.help or "").replace("%%", "%"))
                lines.append(f"complete -c zoo {of_command} -l {flag[2:]}{takes}{given} -d {meaning}")
        for words in _places().get(name, []):
            if words:
                lines.append(f"complete -c zoo {of_command} -a {_quoted(' '.join(words))}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
