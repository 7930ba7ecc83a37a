"""A text file's format: compression, encoding, separator, heading.

Loggers, spreadsheets and banks write CSV in many dialects, and only the first lines of a file show
its dialect. So this module inspects the first megabyte once:

* the compression by its first bytes, not by the suffix,
* the encoding by a byte order mark, else UTF-8 if the bytes are valid UTF-8, else Windows-1252,
* the heading as the first line that has all the wanted columns, so that comments and
  titles above it are skipped, and the separator as the one that gives these columns.

An option for the separator or the encoding overrides this.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import pyarrow as pa
import typer

from decaysketch.cli.output import CommandError

__all__ = [
    "HEAD_BYTES",
    "Dialect",
    "Encoding",
    "Separator",
    "TextOptions",
    "dialect_of",
    "encoding_of",
    "opened",
]

HEAD_BYTES = 1 << 20
_SEPARATORS = (",", ";", "\t", "|")
_NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
_HEADING_WITHIN = 200  # lines
_LINE_END = re.compile("\r\n|\n|\r")
_COMPRESSIONS = ((b"\x1f\x8b", "gzip"), (b"BZh", "bz2"), (b"\x28\xb5\x2f\xfd", "zstd"))
_OTHER_FILES = ((b"PAR1", "parquet"), (b"ARROW1", "arrow"))
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


Separator = Annotated[
    str | None,
    typer.Option(help="The separator of CSV cells, or 'tab'. Default: detected from the heading."),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Encoding of text files, such as latin-1. Default: detected from the first bytes."
    ),
]


class TextOptions(NamedTuple):
    """The options for text files.

    Attributes:
        separator: for CSV: one character, or "tab"; None: from the heading.
        encoding: as Python names it; None: from the bytes.
    """

    separator: str | None = None
    encoding: str | None = None

    def checked(self) -> Self:
        """Return the same options.

        Raises:
            CommandError: the separator or the encoding is invalid. The message names it.
        """
        if self.separator is not None:
            character = _NAMED.get(self.separator, self.separator)
            if len(character) != 1 or character in '"\r\n' or not character.isascii():
                raise CommandError(
                    f"--separator is {self.separator!r}; expected one character, or 'tab'"
                )
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise CommandError(
                    f"--encoding is {self.encoding!r}; expected a name such as 'utf-8', 'utf-16' "
                    "or 'latin-1'"
                ) from None
        return self


class Dialect(NamedTuple):
    """A CSV file's dialect, from its first lines.

    Attributes:
        encoding: as Python names it.
        separator: one character.
        names: unique column names; a repeated or missing name is replaced.
        twice: names that more than one column has.
        exact: whether the heading has these names, letter by letter.
        above: lines above the heading.
        multiline: whether a quoted cell has a line end in it.
        head: the first lines of rows, decoded.
    """

    encoding: str
    separator: str
    names: tuple[str, ...]
    twice: frozenset[str]
    exact: bool
    above: tuple[str, ...]
    multiline: bool
    head: str


def opened(path: Path, raw: Any = None) -> tuple[Any, bytes]:
    """Open a file as a stream of decompressed bytes. Also return the first bytes, which remain
    unread. ``raw`` is its stream, if it is not in the local file system.

    Raises:
        CommandError: a ZIP file with several files, or a damaged one.
        OSError: it cannot be read.
    """
    raw = path.open("rb") if raw is None else raw
    try:
        return _inflated(path, raw)
    except BaseException:
        raw.close()
        raise


def _inflated(path: Path, raw: Any) -> tuple[Any, bytes]:
    first = raw.read(8)
    source: Any = _Chained(first, raw)
    if first.startswith(b"PK\x03\x04"):
        raw.close()
        source = _member(path)
    else:
        for magic, compression in _COMPRESSIONS:
            if first.startswith(magic):
                source = pa.CompressedInputStream(pa.PythonFile(source, mode="r"), compression)
    head = _read_head(source, path)
    for magic, format in _OTHER_FILES:
        if head.startswith(magic):
            source.close()
            raise CommandError(f"{path} is an Arrow or Parquet file; use --format {format}")
    return _Chained(head, source), head


def _read_head(source: Any, path: Path) -> bytes:
    parts, size = [], 0
    try:
        while size < HEAD_BYTES and (part := source.read(HEAD_BYTES - size)):
            parts.append(bytes(part))
            size += len(part)
    except (OSError, EOFError, zipfile.BadZipFile, RuntimeError) as fault:
        raise CommandError(f"{path} cannot be decompressed: {fault}") from None
    return b"".join(parts)


def _member(path: Path) -> Any:
    """Return the single file in a ZIP file."""
    try:
        archive = zipfile.ZipFile(path)
        names = [
            each.filename for each in archive.infolist()
            if not each.is_dir() and not each.filename.startswith("__MACOSX/")
        ]  # fmt: skip
        if len(names) != 1:
            listed = ", ".join(names[:5]) or "none"
            raise CommandError(
                f"{path} holds {len(names)} files ({listed}); expected one: unpack it"
            )
        return archive.open(names[0])
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as fault:
        raise CommandError(f"{path} cannot be unpacked: {fault}") from None


class _Chained(io.RawIOBase):
    """Bytes that were read already, followed by the rest of a stream."""

    def __init__(self, first: bytes, rest: Any) -> None:
        self._first, self._at, self._rest = first, 0, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._at < len(self._first):
            stop = len(self._first) if size < 0 else self._at + size
            part = self._first[self._at : stop]
            self._at += len(part)
            return part + (bytes(self._rest.read()) if size < 0 else b"")
        return bytes(self._rest.read() if size < 0 else self._rest.read(size))

    def readinto(self, buffer: Any) -> int:
        part = self.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if not self.closed:
            self._rest.close()
        super().close()


def encoding_of(path: Path, head: bytes, options: TextOptions) -> str:
    """Return a text file's encoding.

    Raises:
        CommandError: it is no text.
    """
    if options.encoding is not None:
        return options.encoding
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        even, odd = head[::2].count(0), head[1::2].count(0)
        if max(even, odd) > 0.4 * (len(head) // 2):
            return "utf-16-be" if even > odd else "utf-16-le"
        raise CommandError(
            f"{path} is not text: byte {head.index(0)} is 0; give its format with --format"
        )
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return "cp1252" if _decodes(head, "cp1252") else "latin-1"
    return "utf-8"


def _decodes(head: bytes, encoding: str) -> bool:
    try:
        head.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def dialect_of(path: Path, head: bytes, wanted: Sequence[str], options: TextOptions) -> Dialect:
    """Return a CSV file's dialect.

    Args:
        path: for errors.
        head: its first bytes.
        wanted: columns in the heading.
        options: the given options.

    Raises:
        CommandError: the file is empty, or no text.
    """
    encoding = encoding_of(path, head, options)
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError as fault:
        raise CommandError(
            f"{path} is not {encoding}: byte {fault.start}; give its encoding with --encoding"
        ) from None
    text = text.removeprefix("\ufeff")
    lines = _LINE_END.split(text)
    separator, place = _heading(lines, wanted, options)
    if place is None:
        raise CommandError(f"{path} is empty; expected a heading with the names of the columns")
    names = [each.strip() for each in _fields(lines[place], separator)]
    first = next((line for line in lines[place + 1 :] if line.strip()), None)
    if first is not None and len(lines) > place + 2:
        cells = _fields(first, separator)
        if len(cells) == len(names) + 1 and not cells[-1].strip():
            names.append("")  # a separator at the end of each row, and none in the heading
        elif len(cells) == len(names) - 1 and not names[-1]:
            names.pop()
    rows = "\n".join(lines[place + 1 : -1] if len(head) >= HEAD_BYTES else lines[place + 1 :])
    multiline = any(line.count('"') % 2 for line in lines[place + 1 : -1])
    unique, twice = _unique(names)
    exact = unique == tuple(_fields(lines[place], separator))
    above = tuple(lines[:place])
    return Dialect(encoding, separator, unique, twice, exact, above, multiline, rows)


def _fields(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:  # a cell beyond the limit of that reader
        return line.split(separator)


def _heading(
    lines: Sequence[str], wanted: Sequence[str], options: TextOptions
) -> tuple[str, int | None]:
    """Return the separator, and the line of the heading."""
    given = options.separator
    separators = _SEPARATORS if given is None else (_NAMED.get(given, given),)
    candidates = [
        place for place, line in enumerate(lines[:_HEADING_WITHIN])
        if line.strip() and not line.lstrip().startswith("#")
    ]  # fmt: skip
    needed = set(wanted)
    for place in candidates:
        for separator in separators:
            if needed <= {each.strip() for each in _fields(lines[place], separator)}:
                return separator, place
    if not candidates:
        return separators[0], None
    first = candidates[0]  # the message quotes this line
    return max(separators, key=lambda each: len(_fields(lines[first], each))), first


def _unique(names: Sequence[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    found: dict[str, None] = {}
    twice = set()
    for place, name in enumerate(names):
        if name in found and name:
            twice.add(name)
        found[f"{name or 'column'} ({place + 1})" if name in found or not name else name] = None
    return tuple(found), frozenset(twice)
