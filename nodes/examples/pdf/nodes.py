"""The pack `pdf`: reads the text of PDF files with the package `pypdf`."""

import io
from typing import Any, NotRequired, TypedDict

from flowcell_sdk import Failure, Task, file, pack
from pypdf import PdfReader
from pypdf.errors import DependencyError, PyPdfError

#: Bytes that are read at once.
BUFFER = 1 << 18


class Document(TypedDict):
    file: Any
    start: NotRequired[int]
    limit: NotRequired[int]


class FileStream(io.RawIOBase):
    """A file value as a stream: only the parts that are read come into the memory of the node."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._value["size"]}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        content = file.read_bytes(self._value, self._at, len(buffer))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def text(task: Task[Document]) -> dict:
    stream = io.BufferedReader(FileStream(task.input["file"]), BUFFER)
    start, limit = task.input.get("start", 1), task.input.get("limit", 10_000)
    written = file.Writer()
    try:
        pages = PdfReader(stream).pages
        for page in pages[start - 1 : start - 1 + limit]:
            written.write(f"{page.extract_text()}\n\f\n".encode())
        return {"pages": len(pages), "text": written.finish("text/plain")}
    except (PyPdfError, DependencyError) as error:
        raise Failure("pdf_unreadable", str(error)) from error


Node = pack({"pdf.text": text})
