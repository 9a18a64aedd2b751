"""Measurements."""

from collections.abc import Mapping

from wit_world.imports import metrics

from .values import text, well_formed


def measure(name: str, value: float, tags: Mapping[str, object] | None = None) -> None:
    """Records one measurement. A value that is not finite is dropped."""
    named = [(text(key, "tags"), well_formed(str(tag))) for key, tag in (tags or {}).items()]
    metrics.measure(text(name, "name"), float(value), named)
