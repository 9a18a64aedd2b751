#!/usr/bin/env python3
"""Measures the project of `flowcell node new`: `sdk/measure/new.py [--runs 5] [--work DIR] [LANGUAGE …]`.

Prints for each language the size of the pack, and in processor time, each as a median:

green    from `node new` with its packages to the end of `node test`, without compiled code of packs
first    the first `node build`, without what zig and Go keep between projects
build    `node build` after a change
compile  a `node run` that compiles the pack, beyond one that finds it compiled
pass     a pass of a `foreach` over 3,000, beyond a `foreach` over none, divided by 3,000

The languages alternate. Needs `flowcell` in PATH, or FLOWCELL, and the tools that `flowcell node build` needs.
"""

import argparse
import json
import pathlib
import shutil

from measured import PROGRAM, measure, median, new_project

CODE = {
    "rust": "src/lib.rs",
    "js": "nodes.js",
    "python": "nodes.py",
    "c": "nodes.c",
    "go": "exports/export_flowcell_node_node/nodes.go",
    "zig": "nodes.zig",
}
PASSES = 3000


def empty(folder: pathlib.Path) -> pathlib.Path:
    """Makes a folder empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def change(project: pathlib.Path, language: str, number: int) -> None:
    """Changes the message of a failure."""
    code = project / CODE[language]
    text = code.read_text()
    changed = text.replace("the name is empty", f"the name is empty{number}", 1)
    assert changed != text
    code.write_text(changed)


def passes(project: pathlib.Path, count: int, cache: pathlib.Path) -> float:
    """Returns the seconds of a run with so many passes."""
    loop = {
        "id": "loop",
        "type": "control.foreach",
        "input": {"list": [f"name {number}" for number in range(count)], "as": "name"},
        "body": {"nodes": [{"id": "greet", "type": "acme.greet", "input": {"name": "{{ name }}"}}], "edges": []},
        "bodyOutput": "{{ greet.text }}",
    }
    flow = {"flow": {"name": "passes", "outputs": {"count": "{{ loop.count }}"}}, "nodes": [loop]}
    (project / "flow.json").write_text(json.dumps(flow))
    command = [PROGRAM, "run", "flow.json", "--quiet", "--store", "memory:", "--packs", "dist"]
    used = measure(command, project, FLOWCELL_CACHE=str(cache))
    assert json.loads(used.output) == {"count": count}, used.output
    return used.seconds


def create(language: str, project: pathlib.Path) -> float:
    """Returns the seconds until the tests of a new project have passed."""
    shutil.rmtree(project, ignore_errors=True)
    seconds = new_project(project, language)
    cache = str(empty(project.parent / "cache"))
    return seconds + measure([PROGRAM, "node", "test"], project, FLOWCELL_CACHE=cache).seconds


def build_all(project: pathlib.Path) -> float:
    """Returns the seconds of a build without anything that was built before."""
    for folder in ("target", "dist"):
        shutil.rmtree(project / folder, ignore_errors=True)
    names = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR", "GOCACHE")
    kept = {name: str(empty(project.parent / name)) for name in names}
    return measure([PROGRAM, "node", "build"], project, **kept).seconds


def use(language: str, project: pathlib.Path, number: int) -> dict[str, float]:
    """Measures the use of a project, and a build after a change."""
    cache = empty(project.parent / "cache")
    run = [PROGRAM, "node", "run", "acme.greet", "-i", "name=Ada", "--packs", "dist"]
    cold = measure(run, project, FLOWCELL_CACHE=str(cache)).seconds
    times = {"compile": cold - measure(run, project, FLOWCELL_CACHE=str(cache)).seconds}
    times["pass"] = (passes(project, PASSES, cache) - passes(project, 0, cache)) / PASSES
    change(project, language, number)
    times["build"] = measure([PROGRAM, "node", "build"], project).seconds
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--new", type=int, default=5, help="how many projects are created")
    options.add_argument("--first", type=int, default=1, help="how many builds begin without anything that was built before")
    options.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/measure"))
    options.add_argument("languages", nargs="*", metavar="LANGUAGE", help=" ".join(CODE))
    given = options.parse_args()
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    languages = given.languages or list(CODE)

    rounds: dict[str, list[dict[str, float]]] = {language: [] for language in languages}
    for number in range(max(given.runs, given.new, given.first)):
        for language in languages:
            project = work / language
            times: dict[str, float] = {}
            if number < given.new:
                times["green"] = create(language, project)
                times["size"] = (project / "dist/acme.wasm").stat().st_size / 2**20
            if number < given.first:
                times["first"] = build_all(project)
            if number < given.runs:
                times.update(use(language, project, number))
            rounds[language].append(times)

    columns = {name: (1, "s") for name in ("green", "first", "build", "compile")}
    columns = {"size": (1, "MiB"), **columns, "pass": (1e3, "ms")}
    print(f"{'':8}" + "".join(f"{name:>10}    " for name in columns))
    for language in languages:
        row = f"{language:8}"
        for name, (factor, unit) in columns.items():
            values = [times[name] for times in rounds[language] if name in times]
            row += f"{median(values) * factor:10.2f} {unit:3}" if values else f"{'':14}"
        print(row)


if __name__ == "__main__":
    main()
