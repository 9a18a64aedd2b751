"""Failures of nodes."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from componentize_py_types import Err
from wit_world.imports import types

from .json import parsed, text
from .values import delay, well_formed

#: The exceptions of a group that a failure names, and the levels of groups in groups.
_SHOWN, _DEPTH = 8, 2


class Failure(Exception):
    """The failure of a node. Any other exception becomes a failure with the code `node_failed`.

    The code is stable and in snake_case, such as `acme_quota`; the manifest lists it under `errors`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        retryable: bool = False,
        retry_after_ms: int | None = None,
        details: Any = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable or retry_after_ms is not None
        self.retry_after_ms = delay(retry_after_ms, "retry_after_ms")
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @staticmethod
    def of(told: dict[str, Any]) -> "Failure":
        """Creates a failure from the host's form, such as that of a body: `raise Failure.of(task.woken["error"])`."""
        failure = Failure(
            told["code"], told["message"], retry_after_ms=told.get("retryAfterMs"), details=told.get("details")
        )
        failure.retryable = bool(told.get("retryable"))
        return failure


@contextmanager
def called() -> Iterator[None]:
    """Calls the host and raises its failure as a `Failure`."""
    try:
        yield
    except Err as error:
        raise of_host(error.value) from None


def of_host(failure: types.Failure) -> Failure:
    """Converts a host failure."""
    told = Failure(
        failure.code,
        failure.message,
        retry_after_ms=failure.retry_after_ms,
        details=None if failure.details is None else parsed(failure.details),
    )
    told.retryable = failure.retryable
    return told


def to_host(raised: BaseException) -> types.Failure:
    """Converts any exception into a host failure. Without this, it would end the sandbox as a trap."""
    failure = _failure_in(raised) or _of_exception(raised)
    message = "\n".join([str(failure.message), *_notes(failure)])
    try:
        details = None if failure.details is None else text(failure.details, "the details of the failure")
    except TypeError as error:
        details, message = None, f"{message}\n{error}; they are left out"
    code, message = well_formed(str(failure.code)), well_formed(message)
    return types.Failure(code, message, bool(failure.retryable), failure.retry_after_ms, details)


def _failure_in(raised: BaseException | None) -> Failure | None:
    """Returns the failure that this exception is, that caused it, or that is the first of its group."""
    seen: set[int] = set()
    while raised is not None and id(raised) not in seen:
        if isinstance(raised, Failure):
            return raised
        if isinstance(raised, BaseExceptionGroup):
            return next(filter(None, map(_failure_in, raised.exceptions)), None)
        seen.add(id(raised))
        reason = getattr(raised, "reason", None)
        # `URLError` of `urllib` keeps the exception as its reason.
        raised = raised.__cause__ or (reason if isinstance(reason, BaseException) else None)
    return None


def _of_exception(raised: BaseException) -> Failure:
    return Failure("node_failed", "\n".join([_told(raised), *_notes(raised)]), details={"stack": list(_stack(raised))})


def _told(raised: BaseException, depth: int = 0) -> str:
    """Returns the type and the message of an exception, for a group also those of its exceptions."""
    kind = type(raised)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(raised)
    except Exception:
        message = "<its `__str__` fails>"
    told = f"{name}: {message}" if message else name
    if not isinstance(raised, BaseExceptionGroup) or depth == _DEPTH:
        return told
    inner = [" ".join([_told(one, depth + 1), *_notes(one)]) for one in raised.exceptions[:_SHOWN]]
    if len(raised.exceptions) > _SHOWN:
        inner.append(f"{len(raised.exceptions) - _SHOWN} more")
    return f"{told}: {'; '.join(inner)}" if depth == 0 else f"{told} [{'; '.join(inner)}]"


def _notes(raised: BaseException) -> list[str]:
    notes = getattr(raised, "__notes__", ())
    return [str(note) for note in notes] if isinstance(notes, list | tuple) else []


def _stack(raised: BaseException, depth: int = 0) -> Iterator[str]:
    """Yields the lines of the traceback, and for a group those of its exceptions after it."""
    for part in traceback.format_tb(raised.__traceback__):
        yield from (line.strip() for line in part.splitlines())
    if isinstance(raised, BaseExceptionGroup) and depth < _DEPTH:
        for one in raised.exceptions[:_SHOWN]:
            yield f"{_told(one, _DEPTH)}:"
            yield from _stack(one, depth + 1)
