"""Nodes that await several calls at once, and that use `urllib` and the SDK's `requests`."""

import asyncio
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from flowcell_sdk import (
    Choice, Failure, Pause, Question, Task, cache, file, files, http, input_part, log, metrics, pack, queue, requests, state,
    tools,
)


@dataclass
class Row:
    price: object


async def ask(base, name):
    return (await http.send_async(http.Request(f"{base}/{name}"))).text


async def run(task: Task):
    base = task.input["base"]

    async def named(name):
        await ask(base, name)
        return name

    asked = [asyncio.create_task(named(name)) for name in "abc"]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    first = done.pop().result()
    won = await ask(base, f"won-{first}")
    order = []

    async def noted(name):
        order.append(await ask(base, name))

    async with asyncio.TaskGroup() as group:
        for name in "def":
            group.create_task(noted(name))
    await asyncio.sleep(0.02)
    last = await ask(base, "last-" + "".join(order))
    return {"first": first, "won": won, "order": order, "last": last, "all": await asyncio.gather(*asked)}


async def ends(task: Task):
    """Ends are found also if they came before a coroutine asks. Turns without a pause keep no call from ending."""
    base = task.input["base"]
    calls = [http.start_send(http.Request(f"{base}/{name}")) for name in "ab"]
    await asyncio.sleep(0.05)
    statuses = [(await queue.ended(call))["status"] for call in calls]
    texts = [http.take_response(call).text for call in calls]
    turning = asyncio.create_task(ask(base, "c"))
    while not turning.done():
        await asyncio.sleep(0)
    left = []

    async def stays():
        try:
            await asyncio.Event().wait()
        finally:
            left.append("cancelled")

    try:
        await asyncio.wait_for(stays(), 0.01)
    except TimeoutError as error:
        late = type(error).__name__
    try:
        await asyncio.to_thread(print)
    except NotImplementedError as error:
        unknown = type(error).__name__
    return {
        "statuses": statuses, "texts": texts, "turned": turning.result() == "/c", "late": late, "unknown": unknown,
        "left": left,
    }


async def fail(task: Task):
    closed, denied = task.input["closed"], "https://example.com/"
    match task.input["how"]:
        case "stuck":
            await asyncio.Event().wait()
        case "deep":
            await asyncio.sleep(0)
            raise ValueError("deep")
        case "group":
            async with asyncio.TaskGroup() as group:
                group.create_task(http.send_async(http.Request(denied)))
                group.create_task(asyncio.Event().wait())
        case "urllib":
            urllib.request.urlopen(closed)
        case "urllib-denied":
            urllib.request.urlopen(denied)
        case "requests":
            await requests.request_async("GET", closed)
        case "requests-denied":
            requests.get(denied)
        case "send":
            await http.send_async(http.Request(closed))
        case "send-denied":
            await http.send_async(http.Request(denied))
        case "status":
            requests.get(task.input["base"]).raise_for_status()
        case "verify":
            requests.get(closed, verify=False)
        case "note":
            error = ValueError("no number")
            error.add_note("while reading row 7")
            raise error
        case "many":
            inner = ExceptionGroup("in row 8", [TypeError("no text")])
            inner.add_note("of the second sheet")
            raise ExceptionGroup("bad rows", [KeyError("price"), inner])
        case "details":
            raise Failure("acme_rows", "bad rows", details={"rows": {7}})
    return {
        "list": {"rows": [{"ids": {7}}]},
        "bytes": b"a",
        "date": {"a/b": date(2026, 1, 31)},
        "decimal": Row(Decimal("1.10")),
        "nan": {"share": float("nan")},
        "key": {(1, 2): "a"},
        "part": [[input_part("/how")]],
        "good": {"row": Row([1])},
    }[task.input["how"]]


