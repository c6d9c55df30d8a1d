"""Replay the operators that need vllm-ascend against its released wheel on the emulated CANN, and say how each went.

vllm-ascend 0.18.0 is built for torch 2.9.0, so this makes an environment of its own (about 2 GB). vllm itself is not
needed to register the operators: four of its modules that vllm_ascend names at import are stood in for.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent))

from bindings import derive, replay
from build import build, environment
from cuda_stubs import build_cuda_stubs

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ("torch==2.9.0", "torch-npu==2.9.0", "vllm-ascend==0.18.0")
#: What those import, without the CUDA packages that torch's wheel asks for.
BESIDE = [
    "attrs",
    "click",
    "editables",
    "filelock",
    "fsspec",
    "hatchling",
    "jinja2",
    "markupsafe",
    "mpmath",
    "networkx",
    "numpy",
    "packaging",
    "pluggy",
    "polars",
    "pyyaml",
    "regex",
    "rich",
    "setuptools",
    "sympy",
    "tomli",
    "typing_extensions",
]
DISTRIBUTIONS = ("perfcollect_core", "perfcollect_ops_builtin", "perfcollect_ops_vllm_ascend")
OPERATORS: Mapping[str, tuple[str, ...]] = {
    "AddRmsNormBias": (),
    "SparseFlashAttention": (),
    "LightningIndexer": (),
    "DispatchFFNCombine": ("--dispatch-ffn-combine-ep-size", "2"),
    "RINGMLAPrefillBF16Kernel": (),
    "ReshapeAndCacheNdKernel": (),
    "split_qkv_rmsnorm_rope_kernel": (),
}
_TROUBLE = re.compile(r"error|failed|hint|needs|missing|lost|untouched|Error", re.IGNORECASE)
_VLLM = {
    "vllm/__init__.py": "",
    "vllm/logger.py": "import logging\n\nlogger = logging.getLogger('vllm')\ninit_logger = logging.getLogger\n",
    "vllm/sequence.py": "class IntermediateTensors: ...\n",
    "vllm/utils/__init__.py": "",
    "vllm/utils/math_utils.py": "def cdiv(a, b):\n    return -(-a // b)\n",
    "vllm/model_executor/__init__.py": "",
    "vllm/model_executor/layers/__init__.py": "",
    "vllm/model_executor/layers/batch_invariant.py": "def vllm_is_batch_invariant():\n    return False\n",
}


def main() -> int:
    """Set up the environment, then replay each operator in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-vllm-ascend")
    parser.add_argument(
        "--headers", type=Path, help="ACL headers of a newer torch_npu (default: .venv-ascend's)"
    )
    parser.add_argument("--ops", nargs="+", choices=list(OPERATORS), default=list(OPERATORS))
    parser.add_argument("--rows", default="1", help="data rows of each table (default: the first)")
    parser.add_argument("--replay", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        return _replay_all(options.ops, options.rows)
    python = _prepared(options.venv.resolve())
    headers = options.headers or _newer_headers()
    variables = {
        **os.environ,
        "CANN_EMU_ACL_HEADERS": str(headers),
        "LD_LIBRARY_PATH": str(options.venv / "cuda"),
    }
    variables["PYTHONPATH"] = str(options.venv.resolve() / "stand_in")
    command = [python, __file__, "--replay", "--rows", options.rows, "--ops", *options.ops]
    return subprocess.run(command, env=variables, check=False).returncode


def _newer_headers() -> Path:
    found = sorted((ROOT / ".venv-ascend").glob("lib/python3*/site-packages/torch_npu/include"))
    if not found:
        raise SystemExit("error: no ACL headers: run `make emulator` first, or give --headers")
    return found[0]


def _prepared(venv: Path) -> Path:
    python = venv / "bin" / "python"
    if not (venv / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", *WHEELS, *BESIDE], check=True)
        for name in DISTRIBUTIONS:
            subprocess.run([*pip, "--no-build-isolation", "-e", ROOT / name], check=True)
        (venv / "complete").touch()
    (torch,) = venv.glob("lib/python3*/site-packages/torch/lib")
    build_cuda_stubs(torch, venv / "cuda")
    for name, text in _VLLM.items():
        path = venv / "stand_in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return python


def _replay_all(operators: Sequence[str], rows: str) -> int:
    """Run under the prepared interpreter: replay every operator and print one line for each."""
    from importlib.metadata import version
    from importlib.util import find_spec

    spec = find_spec("vllm_ascend")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    extension = [*package.glob("vllm_ascend_C*.so"), package / "libvllm_ascend_kernels.so"]
    home = build(also=extension, headers=Path(os.environ["CANN_EMU_ACL_HEADERS"]))
    env = {**os.environ, **environment(home), "OMP_NUM_THREADS": "1"}
    print(", ".join(f"{name} {version(name)}" for name in ("torch", "torch_npu", "vllm_ascend")), flush=True)
    launched = 0
    for operator in operators:
        with TemporaryDirectory(prefix="perfcollect-vllm-ascend-") as temporary:
            outcome, names = _replayed(Path(temporary) / "database", operator, rows, env)
        launched += bool(names)
        print(f"{operator}: {outcome}", flush=True)
    print(f"launched: {launched} of {len(operators)}")
    return 0 if launched else 1


def _replayed(database: Path, operator: str, rows: str, env: Mapping[str, str]) -> tuple[str, set[str]]:
    derive(database, env, [operator])
    options = ("--ops", operator, "--rows", rows, "--repeat-count", "3", "--warmup", "1")
    try:
        done = replay(database, env, *options, *OPERATORS[operator], devices=2)
    except subprocess.TimeoutExpired as error:
        return f"no end after {error.timeout:.0f} s", set()
    names: set[str] = set()
    for path in (database.parent / f"{database.name}_launches").glob("*.jsonl"):
        records = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        names |= {record["name"] for record in records if record["kind"] in {"aclnn", "atb"}}
    names = {
        name for name in names if operator[:6].lower() in name.lower() or name.startswith(("Atb", "Reshape"))
    }
    if done.returncode == 0:
        return f"measured by {', '.join(sorted(names))}", names
    reasons = [
        line.strip() for line in done.stdout.splitlines() + done.stderr.splitlines() if _TROUBLE.search(line)
    ]
    launched = f", launched {', '.join(sorted(names))}" if names else ""
    return f"exit status {done.returncode}{launched}: {' | '.join(dict.fromkeys(reasons))[:900]}", names


if __name__ == "__main__":
    sys.exit(main())
