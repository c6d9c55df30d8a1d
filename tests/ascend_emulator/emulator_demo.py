"""Replay the whole sample database on one and on four emulated NPUs and say what was launched: `make emulator-demo`."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bindings import Comparison, compare, derive, environment, replay, run_command

#: Of the 36 operators; the others need what has no wheel for this torch.
LEAST = 33


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rows", default="", help="data rows of each table (default: all)")
    parser.add_argument("--directory", type=Path, help="where the databases go (default: a temporary one)")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="perfcollect-emulated-") as temporary:
        directory = options.directory or Path(temporary)
        results = [_once(directory / f"on_{count}", count, options.rows) for count in options.devices]
    return max(results)


def _once(database: Path, devices: int, rows: str) -> int:
    env = environment()
    derive(database, env)
    every = sorted(path.stem for path in database.glob("*.csv"))
    print(f"\n== {len(every)} tables on {devices} emulated device{'s' if devices > 1 else ''}", flush=True)
    unable = _refusals(database, every, env)
    able = [name for name in every if name not in unable]
    chosen = ["--rows", rows] if rows else []
    done = replay(
        database, env, "--repeat-count", "3", "--warmup", "2", "--ops", *able, *chosen, devices=devices
    )
    print(done.stdout[-1500:])
    found = compare(database)
    wrong = _report(found, able, unable)
    reports = [path.name for path in (database / "reports").iterdir() if path.is_file()]
    kinds = {name.split("_2")[0] for name in reports}
    if kinds != {"profile_update_report", "duration_gap_hotspots_full", "run_status"}:
        wrong.append(f"the reports are {sorted(reports)}")
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return 1 if wrong else 0


def _refusals(database: Path, operators: list[str], env: dict[str, str]) -> dict[str, str]:
    """Return why operators cannot be launched here, by operator: what perfcollect says before it starts."""
    done = run_command("run", "--dry-run", "--family", "ascend", "--database-path", str(database), env=env)
    said = " ".join(done.stderr.split())
    pattern = rf"({'|'.join(operators)}) needs (.*?), [0-9]+ rows left untouched"
    return {name: f"needs {what}" for name, what in re.findall(pattern, said)}


def _report(found: Comparison, able: list[str], unable: dict[str, str]) -> list[str]:
    by_operator = defaultdict(list)
    for row in found.rows:
        by_operator[row.operator].append(row)
    failed = Counter(operator for operator, _, _ in found.failed)
    print(
        f"{'operator':<30}{'rows':>5}{'slot by slot':>14}{'all tensors':>13}{'duration':>10}{'failed':>8}  launched"
    )
    wrong = []
    for name in able:
        rows = by_operator[name]
        exact = sum(row.written_us == f"{row.fixed_us:.6f}" for row in rows)
        slots = sum(not row.slots for row in rows)
        whole = sum(not row.missing for row in rows)
        launched = ", ".join(sorted({row.launched for row in rows}))
        print(f"{name:<30}{len(rows):>5}{slots:>14}{whole:>13}{exact:>10}{failed[name]:>8}  {launched[:90]}")
        if exact != len(rows):
            wrong.append(f"{name}: {len(rows) - exact} durations are not the fixed ones")
    print(f"\nlaunched: {len(by_operator)} of {len(able) + len(unable)} operators, {len(found.rows)} rows")
    for name, reason in unable.items():
        print(f"not launched: {name}: {reason}")
    for operator, key, reason in found.failed:
        print(f"not measured: {operator} {key[1]}: {reason}")
    for row in found.rows:
        if row.slots or row.missing:
            missing = f"; no argument is {', '.join(row.missing)}" if row.missing else ""
            print(f"differs: {row.operator} {row.key[1]}: {row.slots or 'slots equal'}{missing}")
    if len(by_operator) < min(LEAST, len(able)):
        wrong.append(f"only {len(by_operator)} operators were launched, expected {LEAST}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
