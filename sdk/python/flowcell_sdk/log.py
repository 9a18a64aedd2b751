"""Log lines for people. The results of a flow do not depend on them."""

from wit_world.imports import log
from wit_world.imports.log import Level

from .values import well_formed, wrong


def write(level: Level, message: object) -> None:
    """Writes one line to the run's events."""
    if not isinstance(level, Level):
        raise wrong(level, "level", "a `Level`")
    log.log(level, well_formed(str(message)))


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
