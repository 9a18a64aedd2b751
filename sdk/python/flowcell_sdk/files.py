"""Files of the tenant. The flow grants paths: `grants: { files: { read: ["data/**"], write: ["out/**"] } }`.

A path is relative to the tenant's folder, without `.` and `..`. Links are not followed. A file value, `{"kind": "file",
"fileId": …}`, is a copy, for content that is too large for the sandbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wit_world.imports import files

from .failure import called
from .json import parsed, text as json_text
from .values import data as checked_data, text as plain


Kind = Literal["file", "folder"]


@dataclass(frozen=True)
class Entry:
    """A file or a folder."""

    path: str
    kind: Kind
    size: int
    #: In ms since 1970.
    modified_ms: int


def read_text(path: str) -> str:
    """Reads a file as text."""
    return _read(path, files.Form.TEXT)


def read_bytes(path: str) -> bytes:
    """Reads a file as bytes."""
    return _read(path, files.Form.BYTES)


def read_file(path: str) -> Any:
    """Copies a file to a file value."""
    return parsed(_read(path, files.Form.FILE))


def write_text(path: str, text: str) -> int:
    """Creates or replaces a file. Returns its size in bytes."""
    with called():
        return files.write(plain(path, "path"), files.Content_Text(plain(text, "text")))


def write_bytes(path: str, data: bytes) -> int:
    """Creates or replaces a file. Returns its size in bytes."""
    with called():
        return files.write(plain(path, "path"), files.Content_Bytes(checked_data(data, "data")))


def write_file(path: str, file: Any) -> int:
    """Creates or replaces a file with the content of a file value. Returns its size in bytes."""
    with called():
        return files.write(plain(path, "path"), files.Content_File(json_text(file)))


def list(path: str = "") -> Sequence[Entry]:
    """Lists a folder by name, without entries that the flow may not read. Default: the tenant's folder."""
    with called():
        return [_entry(entry) for entry in files.list(plain(path, "path"))]


def stat(path: str) -> Entry | None:
    """Returns the entry at a path, or None."""
    with called():
        entry = files.stat(plain(path, "path"))
    return None if entry is None else _entry(entry)


def remove(path: str) -> bool:
    """Removes a file or an empty folder. Returns whether it existed."""
    with called():
        return files.remove(plain(path, "path"))


def _read(path: str, form: files.Form) -> Any:
    with called():
        content = files.read(plain(path, "path"), form)
    # Text or bytes, depending on the form.
    return content.value


def _entry(entry: files.Entry) -> Entry:
    kind: Kind = "file" if entry.kind == files.Kind.FILE else "folder"
    return Entry(entry.path, kind, entry.size, entry.modified_ms)
