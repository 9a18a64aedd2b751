"""Imports at build what functions import when they run: a pack has no files, so its modules are imported at build only."""

import dis
import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import resolve_name
from types import CodeType, FunctionType, ModuleType

#: The folders of the build tool. Other folders of `sys.path` have the code of the project and of its packages.
_OF_THE_TOOL = {"bundled", "python", "world"}
#: The folder of the project. It is the first one that the build tool gets.
_PROJECT = "/0/"
#: Modules that the engine imports by itself when it first needs them: for `strptime`, and for encodings.
_OF_THE_ENGINE = [
    "_strptime", "encodings.ascii", "encodings.cp1252", "encodings.idna", "encodings.iso8859_15", "encodings.latin_1",
    "encodings.utf_16", "encodings.utf_16_le", "encodings.utf_8_sig",
]
_IMPORT = dis.opmap["IMPORT_NAME"]


def preload() -> None:
    """Imports the modules that functions of the project import, and what functions of its packages import of packages.

    What cannot be imported is left out.
    """
    for name in _OF_THE_ENGINE:
        import_module(name)
    seen: set[str] = set()
    while modules := {name: module for name, module in sys.modules.items() if name not in seen and _is_scanned(module)}:
        seen.update(modules)
        functions = [found for found in gc.get_objects() if isinstance(found, FunctionType) and found.__module__ in modules]
        for function in functions:
            spec = modules[function.__module__].__spec__
            for imported in _imports(function.__code__, spec.parent):
                # What packages import only sometimes, such as `asyncio`, would double a pack.
                if spec.origin.startswith(_PROJECT) or imported.split(".")[0] not in sys.stdlib_module_names:
                    # An optional package may be missing, or fail in its own way.
                    with suppress(Exception, SystemExit):
                        import_module(imported)


def _is_scanned(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    # The SDK imports in functions what only some packs need.
    is_of_the_sdk = spec is not None and spec.name.split(".")[0] == __package__
    return isinstance(origin, str) and origin.startswith("/") and origin.split("/")[1] not in _OF_THE_TOOL and not is_of_the_sdk


def _imports(code: CodeType, package: str) -> Iterator[str]:
    """Returns the names of the modules that a function may import."""
    if _IMPORT in code.co_code[::2]:
        loaded = []
        for instruction in dis.get_instructions(code):
            if instruction.opname.startswith("LOAD_"):
                loaded.append(instruction.argval)
            elif instruction.opcode == _IMPORT:
                level, names = loaded[-2:]
                with suppress(ImportError):
                    base = resolve_name("." * level + instruction.argval, package)
                    yield base
                    yield from (f"{base}.{name}" for name in names or ())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _imports(constant, package)
