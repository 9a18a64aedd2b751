"""Agent runs: invocations of an agent that people can watch and write to. Needs no grant."""

from typing import Any

from componentize_py_types import Err, Ok
from wit_world.imports import agent

from .failure import called, to_host
from .json import text
from .values import text as plain


def open(about: Any = None) -> str:
    """Begins an agent run and returns its id. A member `inbox`, `{"capacity": n}`, opens an inbox."""
    with called():
        return agent.open(text({} if about is None else about))


def tell(run: str, kind: str, data: Any = None) -> None:
    """Sends an event of an agent run. The kind is `state`, or a name with a dot such as `acme.plan`."""
    with called():
        agent.tell(plain(run, "run"), plain(kind, "kind"), text({} if data is None else data))


def close(run: str, result: Any = None) -> None:
    """Ends an agent run successfully."""
    with called():
        agent.close(plain(run, "run"), Ok(text({} if result is None else result)))


def fail(run: str, error: BaseException) -> None:
    """Ends an agent run with a failure."""
    with called():
        agent.close(plain(run, "run"), Err(to_host(error)))
