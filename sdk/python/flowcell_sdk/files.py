"""Files of the tenant. The flow grants which: `grants: { files: { read: ["data/**"], write: ["out/**"] } }`.

A path leads down from the tenant's folder, without `.` and `..`. Links are not followed. A file value, `{"kind": "file",
"fileId": …}`, is a copy: for what is too large for the sandbox.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wit_world.imports import files

from .failure import called
from .json import parsed, text as json_text


Kind = Literal["file", "folder"]


@dataclass(frozen=True)
class Entry:
    """What there is at a path."""

    path: str
    kind: Kind
    size: int
    #: In ms since 1970.
    modified_ms: int


def read_text(path: str) -> str:
    """The text of a file."""
    return _read(path, files.Form.TEXT)


def read_bytes(path: str) -> bytes:
    """The bytes of a file."""
    return _read(path, files.Form.BYTES)


def read_file(path: str) -> Any:
    """A copy of a file, as a file value."""
    return parsed(_read(path, files.Form.FILE))


def write_text(path: str, text: str) -> int:
    """Replaces a file, or makes it. Gives its size."""
    with called():
        return files.write(path, files.Content_Text(text))


def write_bytes(path: str, data: bytes) -> int:
    """Replaces a file, or makes it. Gives its size."""
    with called():
        return files.write(path, files.Content_Bytes(data))


def write_file(path: str, file: Any) -> int:
    """Replaces a file, or makes it, with what a file value means. Gives its size."""
    with called():
        return files.write(path, files.Content_File(json_text(file)))


def list(path: str = "") -> Sequence[Entry]:
    """What is in a folder, by name, as far as the flow lets it be read. Without a path it is the tenant's folder."""
    with called():
        return [_entry(entry) for entry in files.list(path)]


def stat(path: str) -> Entry | None:
    """What there is at a path, if anything."""
    with called():
        entry = files.stat(path)
    return None if entry is None else _entry(entry)


def remove(path: str) -> bool:
    """Removes a file, or a folder that is empty. Gives whether it was there."""
    with called():
        return files.remove(path)


def _read(path: str, form: files.Form) -> Any:
    with called():
        content = files.read(path, form)
    # A text or bytes, by its form.
    return content.value


def _entry(entry: files.Entry) -> Entry:
    kind: Kind = "file" if entry.kind == files.Kind.FILE else "folder"
    return Entry(entry.path, kind, entry.size, entry.modified_ms)
