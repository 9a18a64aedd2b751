"""A pack: node types by name."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types

from .failure import Failure, to_host as failed
from .preload import preload
from .step import to_host as answered
from .task import Task

#: The function of a node type. It returns a JSON value, which may have parts as members, a part, or a pause. With
#: `async def` it may await the ends of calls.
Run = Callable[[Task[Any]], Any]


def pack(runs: Mapping[str, Run]) -> type[exports.Node]:
    """Creates the class that the module must call `Node`."""
    preload()
    if "asyncio" in sys.modules or any(map(inspect.iscoroutinefunction, runs.values())):
        # `asyncio` is a tenth of a pack, so only packs that use it have it.
        from . import loop  # noqa: F401
    if "http.client" in sys.modules:
        from . import web

        web.install()

    class Node(exports.Node):
        def run(self, node_type: str) -> types.Step:
            try:
                task: Task[Any] = Task()
                _seed(task)
                if node_type not in runs:
                    raise Failure("unknown_node_type", f"this pack has no code for `{node_type}`")
                return answered(_finished(runs[node_type](task)))
            # This includes `sys.exit`.
            except BaseException as raised:
                raise Err(failed(raised)) from raised

    return Node


def _finished(answer: Any) -> Any:
    if not inspect.iscoroutine(answer):
        return answer
    loop = sys.modules.get(f"{__package__}.loop")
    if loop is None:
        answer.close()
        raise TypeError("the function returns a coroutine: declare it with `async def`, or import `asyncio` in the module")
    return loop.run(answer)


def _seed(task: Task[Any]) -> None:
    """Seeds `random` with the task's seed. The module's own seed was fixed when the pack was built."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed(str(task.info["seed"]))
