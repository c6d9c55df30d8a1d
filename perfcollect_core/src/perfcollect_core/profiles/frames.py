"""Stream a profiler file as frames of text cells with physical line numbers, in bounded memory.

A piece of the file that ends at a line end goes through polars. Whatever polars might read in another way than the
file was meant (quotes that span lines, lines with too few cells, bytes that are not UTF-8, ...) is noticed and read
again record by record, so that every line of the file ends in a frame or in ``faults``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

import attrs

from perfcollect_core.errors import DataError

from .headers import ProfileHeader
from .records import cell_count, split_records

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LINE", "Fault", "Piece", "stream_pieces"]

#: Name of the column that holds the physical line of each record.
LINE = "__line"

_PIECE_BYTES = 16 << 20
_MAX_PIECE_BYTES = 64 << 20


@attrs.frozen
class Fault:
    """A physical line that is no record, and why."""

    line: int
    reason: str


@attrs.frozen(eq=False)
class Piece:
    """A run of records: their cells, the lines that are none, and where bytes outside UTF-8 were met."""

    frame: pl.DataFrame
    faults: tuple[Fault, ...] = ()
    bad_bytes: tuple[int, ...] = ()
    nbytes: int = 0


def stream_pieces(
    header: ProfileHeader,
    columns: Sequence[str],
    *,
    optional: Sequence[str] = (),
    piece_bytes: int = _PIECE_BYTES,
) -> Iterator[Piece]:
    """Yield the records of a file, those of *columns* it has, as text; a missing cell is null or empty.

    In the *optional* ones among them ``N/A`` may come as null too.
    """
    chosen = [column for column in dict.fromkeys(columns) if column in header.columns]
    reader = _Reader(header, chosen, optional)
    with header.path.open("rb") as stream:
        yield from reader.pieces(stream, piece_bytes)


class _Reader:
    """Reads one file from front to back."""

    def __init__(self, header: ProfileHeader, columns: list[str], optional: Sequence[str]) -> None:
        self._header = header
        self._columns = columns
        self._positions = [header.columns.index(column) for column in columns]
        self._width = len(header.columns)
        self._line = header.line
        # Numbers as names: the names of the file may repeat or be blank. Always read the last column, which is
        # null where a line is too short.
        self._heading = (",".join(map(str, range(self._width))) + "\n").encode()
        self._projection = [str(i) for i in dict.fromkeys([*self._positions, self._width - 1])]
        # N/A may stand in the last column, where null means that the line is too short.
        self._nulls = {
            str(position): "N/A"
            for position, column in zip(self._positions, columns, strict=True)
            if column in optional and position != self._width - 1
        }

    def pieces(self, stream: BinaryIO, piece_bytes: int) -> Iterator[Piece]:
        offset = self._header.body
        # No more than there is, and one byte to notice the end by.
        left = self._header.path.stat().st_size - offset
        size = piece_bytes = max(min(piece_bytes, left + 1), 1)
        head = len(self._heading)
        # One buffer, with the heading polars needs in front of what is read.
        buffer = bytearray(self._heading) + bytearray(size)
        while True:
            if len(buffer) != head + size:
                buffer = bytearray(self._heading) + bytearray(size)
            stream.seek(offset)
            length = _fill(stream, memoryview(buffer)[head:])
            if not length:
                return
            final = length < size
            end = buffer.rfind(b"\n", head, head + length) + 1 - head
            if end <= 0 and not final:
                size *= 2
                if size > _MAX_PIECE_BYTES:
                    raise DataError(
                        f"{self._header.path} line {self._line}: no line end within {size >> 21} MiB, "
                        "expected a profiler file"
                    )
                continue
            if final and end < length:
                # The last line is not ended: it never counts, even where its cells would parse.
                tail = bytes(memoryview(buffer)[head + max(end, 0) : head + length])
                if end > 0:
                    piece, _ = self._piece(bytes(memoryview(buffer)[: head + end]), offset, final=True)
                    yield piece
                yield self._torn(tail, offset + max(end, 0))
                return
            piece, used = self._piece(bytes(memoryview(buffer)[: head + end]), offset, final=final)
            if used == 0:
                size = min(size * 2, _MAX_PIECE_BYTES)
                continue
            size = piece_bytes
            offset += used
            yield piece

    def _torn(self, tail: bytes, offset: int) -> Piece:
        bad = () if _is_utf8(tail) else (offset,)
        fault = Fault(self._line, "last line is not ended, the file may have been cut")
        return Piece(self._frame([[] for _ in self._columns], []), (fault,), bad, len(tail))

    def _piece(self, headed: bytes, offset: int, *, final: bool) -> tuple[Piece, int]:
        """Read the records in *headed*: our heading, then whole lines of the file from *offset* on."""
        frame = self._fast(headed)
        if frame is not None:
            self._line += frame.height
            length = len(headed) - len(self._heading)
            return Piece(frame, nbytes=length), length
        return self._slow(headed[len(self._heading) :], offset, final=final)

    def _fast(self, headed: bytes) -> pl.DataFrame | None:
        """Read *headed* with polars; ``None`` unless each physical line is one record of the right width.

        A quoted cell with a line end in it, or a quote that is never closed, makes fewer records than lines.
        """
        import polars as pl

        if not _is_utf8(headed):
            return None
        returns = headed.count(b"\r")
        if returns and returns != headed.count(b"\r\n"):
            return None
        try:
            frame = pl.read_csv(
                headed,
                columns=self._projection,
                infer_schema=False,
                null_values=self._nulls or None,
            )
        except pl.exceptions.PolarsError:
            return None
        if frame.height != headed.count(b"\n") - 1:
            return None
        last = frame[str(self._width - 1)]
        if last.null_count() and not self._are_full(headed, last):
            return None
        lines = pl.int_range(self._line, self._line + frame.height, dtype=pl.UInt32, eager=True).alias(LINE)
        chosen = [
            frame[str(position)].alias(column)
            for position, column in zip(self._positions, self._columns, strict=True)
        ]
        return pl.DataFrame([*chosen, lines])

    def _are_full(self, headed: bytes, last: pl.Series) -> bool:
        lines = headed.split(b"\n")
        return all(
            cell_count(lines[index + 1].decode("utf-8").rstrip("\r")) == self._width
            for index in last.is_null().arg_true()
        )

    def _slow(self, block: bytes, offset: int, *, final: bool) -> tuple[Piece, int]:
        text = block.decode("utf-8", "surrogateescape")
        cells: list[list[str]] = [[] for _ in self._columns]
        lines: list[int] = []
        faults: list[Fault] = []
        end = 0
        for record in split_records(text, self._width, final=final):
            end = record.end
            line = self._line + record.line
            if record.fault:
                faults.append(Fault(line, record.fault))
                continue
            wanted = [record.cells[position] for position in self._positions]
            odd = next(
                (c for c, cell in zip(self._columns, wanted, strict=True) if _has_surrogate(cell)), None
            )
            if odd is not None:
                faults.append(Fault(line, f"{self._header.layout.spelling(odd)} is not UTF-8"))
                continue
            for column, cell in zip(cells, wanted, strict=True):
                column.append(cell)
            lines.append(line)
        if end == 0 and text.strip() and not final:
            return Piece(self._frame(cells, lines)), 0
        if not text[end:].strip():
            end = len(text)
        self._line += text.count("\n", 0, end)
        used = len(text[:end].encode("utf-8", "surrogateescape"))
        bad = _bad_offsets(block[:used], offset)
        return Piece(self._frame(cells, lines), tuple(faults), bad, used), used

    def _frame(self, cells: list[list[str]], lines: list[int]) -> pl.DataFrame:
        import polars as pl

        chosen = [
            pl.Series(c, values, dtype=pl.String) for c, values in zip(self._columns, cells, strict=True)
        ]
        return pl.DataFrame([*chosen, pl.Series(LINE, lines, dtype=pl.UInt32)])


def _fill(stream: BinaryIO, view: memoryview) -> int:
    """Read until *view* is full or the file ends, and return how many bytes came."""
    filled = 0
    while filled < len(view):
        count = stream.readinto(view[filled:])  # type: ignore[attr-defined]  # a file opened for bytes has it
        if not count:
            break
        filled += count
    return filled


def _is_utf8(block: bytes) -> bool:
    if block.isascii():
        return True
    try:
        block.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _has_surrogate(cell: str) -> bool:
    return not cell.isascii() and any("\udc80" <= char <= "\udcff" for char in cell)


def _bad_offsets(block: bytes, offset: int) -> tuple[int, ...]:
    """Return the offsets in the file of the runs of bytes that are not UTF-8, at most a hundred."""
    found: list[int] = []
    start, run_end = 0, -1
    while len(found) < 100:
        try:
            block[start:].decode("utf-8")
            break
        except UnicodeDecodeError as error:
            if start + error.start != run_end:
                found.append(offset + start + error.start)
            start += error.end
            run_end = start
    return tuple(found)
