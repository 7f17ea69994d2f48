"""The one place that imports Numba: `jit` compiles a kernel, releases the GIL and caches machine code.

A kernel takes arrays and scalars, keeps its scalars local and lives in one file with its helpers: a cached
kernel does not notice an edit to a helper in another file (docs/style of kernels, rule 5).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile `function` at its first call for each set of argument types.

    No fast-math: a float sum must be the same bytes on every run.
    """
    return cast(F, numba.njit(cache=True, nogil=True)(function))


def inline(function: F) -> F:
    """A helper that is compiled into the kernels of its own file."""
    return cast(F, numba.njit(inline="always")(function))
