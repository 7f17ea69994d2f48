"""What a Python function of a plan does, as a short name that is the same in every process.

Spark holds a function as the bytes of its pickle. Those differ between processes although the function does not
(sets have no order, classes of the main program get random names), and they are the same although it does when the
function lives in a module, because then only its name is pickled. So the driver, whose own bytes they are, reads
them back and the *code* is digested: instructions, constants, defaults, closures, and the functions, classes and
values that the code names, in whatever module of the user's they stand. Line numbers and comments do not count.
Of an installed package the name and version count, not its code.
"""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from typing import Any, cast

import xxhash
from pyspark import cloudpickle

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_CODE_MAX = 10_000  # parts of one function; what is larger counts by its pickle


def fingerprint(command: bytes) -> str:
    """A digest of the function whose pickle Spark holds."""
    try:
        found: Any = cloudpickle.loads(command)
    except Exception:  # what can't be read here counts by its bytes: rather another function than the wrong one
        return xxhash.xxh3_64_hexdigest(command)
    text = "\n".join(_Walk().lines(found))
    return xxhash.xxh3_64_hexdigest(text.encode("utf-8", "surrogatepass"))


class _Walk:
    """One digest; each object is described once, and by its number when it comes again."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}

    def lines(self, value: Any) -> Iterator[str]:
        """The parts that make `value` what it is, in an order that is the same in every process."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)) or value is Ellipsis:
            yield f"{type(value).__name__}:{value!r}"
            return
        if id(value) in self._seen:
            yield f"again:{self._seen[id(value)][0]}"
            return
        self._seen[id(value)] = (len(self._seen), value)
        if len(self._seen) > _CODE_MAX:
            yield f"pickle:{_pickled(value)}"
        elif isinstance(value, types.CodeType):
            yield from self._code(value)
        elif isinstance(value, types.ModuleType):
            yield f"module:{value.__name__}:{_version(value.__name__)}"
        elif isinstance(value, types.FunctionType):
            yield from self._function(value)
        elif isinstance(value, types.MethodType):
            yield from self._all("method", [value.__func__, value.__self__])
        elif isinstance(value, type):
            yield from self._class(value)
        elif isinstance(value, (list, tuple)):
            yield from self._all(type(value).__name__, cast(list[Any], value))
        elif isinstance(value, (set, frozenset)):
            members = ["\n".join(_Walk().lines(each)) for each in cast(set[Any], value)]
            yield f"set:{sorted(members)}"
        elif isinstance(value, Mapping):
            yield from self._all("map", [each for pair in cast(Any, value).items() for each in pair])
        else:
            yield from self._object(value)

    def _all(self, kind: str, values: Any) -> Iterator[str]:
        yield f"{kind}:{len(values)}"
        for each in values:
            yield from self.lines(each)

    def _code(self, code: types.CodeType) -> Iterator[str]:
        yield f"code:{code.co_code.hex()}:{code.co_flags}:{code.co_argcount}:{code.co_names}:{code.co_varnames}"
        yield from self._all("constants", code.co_consts)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        if _installed(function.__module__):
            yield f"function:{function.__module__}.{function.__qualname__}:{_version(function.__module__)}"
            return
        yield from self._code(function.__code__)
        yield from self._all("defaults", [function.__defaults__, function.__kwdefaults__])
        for cell in function.__closure__ or ():
            try:
                yield from self.lines(cell.cell_contents)
            except ValueError:
                yield "empty"
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                named = function.__globals__[name]
                yield f"global:{name}"
                yield from self.lines(named)
                if isinstance(named, types.ModuleType) and not _installed(named.__name__):
                    yield from self._of_module(named, function.__code__)

    def _of_module(self, module: types.ModuleType, code: types.CodeType) -> Iterator[str]:
        """What the code takes from a module of the user's: `helpers.rate(x)`."""
        for name in sorted(_names(code) & set(vars(module))):
            yield f"from:{module.__name__}.{name}"
            yield from self.lines(vars(module)[name])

    def _class(self, kind: type) -> Iterator[str]:
        yield f"class:{kind.__qualname__}:{_version(kind.__module__)}"
        if not _installed(kind.__module__):
            for base in kind.__bases__:
                yield from self.lines(base)
            for name, value in sorted(vars(kind).items()):
                if name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__"):
                    yield f"member:{name}"
                    yield from self.lines(value)

    def _object(self, value: Any) -> Iterator[str]:
        kind: type = type(value)
        yield f"object:{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, (staticmethod, classmethod)):
            yield from self.lines(cast(Any, value).__func__)
        elif isinstance(value, property):
            yield from self._all("property", [value.fget, value.fset, value.fdel])
        elif not _installed(kind.__module__):
            yield from self.lines(kind)
            yield from self.lines(dict(sorted(getattr(value, "__dict__", {}).items())))
        elif isinstance(value, (types.BuiltinFunctionType, types.GetSetDescriptorType, types.MemberDescriptorType)):
            yield str(value.__qualname__)
        else:
            yield f"pickle:{_pickled(value)}"


def _names(code: types.CodeType) -> set[str]:
    """The names that code and the code inside it use."""
    inside = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inside)


def _pickled(value: Any) -> str:
    try:
        return xxhash.xxh3_64_hexdigest(cloudpickle.dumps(value))
    except Exception:  # a lock, an open file: its type has to do
        return "none"


def _installed(module: str | None) -> bool:
    """Whether a module came with Python or was installed, so that its version tells what it does."""
    if not module or module == "__main__":
        return False
    if module.partition(".")[0] in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or file.startswith(_INSTALLED)


def _version(module: str | None) -> str:
    if not module or not _installed(module):
        return ""
    try:
        return importlib.metadata.version(module.partition(".")[0])
    except importlib.metadata.PackageNotFoundError:
        return ""
