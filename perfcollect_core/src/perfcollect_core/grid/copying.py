"""Copy a database before its copy is extended."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from perfcollect_core.errors import DataError
from perfcollect_core.tables.atomic import PARTIAL
from perfcollect_core.tables.identity import IDENTITY_FILE, read_identity, write_identity
from perfcollect_core.tables.lock import LOCK_FILES

__all__ = ["copied_database"]


@contextlib.contextmanager
def copied_database(source: Path, target: Path) -> Iterator[None]:
    """Copy the files of *source* to the new directory *target*; where the body fails, nothing of it is left.

    Foreign files (``op_mapping.yaml``) travel along, and so does the identity that only the path of *source* told.

    Raises:
        DataError: *target* holds something already, or cannot be made.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise DataError(
            f"{target} exists and is not empty, expected a new directory",
            hint="name another with --out, or extend it in place with --database-path",
        )
    identity = read_identity(source)
    made = not target.exists()
    try:
        try:
            target.mkdir(parents=True, exist_ok=True)
            for path in sorted(source.iterdir()):
                if path.is_file() and path.name not in LOCK_FILES and not path.name.endswith(PARTIAL):
                    shutil.copyfile(path, target / path.name)
        except OSError as error:
            raise DataError(
                f"{error.filename2 or error.filename or target} cannot be copied: {error.strerror or error}",
                hint="name a directory you may write with --out",
            ) from error
        if identity is not None and identity.evidence == "path" and not (target / IDENTITY_FILE).exists():
            write_identity(target, identity)
        yield
    except BaseException:
        for path in target.iterdir() if target.is_dir() else ():
            path.unlink(missing_ok=True)
        if made:
            with contextlib.suppress(OSError):
                target.rmdir()
        raise
