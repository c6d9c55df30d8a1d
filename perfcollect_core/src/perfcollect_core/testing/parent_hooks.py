"""Call an operator's parent hooks in a fresh process and print which heavy packages that imported, as JSON."""

from __future__ import annotations

import json
import sys

from perfcollect_core.cases import Case

from .replay import host_for, make_row, plugin_under_test

__all__ = ["main"]

_HEAVY = ("torch", "torch_npu", "numpy", "polars", "vllm", "vllm_ascend", "triton")


def main() -> None:
    """Read ``{"operator", "plugin", "rows"}`` from stdin."""
    request = json.load(sys.stdin)
    operator, plugin = request["operator"], request["plugin"]
    loaded = plugin_under_test(operator, plugin)
    host = host_for(operator, loaded.plugin)
    spec = host.spec()
    for index, cells in enumerate(request["rows"]):
        row = make_row(operator, cells, index)
        host.canonical_key(spec, row)
        case = host.make_case(spec, row)
        if isinstance(case, Case):
            host.estimate_cost(case)
    print(json.dumps([name for name in _HEAVY if name in sys.modules]))


if __name__ == "__main__":
    main()
