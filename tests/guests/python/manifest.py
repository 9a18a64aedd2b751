"""Appends a manifest to a component, as its last custom section: python3 manifest.py FILE.wasm node.yaml"""

import pathlib
import sys


def leb(number):
    """An unsigned LEB128."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + leb(rest) if rest else bytes([low])


component, manifest = sys.argv[1:]
name = b"flowcell:manifest"
content = leb(len(name)) + name + pathlib.Path(manifest).read_bytes()
with open(component, "ab") as file:
    file.write(b"\0" + leb(len(content)) + content)
