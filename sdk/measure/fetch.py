#!/usr/bin/env python3
"""Measures what it costs to fetch 10 MB in each language with an SDK: `sdk/measure/fetch.py [--runs 5] [--work DIR]`.

Each variant is one flow with one node, run by `flowcell run` in a store of its own. The answer comes from a server in this
process. Prints the processor time of the process, its ratio to that with `http.request`, and the peak memory of the process,
each as a median; `nothing` is a flow with `control.noop`. The variants alternate. Also prints the sizes of the packs.
Projects stay in DIR, `target/measure` by default, with their copies of the SDKs: remove DIR after a change of an SDK.
Needs `flowcell` in PATH, or FLOWCELL, and the tools of Rust, JavaScript and Python that `flowcell node build` needs.
"""

import argparse
import json
import pathlib
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from measured import PROGRAM, measure, median, new_project

CODE = pathlib.Path(__file__).parent / "fetch"
#: 100,000 lines of 100 bytes.
BODY = b"".join(b"%0*d\n" % (99, number) for number in range(100_000))
#: The packs: language, file with the code, and node types.
PACKS = {
    "Rust": ("rust", "rust.rs", ["whole", "chunks", "lines"]),
    "JavaScript, http": ("js", "http.js", ["whole", "chunks", "lines"]),
    "JavaScript, async": ("js", "async.js", ["whole"]),
    "JavaScript, fetch": ("js", "fetch.js", ["whole", "text", "chunks"]),
    "Python, http": ("python", "http.py", ["whole", "chunks", "lines"]),
    "Python, urllib": ("python", "urllib.py", ["whole", "lines"]),
    "Python, async": ("python", "async.py", ["whole"]),
}
FILES = {"rust": "src/lib.rs", "js": "nodes.js", "python": "nodes.py"}


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def build(work: pathlib.Path, name: str) -> pathlib.Path:
    """Builds a pack, and returns its folder. A folder of an earlier call is used again."""
    language, code, types = PACKS[name]
    project = work / code.replace(".", "-")
    packs = project / "dist"
    if not project.exists():
        new_project(project, language)
        shutil.rmtree(project / "cases")
    (project / FILES[language]).write_text((CODE / code).read_text())
    count = {"type": "object", "properties": {"bytes": {"type": "integer"}, "lines": {"type": "integer"}}}
    nodes = [
        {
            "type": f"acme.{each}",
            "title": each,
            "input": {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
            "output": count,
            "capabilities": [{"name": "http", "reason": "to fetch"}],
        }
        for each in types
    ]
    manifest = {"name": "acme", "version": "0.1.0", "nodes": nodes}
    (project / "node.yaml").write_text(json.dumps(manifest))
    measure([PROGRAM, "node", "build"], project)
    return packs


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--work", type=pathlib.Path, default=pathlib.Path("target/measure"))
    options.add_argument("--only", default="", help="only packs whose name has this text")
    given = options.parse_args()
    work = given.work.absolute()
    work.mkdir(parents=True, exist_ok=True)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    fetch = {"input": {"url": f"http://{address}/"}, "grants": {"http": [f"http://{address}"]}}
    variants = {
        "nothing": ({"type": "control.noop"}, None, {}),
        "http.request": ({"type": "http.request", **fetch}, None, {"bytes": "{{ fetch.body.size }}"}),
    }
    counted = {"bytes": "{{ fetch.bytes }}", "lines": "{{ fetch.lines }}"}
    for name, (_, _, types) in PACKS.items():
        if given.only not in name:
            continue
        packs = build(work, name)
        print(f"{name:20} pack {(packs / 'acme.wasm').stat().st_size / 2**20:.2f} MiB")
        for each in types:
            variants[f"{name}, {each}"] = ({"type": f"acme.{each}", **fetch}, packs, counted)

    times: dict[str, list[float]] = {name: [] for name in variants}
    memory: dict[str, list[float]] = {name: [] for name in variants}
    # The first round compiles the packs, and does not count.
    for number in range(given.runs + 1):
        for name, (node, packs, outputs) in variants.items():
            flow = {"flow": {"name": "fetch", "outputs": outputs}, "nodes": [{"id": "fetch", **node}]}
            (work / "flow.json").write_text(json.dumps(flow))
            state = work / "state"
            shutil.rmtree(state, ignore_errors=True)
            command = [PROGRAM, "run", "flow.json", "--quiet", "--state", str(state), "--allow-private", address]
            used = measure(command + (["--packs", str(packs)] if packs else []), work)
            got = json.loads(used.output)
            expected = {key: {"bytes": len(BODY), "lines": BODY.count(b"\n")}[key] for key in outputs}
            if outputs and got != expected:
                raise SystemExit(f"{name}: {got} instead of {expected}")
            if number:
                times[name].append(used.seconds)
                memory[name].append(used.mib)

    host = median(times["http.request"])
    print(f"{'':28} {'CPU':>8} {'spread':>15} {'ratio':>6} {'memory':>8}")
    for name in variants:
        seconds = median(times[name])
        spread = f"{min(times[name]):.2f} to {max(times[name]):.2f}"
        print(f"{name:28} {seconds:6.3f} s {spread:>15} {seconds / host:6.1f} {median(memory[name]):4.0f} MiB")


if __name__ == "__main__":
    main()
