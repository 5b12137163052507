"""Plant the mistakes of ``mutants.toml``, one at a time, and tell which the default tests notice.

``python -m tests.tools.mutants --record`` takes hours, so it can be cut and gone on with (``--resume``) and
run in parts (``--room``, ``--file``, ``--sample``, ``--own``). Each mistake is planted in a copy of the
project; its own tests run first, then those of its room, at most a minute of the processor together.
"""

import argparse
import json
import queue
import random
import sys
import threading
from collections import Counter
from pathlib import Path

from tests.tools.mutants.listing import ROOT, digest, mutants
from tests.tools.mutants.runner import KILLED, Copy
from tests.tools.recording import REFERENCE, circumstances, code_of

RECORD = REFERENCE / "mutants.json"
MOST_LIKELY = 3


def main() -> int:
    """Run as the command line says; 1 if the list has a mistake of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.mutants", description=__doc__)
    parser.add_argument("--room", action="append", help="only this room; may be given several times")
    parser.add_argument("--file", action="append", help="only files whose path contains this text")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them, drawn with --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--own", action="store_true", help="only the tests that are listed for the mistake")
    parser.add_argument("--slow", action="store_true", help="also slow tests, where no default test fails")
    parser.add_argument("--resume", action="store_true", help="leave out what the record has for this code")
    parser.add_argument(
        "--survivors", action="store_true", help="only those that the record says are not killed"
    )
    parser.add_argument("--new", action="store_true", help="only those that the record does not have")
    parser.add_argument("--record", action="store_true", help=f"add to {RECORD.relative_to(ROOT)}")
    parser.add_argument(
        "--merge", metavar="RECORD", help="add what another record tells of this code, and stop"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="copies to work in")
    parser.add_argument("--check", action="store_true", help="only check the list")
    options = parser.parse_args()

    every = mutants()
    wrong = [fault for mutant in every if (fault := mutant.fault())]
    wrong += [fault for m in every if options.check and not wrong and (fault := m.fault_of_syntax())]
    if wrong:
        print(*wrong, sep="\n")
        return 1
    between = sum(len(mutant.features) > 1 for mutant in every)
    print(f"{len(every)} mistakes, {between} between two features")
    if options.check:
        return 0
    known = json.loads(RECORD.read_text(encoding="utf-8"))["mutants"] if RECORD.is_file() else {}
    if options.merge is not None:
        other = json.loads(Path(options.merge).read_text(encoding="utf-8"))["mutants"]
        _write(every, _merged(every, known, other))
        return 0
    chosen = [m for m in every if options.room is None or m.room in options.room]
    chosen = [m for m in chosen if options.file is None or any(part in m.path for part in options.file)]
    if options.resume:
        chosen = [m for m in chosen if known.get(m.name, {}).get("code") != _code(m)]
    if options.survivors:
        chosen = [m for m in chosen if known.get(m.name, {}).get("status", KILLED) != KILLED]
    if options.new:
        chosen = [m for m in chosen if m.name not in known]
    if options.sample is not None:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    found = _run(chosen, options, known, every)
    _tell(chosen, found)
    return 0


def _code(mutant) -> str:
    return digest((ROOT / mutant.path).read_text(encoding="utf-8"))


def _merged(every, known, other):
    """Entries of both records; where both tell of one mistake, the better: of this code, and killed."""
    merged = {}
    for mutant in every:
        entries = [record[mutant.name] for record in (known, other) if mutant.name in record]
        if entries:
            merged[mutant.name] = max(
                entries, key=lambda own: (own["code"] == _code(mutant), own["status"] == KILLED)
            )
    return merged


def _run(chosen, options, known, every):
    """Entries of the record for the chosen mistakes, written as they come."""
    waiting = queue.SimpleQueue()
    for mutant in chosen:
        waiting.put(mutant)
    found, lock, copies = {}, threading.Lock(), []

    def work():
        with Copy() as copy:
            copies.append(copy)
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                with lock:
                    likely = _likely(mutant, known | found)
                outcome = copy.outcome(mutant, likely, options.own, options.slow)
                if copy.is_stopped:
                    return
                entry = {"status": outcome.status, "by": outcome.by, "stage": outcome.stage}
                entry |= {"seconds": outcome.seconds, "code": _code(mutant)}
                with lock:
                    found[mutant.name] = entry
                    print(
                        f"{outcome.status:12} {outcome.seconds:5.1f} s  {mutant.one_line()}  {outcome.by}",
                        flush=True,
                    )
                    if options.record:
                        _write(every, known | found)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(max(options.workers, 1))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        for copy in copies:
            copy.stop()
        raise
    return found


def _likely(mutant, entries):
    """The test that noticed it before, then those that noticed others of the same file most often.

    Without those that no longer stand where they stood: pytest would collect nothing.
    """
    before = entries.get(mutant.name, {"status": None, "by": ""})
    own = [before["by"]] if before["status"] == KILLED and "::" in before["by"] else []
    of_file = (entry for name, entry in entries.items() if name.partition(":")[0] == mutant.path)
    killers = Counter(entry["by"] for entry in of_file if entry["status"] == KILLED and "::" in entry["by"])
    return list(filter(_stands, own + [test for test, _ in killers.most_common(MOST_LIKELY)]))


def _stands(test) -> bool:
    """Whether a test of a former record is still in its file."""
    path, _, name = test.partition("::")
    file = ROOT / path
    return file.is_file() and f"def {name.partition('[')[0]}(" in file.read_text(encoding="utf-8")


def _write(every, entries):
    """The record: what is known of every mistake that is still in the list, and the rates by room."""
    entries = {mutant.name: entries[mutant.name] for mutant in every if mutant.name in entries}
    of_room = {mutant.name: mutant.room for mutant in every}
    run, killed = Counter(map(of_room.get, entries)), Counter()
    killed.update(of_room[name] for name, entry in entries.items() if entry["status"] == KILLED)
    rooms = {room: {"killed": killed[room], "run": run[room]} for room in dict.fromkeys(of_room.values())}
    total = {"listed": len(every), "run": len(entries), "killed": sum(killed.values())}
    content = (
        circumstances(" ".join(["python -m tests.tools.mutants", *sys.argv[1:]]))
        | {"code": code_of("mutants")}
        | total
        | {"rooms": rooms, "mutants": entries}
    )
    RECORD.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _tell(chosen, found):
    """Rates by room and the survivors."""
    rooms = Counter(mutant.room for mutant in chosen)
    killed = Counter(m.room for m in chosen if found[m.name]["status"] == KILLED)
    for room, number in rooms.items():
        print(f"{room}: {killed[room]} of {number} killed ({killed[room] / number:.0%})")
    for mutant in chosen:
        entry = found[mutant.name]
        if entry["status"] != KILLED:
            why = f" ({mutant.note})" if mutant.note else ""
            print(f"{entry['status']}: {mutant.one_line()}{why}")


if __name__ == "__main__":
    sys.exit(main())
