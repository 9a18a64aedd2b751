"""Counts the bytes and lines of an answer, with `async def`."""

from flowcell_sdk import Task, file, http, pack


async def whole(task: Task) -> dict:
    answer = await http.send_async(http.Request(task.input["url"]))
    content = file.read_all(answer.file)
    return {"bytes": len(content), "lines": content.count(b"\n")}


Node = pack({"acme.whole": whole})
