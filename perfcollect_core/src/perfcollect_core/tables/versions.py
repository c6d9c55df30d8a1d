"""Version words of directory names: how they are spelled, ordered, taken apart and detected."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import attrs
from packaging.version import InvalidVersion, Version

from perfcollect_core.errors import UsageError

__all__ = [
    "StackVersions",
    "cann_sources",
    "detect_cann",
    "detect_torch",
    "detect_vllm",
    "normalise_version",
    "parse_directory_name",
    "same_version",
]

_DIRECTORY = re.compile(
    r"vllm(?P<vllm>[^_/\\]+)_torch(?P<torch>[^_/\\]+)_cann(?P<cann>[^_/\\]+)(?P<variant>(?:_[A-Za-z0-9.+-]+)*)",
    re.ASCII,
)
_SAFE = re.compile(r"[A-Za-z0-9]+(?:[.+-][A-Za-z0-9]+)*", re.ASCII)
_DISTRIBUTIONS = {"vllm": ("vllm-ascend", "vllm_ascend"), "torch": ("torch",)}


@attrs.frozen
class StackVersions:
    """The parts of ``vllm<V>_torch<V>_cann<V>`` and what follows them (``_shape_generated``)."""

    vllm: str
    torch: str
    cann: str
    variant: str = ""

    @property
    def directory(self) -> str:
        return f"vllm{self.vllm}_torch{self.torch}_cann{self.cann}{self.variant}"

    @property
    def order(self) -> tuple[Version, Version, Version, str]:
        return _version(self.vllm), _version(self.torch), _version(self.cann), self.variant

    @property
    def is_release(self) -> bool:
        """Whether this is a final or post release of vLLM-Ascend, no development version and no variant."""
        return not self.variant and not _version(self.vllm).is_prerelease

    def fits(self, other: StackVersions) -> bool:
        """Tell whether both name one stack: ``8.5`` and ``8.5.0`` do, a variant and its origin do not."""
        return (
            self.variant == other.variant
            and same_version(self.vllm, other.vllm)
            and same_version(_public(self.torch), _public(other.torch))
            and same_version(self.cann, other.cann)
        )


def parse_directory_name(name: str) -> StackVersions | None:
    """Take a version directory's name apart; ``None`` where it is none or a part is no version."""
    match = _DIRECTORY.fullmatch(name)
    if match is None or any(_parsed(match[part]) is None for part in ("vllm", "torch", "cann")):
        return None
    return StackVersions(match["vllm"], match["torch"], match["cann"], match["variant"])


def normalise_version(part: str, text: str) -> str:
    """Return the spelling of a version that goes into a directory name; *part* is ``vllm``, ``torch`` or ``cann``.

    Raises:
        UsageError: *text* is no version.
    """
    word = text.strip()
    bracketed = re.search(r":([^:\[\]]+)\]?$", word)
    if part == "cann" and bracketed:
        word = bracketed[1]
    word = re.sub(rf"^{part}", "", word, flags=re.IGNORECASE)
    word = re.sub(r"^[vV](?=[0-9])", "", word)
    if part == "torch":
        word = word.partition("+")[0]
    parsed = _parsed(word)
    if parsed is None or not _SAFE.fullmatch(word) or parsed.release == (0,):
        raise UsageError(
            f"--{part}-version {text!r} is no version, expected one such as {_EXAMPLES[part]}",
            hint="give the plain version; perfcollect db list shows the directories there are",
        )
    # CANN's own spelling (8.3.RC1) is what existing directories carry.
    return word if part == "cann" else _short(parsed, word)


_EXAMPLES = {"vllm": "0.18.0, 0.18.0rc1 or latest", "torch": "2.9.0", "cann": "8.5.0"}


def same_version(one: str, other: str) -> bool:
    """Tell whether two version words mean one version."""
    first, second = _parsed(one), _parsed(other)
    return first == second if first is not None and second is not None else one == other


def _short(parsed: Version, word: str) -> str:
    """Return the normal form only where it differs in more than what packaging pads."""
    return str(parsed) if str(parsed).lower() != word.lower() else word


def _parsed(word: str) -> Version | None:
    # packaging reads "1.0_rc1" too, but an underscore separates the parts of a directory name.
    if "_" in word:
        return None
    try:
        return Version(word)
    except InvalidVersion:
        return None


def _version(word: str) -> Version:
    return _parsed(word) or Version("0")


def _public(word: str) -> str:
    return word.partition("+")[0]


def detect_vllm() -> str | None:
    """Return the version of the vLLM-Ascend distribution installed here."""
    return _installed("vllm")


def detect_torch() -> str | None:
    """Return the version of the torch distribution installed here; torch is not imported."""
    return _installed("torch")


def _installed(part: str) -> str | None:
    for name in _DISTRIBUTIONS[part]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return None


_INFO_FILES = (
    "ascend_toolkit_install.info",
    "version.info",
    "latest/version.info",
    "latest/ascend_toolkit_install.info",
    "ascend-toolkit/latest/version.info",
    "ascend-toolkit/latest/ascend_toolkit_install.info",
    "ascend-toolkit/version.info",
    "ascend-toolkit/ascend_toolkit_install.info",
    "arm64-linux/ascend_toolkit_install.info",
    "x86_64-linux/ascend_toolkit_install.info",
)
_ROOT_VARIABLES = (
    "ASCEND_HOME_PATH",
    "ASCEND_TOOLKIT_HOME",
    "ASCEND_TOOLKIT_HOME_PATH",
    "ASCEND_INSTALL_PATH",
)
_ROOTS = (
    "~/Ascend/cann",
    "/usr/local/Ascend/ascend-toolkit/latest",
    "/usr/local/Ascend/ascend-toolkit",
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/latest",
    "/usr/local/Ascend",
)
_VERSION_LINE = re.compile(r"^\s*(?:package_)?version\s*[=:]\s*(\S.*?)\s*$", re.IGNORECASE | re.MULTILINE)


def detect_cann(environ: Callable[[str], str | None] = os.environ.get) -> str | None:
    """Return the CANN version of this machine: what torch_npu was built against, else of the toolkit installed."""
    return next((version for _, version in cann_sources(environ)), None)


def cann_sources(
    environ: Callable[[str], str | None] = os.environ.get, roots: Iterable[Path] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield each place that states a CANN version and what it says, the one that counts first."""
    if built_for := _cann_of_torch_npu():
        yield "torch_npu", built_for
    for root in _cann_roots(environ) if roots is None else roots:
        yield from _stated(root)


def _cann_roots(environ: Callable[[str], str | None]) -> Iterator[Path]:
    yield from (Path(value) for name in _ROOT_VARIABLES if (value := environ(name)))
    for root in _ROOTS:
        with contextlib.suppress(RuntimeError):
            yield Path(root).expanduser()


def _stated(root: Path) -> Iterator[tuple[str, str]]:
    for name in _INFO_FILES:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if match := _VERSION_LINE.search((root / name).read_text(encoding="utf-8")):
                yield str(root / name), match[1]
                return


def _cann_of_torch_npu() -> str | None:
    """Read ``torch_npu/version.py`` as text: importing torch_npu would import torch and open the device."""
    try:
        files = importlib.metadata.files("torch_npu") or ()
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if str(file) == "torch_npu/version.py":
            with contextlib.suppress(OSError):
                match = re.search(
                    r"^(?:cann|cann_version)\b[^=]*=\s*['\"]([^'\"]+)", file.read_text(), re.MULTILINE
                )
                return match[1] if match else None
    return None
