"""Counts the bytes and lines of an answer, with `urllib`."""

from urllib.request import urlopen

from flowcell_sdk import Task, pack


def whole(task: Task) -> dict:
    content = urlopen(task.input["url"]).read()
    return {"bytes": len(content), "lines": content.count(b"\n")}


def lines(task: Task) -> dict:
    size = count = 0
    for line in urlopen(task.input["url"]):
        size += len(line)
        count += 1
    return {"bytes": size, "lines": count}


Node = pack({"acme.whole": whole, "acme.lines": lines})
