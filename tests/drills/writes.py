"""Drill: an injected failure after each write, flush and rename of the parent (``make drill-writes``).

Each place fails twice: once by dying on the spot, once with "no space left on device". Every time the tables are valid
and the run can be taken up to the same end.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from stage import Stage

#: Runs in the parent before anything else: counts what reaches the disk and fails the chosen one. Sockets, pipes and the
#: terminal are not the disk.
_PRELUDE = """
import errno, os, stat
_place, _mode, _count, _parent = {place}, {mode!r}, 0, os.getpid()
def _on_disk(descriptor):
    return isinstance(descriptor, int) and stat.S_ISREG(os.fstat(descriptor).st_mode)
def _failing(name, real, disk):
    def call(*arguments, **named):
        global _count
        if os.getpid() != _parent or not disk(arguments):
            return real(*arguments, **named)
        _count += 1
        if _count == _place:
            if _mode == "die":
                real(*arguments, **named)
                os._exit(99)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(arguments[0]))
        return real(*arguments, **named)
    return call
for _name in ("write", "fsync", "fdatasync", "ftruncate"):
    setattr(os, _name, _failing(_name, getattr(os, _name), lambda a: _on_disk(a[0])))
for _name in ("rename", "replace", "unlink"):
    setattr(os, _name, _failing(_name, getattr(os, _name), lambda a: True))
import atexit
atexit.register(lambda: open({report!r}, "w").write(str(_count)))
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the drill; returns 0 where everything held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--every", type=int, default=1, help="take only every N-th place")
    parser.add_argument("--first", type=int, default=1, help="start at this place")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="perfcollect-drill-writes-") as directory:
        print(drill(Path(directory), options.rows, options.every, options.first))
    return 0


def drill(directory: Path, rows: int, every: int, first: int = 1) -> str:
    """Fail at the places and return what happened in a line."""
    report = directory / "count.txt"
    places = _places(directory, rows, report)
    tried = 0
    for place in range(first, places + 1, every):
        for mode in ("die", "full"):
            tried += _try(directory / f"{mode}_{place}", rows, place, mode, report)
    return (
        f"drill-writes: {tried} failures that ended the run, at {places} places; tables valid every time, "
        "every run taken up to its end"
    )


def _prelude(place: int, mode: str, report: Path) -> str:
    return _PRELUDE.format(place=place, mode=mode, report=str(report))


def _places(directory: Path, rows: int, report: Path) -> int:
    stage = Stage(directory / "whole")
    stage.build(["ok"] * rows)
    code, printed = stage.run(prelude=_prelude(0, "die", report))
    if code:
        raise AssertionError(f"the run without a failure ended with {code}: {printed}")
    return int(report.read_text(encoding="ascii"))


def _try(directory: Path, rows: int, place: int, mode: str, report: Path) -> bool:
    """Fail once; returns whether that ended the run (what only tidies up may fail, and flushes vary in number)."""
    stage = Stage(directory)
    stage.build(["ok"] * rows)
    before = stage.check_table(rows)
    code, printed = stage.run(prelude=_prelude(place, mode, report))
    if mode == "die" and code not in (0, 99):
        raise AssertionError(f"place {place}: expected to die, ended with {code}: {printed}")
    if mode == "full" and "Traceback" in printed:
        raise AssertionError(f"place {place}: a traceback instead of a sentence: {printed}")
    _whole(stage, rows, before)
    resume = ["--resume"] if any(line["kind"] == "run" for line in stage.lines()) else []
    again, printed = stage.run(*resume)
    if again:
        raise AssertionError(f"place {place} ({mode}): going on ended with {again}: {printed}")
    after = stage.check_table(rows)
    if not all(cells["Average Duration(us)"] == "1.000000" for cells in after.values()):
        raise AssertionError(f"place {place} ({mode}): not every row was written")
    if resume and any(count != 1 for count in stage.measured_counts().values()):
        raise AssertionError(f"place {place} ({mode}): measured twice: {stage.measured_counts()}")
    if list(stage.database.glob("*.partial")):
        raise AssertionError(f"place {place} ({mode}): a temporary file is left")
    shutil.rmtree(stage.directory)
    return code != 0


def _whole(stage: Stage, rows: int, before: dict[str, dict[str, str]]) -> None:
    """The table is the old one or a new one, every untouched cell as it was."""
    for number, cells in stage.check_table(rows).items():
        if cells["Note"] != before[number]["Note"] or cells["Average Duration(us)"] not in ("", "1.000000"):
            raise AssertionError(f"row {number} is damaged: {cells}")


if __name__ == "__main__":
    sys.exit(main())
