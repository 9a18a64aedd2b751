"""Log lines for people. The results of a flow do not depend on them."""

from wit_world.imports import log
from wit_world.imports.log import Level


def write(level: Level, message: object) -> None:
    """Writes one line to the run's events."""
    log.log(level, str(message))


def debug(message: object) -> None:
    """Writes one line at level `debug`."""
    write(Level.DEBUG, message)


def info(message: object) -> None:
    """Writes one line at level `info`."""
    write(Level.INFO, message)


def warn(message: object) -> None:
    """Writes one line at level `warn`."""
    write(Level.WARN, message)


def error(message: object) -> None:
    """Writes one line at level `error`."""
    write(Level.ERROR, message)
