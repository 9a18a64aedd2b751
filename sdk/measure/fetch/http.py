"""Counts the bytes and lines of an answer, with the module `http` of the SDK."""

from collections.abc import Iterable

from flowcell_sdk import Task, file, http, pack


def counted(pieces: Iterable[bytes]) -> dict:
    size = lines = 0
    for piece in pieces:
        size += len(piece)
        lines += piece.count(b"\n")
    return {"bytes": size, "lines": lines}


def whole(task: Task) -> dict:
    """A large answer is a file value, so the node reads the file."""
    return counted(file.chunks(http.send(http.Request(task.input["url"])).file))


def chunks(task: Task) -> dict:
    return counted(http.open(http.Request(task.input["url"])).chunks())


def lines(task: Task) -> dict:
    size = count = 0
    for line in http.open(http.Request(task.input["url"])).lines():
        size += len(line) + 1
        count += 1
    return {"bytes": size, "lines": count}


Node = pack({"acme.whole": whole, "acme.chunks": chunks, "acme.lines": lines})
