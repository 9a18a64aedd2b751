"""The pack `figures`, written against the WIT alone."""

import json
import statistics

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import cache, context, log, metrics
from wit_world.imports.context import Part
from wit_world.imports.types import (
    Failure, FanOut, Output_Object, Pause, Source_Input, Source_Json, Source_Woken, Step_Done, Step_Pause, Wake_Body,
    Wake_Each,
)


# The class bears the exported interface's name: the tool finds it by that.
class Node(exports.Node):
    def run(self, node_type):
        try:
            if node_type not in TYPES:
                raise failure("unknown_node_type", f"this pack has no code for `{node_type}`")
            return TYPES[node_type](**read(Part.INPUT))
        except Err:
            raise
        # What is no `Err` would end the sandbox as a trap.
        except Exception as error:
            raise failure("exception", f"{type(error).__name__}: {error}") from error


def describe(numbers):
    """Tells the middle and the spread of some numbers. Of too few there is none: statistics raises."""
    log.log(log.Level.INFO, f"describing {len(numbers)} numbers")
    metrics.measure("figures_numbers", len(numbers), [("type", "describe")])
    return done(
        mean=as_json(statistics.mean(numbers)),
        median=as_json(statistics.median(numbers)),
        deviation=as_json(round(statistics.stdev(numbers), 3)),
        numbers=Source_Input("/numbers"),
    )


def remember(key, value):
    """Gives what was kept under a key, or keeps the value."""
    kept = cache.get(key)
    if kept is None:
        cache.set(key, json.dumps(value), 60_000)
    return done(value=as_json(value) if kept is None else Source_Json(kept), fresh=as_json(kept is None))


def until(goal):
    """Runs its body, which gives a number, until the numbers add up to the goal."""
    state, woken = read(Part.STATE) or {"total": 0, "passes": 0}, read(Part.WOKEN)
    if woken is not None:
        handed_on(woken)
        state = {"total": state["total"] + woken["value"], "passes": state["passes"] + 1}
    if state["total"] >= goal:
        return done(total=as_json(state["total"]), passes=as_json(state["passes"]))
    return Step_Pause(Pause([Wake_Body(as_json(state))], json.dumps(state)))


def each(numbers):
    """Runs its body for each number, two at a time, and gives what became of them."""
    if read(Part.WOKEN) is None:
        return Step_Pause(Pause([Wake_Each(FanOut(Source_Input("/numbers"), 2, False))], "null"))
    handed_on(read(Part.WOKEN))
    return done(results=Source_Woken("/value"))


TYPES = {"figures.describe": describe, "figures.each": each, "figures.remember": remember, "figures.until": until}


def read(part):
    """A part of the task; None: there is no such part."""
    text = context.get_json(part, "")
    return None if text is None else json.loads(text)


def done(**members):
    return Step_Done(Output_Object(list(members.items())))


def as_json(value):
    return Source_Json(json.dumps(value))


def failure(code, message, retryable=False, retry_after_ms=None, details=None):
    return Err(Failure(code, message, retryable, retry_after_ms, details))


def handed_on(woken):
    """The failure of a body becomes this node's own."""
    if "error" in woken:
        error = woken["error"]
        details = json.dumps(error["details"]) if "details" in error else None
        raise failure(error["code"], error["message"], error["retryable"], error.get("retryAfterMs"), details)
