"""Print lines per module: median, 90th percentile and maximum of the code and of the tests."""

from __future__ import annotations

import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = [
    f"{name}/src"
    for name in (
        "perfcollect_core",
        "perfcollect_ops_builtin",
        "perfcollect_ops_vllm_ascend",
        "perfcollect_comm",
    )
]


def line_counts(folders: list[str]) -> dict[str, int]:
    """Return the lines of each tracked module below *folders*, package markers left out."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    modules = [name for name in listed.split() if name.endswith(".py") and not name.endswith("__init__.py")]
    return {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in modules}


def main() -> None:
    """Print a line for the code and one for the tests."""
    for title, folders in (("code", CODE), ("tests", ["tests"])):
        counts = line_counts(folders)
        ordered = sorted(counts.values())
        longest = max(counts, key=lambda name: counts[name])
        print(
            f"{title}: {len(ordered)} modules, {sum(ordered)} lines, median {statistics.median(ordered):g}, "
            f"90th percentile {ordered[int(0.9 * len(ordered))]}, maximum {ordered[-1]} ({longest})"
        )


if __name__ == "__main__":
    main()
