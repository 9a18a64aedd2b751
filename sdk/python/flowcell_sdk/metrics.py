"""Measurements."""

from collections.abc import Mapping

from wit_world.imports import metrics


def measure(name: str, value: float, tags: Mapping[str, object] | None = None) -> None:
    """Records one measurement. A value that is not finite is dropped."""
    metrics.measure(name, value, [(key, str(tag)) for key, tag in (tags or {}).items()])
