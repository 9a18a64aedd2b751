"""The pack `conform` in Python."""

import random

from flowcell_sdk import (
    Choice, Failure, Pause, Question, Task, agent, cache, files, http, input_part, log, metrics, model, pack, queue,
    services, state, tools, woken_part,
)

DAY_MS = 86_400_000


def parts(task: Task) -> dict:
    missing = task.input_at("/nothing") is None and task.input_text("/list") is None
    return {
        "text": input_part("/text"),
        "first": task.input_at("/list/0"),
        "bytes": task.input_length("/text"),
        "items": task.input_length("/list"),
        "missing": missing,
    }


def described(task: Task) -> dict:
    info = task.info
    return {
        "config": task.config,
        "node": info["nodeId"],
        "type": info["nodeType"],
        "attempt": info["attempt"],
        "hasBody": info["hasBody"],
        "first": task.state is None and task.woken is None,
    }


def fail(task: Task) -> None:
    given = task.input
    raise Failure(
        given["code"], given["message"], retry_after_ms=given.get("retryAfterMs"), details=given.get("details")
    )


def crash(task: Task) -> None:
    raise LookupError("no such thing")


def no_json(task: Task) -> dict:
    return {"n": float("nan")}


def pause(task: Task) -> dict | Pause:
    woken = task.woken
    if woken is None:
        return waiting(task.input["on"]).remember({"on": task.input["on"]})
    if "error" in woken:
        raise Failure.of(woken["error"])
    value = None if woken["wake"] == "now" else woken_part("/value")
    return {"wake": woken["wake"], "index": woken["index"], "value": value, "remembered": task.state}


def waiting(on: str) -> Pause:
    match on:
        case "now":
            return Pause.now()
        case "after":
            return Pause.after(DAY_MS)
        case "event":
            return Pause.event("ready").or_(Pause.after(1000))
        case "answer":
            return Pause.answer(Question("Which?", choices=["a", Choice("b", "The other")]))
        case "body":
            return Pause.body({"number": 1})
        case "each":
            return Pause.each(input_part("/list"), concurrency=1)
        case _:
            return Pause.flow("double", {"n": 2})


def counted(task: Task) -> dict:
    before = state.get("count")
    version = state.set("count", [1])
    lost = state.set_if("count", [0], None)
    won = state.set_if("count", [1, 2], version)
    return {"before": before, "set": version, "lost": lost, "won": won, "after": state.get("count")}


def cached(task: Task) -> dict:
    before = cache.get("conform")
    cache.set("conform", {"a": 1}, ttl_ms=60_000)
    return {"before": before, "after": cache.get("conform")}


def denied(task: Task) -> dict:
    try:
        return cache.get("conform")
    except Failure as failure:
        if not task.input.get("catch"):
            raise
        return {"code": failure.code, "retryable": failure.retryable}


def tell(task: Task) -> None:
    log.debug("one")
    log.info("two")
    log.warn("three")
    log.error("four")
    metrics.measure("conform_size", 1.5, {"unit": "kg"})


def requests(task: Task) -> dict:
    url = "https://api.example.com"
    answer = http.send(http.Request(f"{url}/orders", method="POST", json={"n": 1}))
    a, b = http.start_send(http.Request(f"{url}/a")), http.start_send(http.Request(f"{url}/b"))
    ends = {event.call: event for event in (arriving(), arriving())}
    return {
        "status": answer.status,
        "type": dict(answer.headers)["content-type"],
        "id": answer.json()["id"],
        "a": http.take_response(a).text,
        "b": {"code": ends[b].failure.code, "retryable": ends[b].failure.retryable},
        "kept": http.keep(b"\1\2", "application/x-conform")["kind"],
    }


def streams(task: Task) -> dict:
    def opened(path: str) -> http.Answer:
        return http.open(http.Request(f"https://api.example.com/{path}"))

    answer = opened("events")
    events = [[event.name, event.data, event.id, event.retry_ms] for event in answer.events()]
    lines = list(opened("lines").lines())
    size = sum(map(len, opened("chunks")))
    with opened("left") as whole:
        left = next(whole.lines())
    try:
        opened("broken")
    except Failure as failure:
        broken = {"code": failure.code, "retryable": failure.retryable}
    return {
        "status": answer.status,
        "type": dict(answer.headers)["content-type"],
        "events": events,
        "lines": lines,
        "chunks": size,
        "left": left,
        "broken": broken,
    }


def arriving() -> queue.Event:
    event = queue.next()
    if event is None:
        raise RuntimeError("nothing arrives")
    return event


def notes(task: Task) -> dict:
    size = files.write_text("notes/a.txt", "one")
    text = files.read_text("notes/a.txt")
    [first] = files.list("notes")
    return {
        "size": size,
        "text": text,
        "first": {"path": first.path, "kind": first.kind, "size": first.size, "modifiedMs": first.modified_ms},
        "absent": files.stat("notes/b.txt") is None,
        "removed": files.remove("notes/a.txt"),
    }


def asked(task: Task) -> dict:
    request = {"messages": [{"role": "user", "content": "Hello?"}]}
    reply = model.generate(request)
    later = ended(model.start_generate(request)).value
    uses = [use["name"] for use in model.tool_uses_of(reply)]
    return {"text": model.text_of(reply), "uses": uses, "later": model.text_of(later)}


def ended(call: int) -> queue.Ended:
    event = arriving()
    if not isinstance(event, queue.Ended) or event.call != call:
        raise RuntimeError("another call has ended")
    return event


def called(task: Task) -> dict:
    found = [tool["tool"] for tool in tools.find("data.*")]
    output = tools.call("data.set", {"object": {}, "path": "a", "value": 1})
    later = ended(tools.start_call("data.pick", {"object": {}, "keys": []})).failure.code
    return {"found": found, "called": output, "later": later}


def served(task: Task) -> dict:
    calls = [services.start_call("img", [[], "A cat"], call_id="cat"), services.start_call("agent", ["Hello?"])]
    ends = {event.call: event.value for event in (arriving(), arriving())}
    cat, hello = (ends[call] for call in calls)
    return {
        "ids": [cat["callId"], hello["callId"]],
        "ok": [cat["ok"], hello["ok"]],
        "made": cat["result"],
        "refused": hello["error"]["code"],
    }


def listening(task: Task) -> dict:
    run = agent.open({"inbox": {"capacity": 4}})
    agent.tell(run, "conform.plan", {"step": 1})
    heard = []
    while isinstance(event := arriving(), queue.Message):
        heard.append(event.value)
    agent.close(run, {"result": "done"})
    agent.fail(agent.open(), Failure("given_up", "this one fails"))
    return {"heard": heard, "closing": isinstance(event, queue.Closing)}


Node = pack({
    "conform.parts": parts,
    "conform.task": described,
    "conform.fail": fail,
    "conform.crash": crash,
    "conform.no_json": no_json,
    "conform.random": lambda task: random.random(),
    "conform.pause": pause,
    "conform.state": counted,
    "conform.cache": cached,
    "conform.denied": denied,
    "conform.tell": tell,
    "conform.http": requests,
    "conform.stream": streams,
    "conform.files": notes,
    "conform.model": asked,
    "conform.tools": called,
    "conform.services": served,
    "conform.agent": listening,
})