def web(task: Task):
    base = task.input["base"]

    def open_json(*asked, **more):
        import json

        with urllib.request.urlopen(*asked, **more) as answer:
            return json.load(answer)

    given = {
        "urllib": open_json(f"{base}/json?q=1", timeout=5),
        "urllibPost": open_json(urllib.request.Request(f"{base}/json", data=b"a=b")),
    }
    with urllib.request.urlopen(f"{base}/moved") as answer:
        given["urllibMoved"] = [answer.url, answer.status]
    try:
        urllib.request.urlopen(f"{base}/gone")
    except urllib.error.HTTPError as error:
        given["urllibGone"] = [error.code, error.read().decode()]
    with urllib.request.urlopen(f"{base}/large") as answer:
        given["large"] = [len(answer.read()), len(requests.get(f"{base}/large").text)]
    with urllib.request.urlopen(f"{base}/bytes") as answer:
        given["bytes"] = [answer.read().decode(), requests.get(f"{base}/bytes").text]
    given["get"] = requests.get(f"{base}/json?a=1", params={"b": [2, 3], "c": None}, auth=("u", "p")).json()
    given["post"] = requests.post(f"{base}/json", json={"n": 1}).json()
    with requests.Session() as session:
        given["form"] = session.put(f"{base}/json", data={"n": 1}).json()
    moved = requests.post(f"{base}/moved", json={"n": 1})
    stays = requests.get(f"{base}/moved", allow_redirects=False)
    given["moved"] = [moved.history[0].status_code, moved.url, stays.status_code]
    gone = requests.get(f"{base}/gone")
    given["gone"] = [gone.status_code, gone.ok, gone.text]
    head = requests.head(f"{base}/json")
    given["head"] = [head.status_code, head.text, head.headers["Content-Type"]]

    async def awaited():
        paths = [f"{base}/json?n=0", f"{base}/json?n=1", f"{base}/moved"]
        answers = await asyncio.gather(*(requests.request_async("get", path) for path in paths))
        return [answer.json()["path"] for answer in answers]

    from datetime import datetime

    given["strptime"] = datetime.strptime("29.11.2026", "%d.%m.%Y").date().isoformat()

    async def whole():
        return given | {"awaited": await awaited()}

    return whole()


def values(task: Task):
    """Values that the host takes in another type would end the sandbox without a line of the code."""
    url = task.input["base"]
    kept = http.keep(bytearray(b"abc"), "text/plain")

    def told(call):
        try:
            return call()
        except (TypeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"

    wrong = [
        lambda: file.read_bytes(kept, -1), lambda: file.read_bytes(kept, 0.5), lambda: file.read_bytes(kept, 2**64),
        lambda: file.read_bytes(kept, float("nan")), lambda: file.read_bytes(kept, 0, 2**32),
        lambda: list(file.chunks(kept, -1)), lambda: file.Writer().write("abc"),
        lambda: http.send(http.Request(None)), lambda: http.send(http.Request(url, timeout_ms=-1)),
        lambda: http.send(http.Request(url, headers={"a": 1})), lambda: http.open(http.Request(url), idle_ms=1.5),
        lambda: http.take_response(-1), lambda: queue.next(-1), lambda: log.write("loud", "x"),
        lambda: metrics.measure("x", "one"), lambda: cache.set("k", 1, ttl_ms=-1), lambda: state.set_if("k", 1, 0.5),
        lambda: files.read_text(5), lambda: tools.find(5), lambda: Pause.after(-1), lambda: Pause.after(0.5),
        lambda: Pause.each([], concurrency=-1), lambda: Pause.event(None), lambda: input_part(None),
        lambda: Pause.answer(Question("q", [Choice(1)])), lambda: Failure("a", "b", retry_after_ms=float("nan")),
    ]
    right = [
        file.read_bytes(kept, 2**33).decode(), file.read_bytes(kept, True, 2**32 - 1).decode(),
        Failure("a", "b", retry_after_ms=-1.5).retry_after_ms, Failure("a", "b", retry_after_ms=float("inf")).retry_after_ms,
        "a\ud800b", {"\ud83d\ude00": 1},
    ]
    if task.input.get("how") == "failure":
        raise Failure("half", "a\udc00", retry_after_ms=1.5)
    return {"wrong": [told(call) for call in wrong], "right": right, "part\ud800": input_part("/base")}


Node = pack({"relay.run": run, "relay.ends": ends, "relay.fail": fail, "relay.web": web, "relay.values": values})
