"""The processor time and the peak memory of commands."""

import os
import pathlib
import shutil
import statistics
import subprocess
from typing import NamedTuple

PROGRAM = os.path.abspath(os.environ["FLOWCELL"]) if "FLOWCELL" in os.environ else shutil.which("flowcell") or "flowcell"
median = statistics.median


class Used(NamedTuple):
    #: The seconds in user and system mode of the process and of the processes that it has waited for.
    seconds: float
    #: The largest resident set of one of these processes.
    mib: float
    output: str


def measure(command: list[str], folder: pathlib.Path, **variables: str) -> Used:
    """Runs a command, which has to succeed."""
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        # Standard error is short, so the pipe holds all of it.
        output = process.stdout.read()
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}\n{output}{errors}")
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, output)


def new_project(project: pathlib.Path, language: str) -> float:
    """Creates a project with what it needs. Returns the seconds of processor time."""
    command = [PROGRAM, "node", "new", "acme", "--lang", language, "--dir", str(project)]
    seconds = measure(command, project.parent).seconds
    if language in ("js", "ts"):
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefer-offline"]
        seconds += measure(install, project).seconds
    return seconds
