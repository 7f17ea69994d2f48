"""Generated kernels on this host: a private directory of source files, beside which Numba keeps machine code.

Invariants:
- The directory belongs to this user and has mode 0700; one that others may write is not used. Numba's index is a
  pickle, so nothing is ever loaded from a run's directory.
- A file is named by the hash of its content and never changes; a second process loads its machine code.

This is code of this process rather than data of a run, so it lives on the real file system whatever the host is.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import stat
import sys
import tempfile
import threading
from types import ModuleType

import xxhash

from kedge.errors import UsageError

_modules: dict[str, ModuleType] = {}
_lock = threading.Lock()


def load(text: str) -> ModuleType:
    """The module with this source; at most one per process and content."""
    name = f"kedge_kernel_{xxhash.xxh3_128_hexdigest(text.encode())}"
    with _lock:
        if name not in _modules:
            _modules[name] = _import(name, _write(directory(), f"{name}.py", text.encode()))
        return _modules[name]


def directory() -> str:
    """This user's cache: KEDGE_CACHE_DIR, else XDG_CACHE_HOME or ~/.cache, else the temporary directory."""
    given = os.environ.get("KEDGE_CACHE_DIR")
    if given:
        return _private(os.path.join(given, "kernels"))
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        return _private(os.path.join(home, "kedge", "kernels"))
    except (OSError, UsageError):
        return _private(os.path.join(tempfile.gettempdir(), f"kedge-{os.getuid()}", "kernels"))


def _private(path: str) -> str:
    """Make `path` and check that nobody else can put code there."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    if not os.path.isdir(path):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UsageError(
            f"{path} must be a directory of this user with mode 0700. Correct it, or set KEDGE_CACHE_DIR."
        )
    return path


def _write(folder: str, name: str, content: bytes) -> str:
    path = os.path.join(folder, name)
    try:
        with open(path, "rb") as file:
            if file.read() == content:
                return path
    except FileNotFoundError:
        pass
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".tmp-")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
    return path


def _import(name: str, path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
