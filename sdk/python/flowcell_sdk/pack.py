"""A pack: node types by their names."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports import types

from .failure import Failure, to_host as failed
from .step import to_host as answered
from .task import Task

#: A node type's function. It gives a value that JSON can say, which may have parts of what was given as members, a part, or a
#: pause.
Run = Callable[[Task[Any]], Any]


def pack(runs: Mapping[str, Run]) -> type[exports.Node]:
    """The class that the module calls `Node`."""

    class Node(exports.Node):
        def run(self, node_type: str) -> types.Step:
            try:
                task: Task[Any] = Task()
                _seed(task)
                if node_type not in runs:
                    raise Failure("unknown_node_type", f"this pack has no code for `{node_type}`")
                return answered(runs[node_type](task))
            # `sys.exit` among it.
            except BaseException as raised:
                raise Err(failed(raised)) from raised

    return Node


def _seed(task: Task[Any]) -> None:
    """The module's own seed was fixed when the pack was built."""
    random = sys.modules.get("random")
    if random is not None:
        random.seed(str(task.info["seed"]))
