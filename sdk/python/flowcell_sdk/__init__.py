"""Write Flowcell node types in Python.

A node type is a function and an entry in `node.yaml`:

    from flowcell_sdk import Task, pack

    def greet(task: Task) -> dict:
        return {"text": f"Hello {task.input['name']}"}

    Node = pack({"acme.greet": greet})

`componentize-py` finds the pack by its name, `Node`. The modules of this package are the host's capabilities. Their functions
raise a `Failure`, which is `denied` unless the manifest requests the capability.
"""

from . import agent, cache, file, files, http, log, metrics, model, queue, services, state, tools
from .failure import Failure
from .pack import pack
from .step import Choice, Part, Pause, Question, input_part, woken_part
from .task import Info, Task, Woken

__all__ = [
    "Choice", "Failure", "Info", "Part", "Pause", "Question", "Task", "Woken", "agent", "cache", "file", "files",
    "http", "input_part", "log", "metrics", "model", "pack", "queue", "services", "state", "tools", "woken_part",
]
