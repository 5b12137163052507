"""The list of mistakes: what ``mutants.toml`` says, checked."""

import ast
import builtins
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIST = Path(__file__).with_name("mutants.toml")


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes:
        room: the part of the project that the file belongs to.
        path: of the file, from the root.
        old: a text that the file has once.
        new: what stands in its place.
        features: what it concerns; two where it lies between two features.
        tests: that should notice, as pytest is given them, likely ones first.
        room_tests: those of the whole room.
        note: why no test can notice, if that is known.
    """

    room: str
    path: str
    old: str
    new: str
    features: tuple[str, ...]
    tests: tuple[str, ...]
    room_tests: tuple[str, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """The file and eight digits of the change."""
        return f"{self.path}:{digest(self.old + chr(0) + self.new)}"

    def fault(self) -> str | None:
        """What is wrong with the entry, whose old text must stand in its file once; or None."""
        file = ROOT / self.path
        if not file.is_file():
            return f"{self.name}: there is no such file"
        text = file.read_text(encoding="utf-8")
        if (number := text.count(self.old)) != 1:
            return f"{self.name}: the old text stands there {number} times, not once: {self.old!r}"
        named = (test.partition("::")[0] for test in (*self.tests, *self.room_tests))
        if missing := [path for path in named if not (ROOT / path).exists()]:
            return f"{self.name}: there are no tests {missing}"
        return None

    def fault_of_syntax(self) -> str | None:
        """Whether the file with the mistake is no Python, reads unknown names or means what it meant."""
        if not self.path.endswith(".py"):  # a template
            return None
        text = (ROOT / self.path).read_text(encoding="utf-8")
        try:
            changed = ast.parse(self.applied(text))
        except SyntaxError as error:
            return f"{self.name}: the new text is no Python: {error}"
        original = ast.parse(text)
        if ast.dump(changed) == ast.dump(original):
            return f"{self.name}: the new text means what the old one does"
        if unknown := _names(changed) - _names(original) - set(dir(builtins)):
            return f"{self.name}: the new text reads {sorted(unknown)}, which the file does not know"
        return None

    def applied(self, text: str) -> str:
        """The file's text with the mistake."""
        return text.replace(self.old, self.new)

    def one_line(self) -> str:
        """The change, for people."""
        return f"{self.path}: {' '.join(self.old.split())}  ->  {' '.join(self.new.split())}"


def _names(tree: ast.AST) -> set[str]:
    """Every plain name that a file reads or sets, arguments and imports included."""
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    aliases = (alias for node in ast.walk(tree) for alias in getattr(node, "names", []))
    return found | {(alias.asname or alias.name) for alias in aliases if isinstance(alias, ast.alias)}


def digest(text: str) -> str:
    """Eight hexadecimal digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def mutants() -> list[Mutant]:
    """All of them, in the order of the list."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    tests = {room["name"]: tuple(room["tests"]) for room in listed["room"]}
    return [
        Mutant(
            room=file["room"],
            path=file["path"],
            old=entry["old"],
            new=entry["new"],
            features=tuple(entry["features"]),
            tests=tuple(entry.get("tests", file["tests"])),
            room_tests=tests[file["room"]],
            note=entry.get("note", ""),
        )
        for file in listed["file"]
        for entry in file["mutant"]
    ]
