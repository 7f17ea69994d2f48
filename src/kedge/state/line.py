"""The line of versions: which exist, which one is current, and what happens to them. Pure.

Invariants: numbers ascend and are never reused; the current version is on the line; the versions after it can be
reached forwards until a change diverges, which drops them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import pairwise

from kedge.errors import UsageError


@dataclass(frozen=True)
class Version:
    """One version of everything in a store."""

    number: int
    at_us: int
    cells: int = 0  # changed since the version before it
    bytes: int = 0  # stored for that
    key: str | None = None  # who made it, for callers that must not do a thing twice

    def to_json(self) -> dict[str, int | str | None]:
        """The stored and printed form."""
        return asdict(self)


@dataclass
class Line:
    """The versions that exist, in order, and the current one."""

    versions: dict[int, Version] = field(default_factory=lambda: {0: Version(0, 0)})
    at: int = 0
    next: int = 1

    def numbers(self) -> list[int]:
        """All versions, oldest first."""
        return list(self.versions)

    def later(self) -> list[int]:
        """The versions after the current one: what `forward` can reach."""
        return [number for number in self.versions if number > self.at]

    def check(self, version: int) -> int:
        """`version`, if it exists."""
        if not hasattr(version, "__index__"):
            raise UsageError(f"{version!r} is not a version: pass a number that `checkpoint()` returned.")
        if version not in self.versions:
            numbers = self.numbers()
            raise UsageError(
                f"There is no version {version}: kept are {len(numbers)} from {numbers[0]} to {numbers[-1]}; "
                "`versions()` lists them."
            )
        return version

    def before(self, version: int) -> int | None:
        """The version before this one, if it is kept."""
        older = [number for number in self.versions if number < version]
        return older[-1] if older else None

    def layers(self, start: int, end: int) -> list[int]:
        """The versions whose layers lead from `start` forwards to `end`."""
        return [number for number in self.versions if start < number <= end]

    def add(self, version: Version) -> None:
        """A new current version; what was after the old one must be gone."""
        self.versions[version.number] = version
        self.at, self.next = version.number, version.number + 1

    def drop(self, numbers: Iterable[int]) -> None:
        """Forget versions."""
        for number in numbers:
            del self.versions[number]


def kept(
    line: Line,
    now_us: int,
    *,
    keep: Iterable[int] | None,
    count: int | None,
    age_us: int | None,
    bytes_: int | None,
) -> list[int]:
    """The versions that stay: those named, or allowed by every limit, and always the current one."""
    for limit, name in ((count, "count"), (age_us, "age_seconds"), (bytes_, "bytes")):
        if limit is not None and limit < 0:
            raise UsageError(f"{name} can't be less than 0.")
    numbers = line.numbers()
    stay = set(numbers) if keep is None else {line.check(number) for number in keep}
    if count is not None:
        stay &= set(numbers[-count:] if count > 0 else [])
    if age_us is not None:
        stay = {number for number in stay if line.versions[number].at_us >= now_us - age_us}
    if bytes_ is not None:
        total, allowed = 0, set[int]()
        for number in reversed(numbers):
            total += line.versions[number].bytes
            if total > bytes_:
                break
            allowed.add(number)
        stay &= allowed
    return sorted(stay | {line.at})


def groups(line: Line, stay: list[int]) -> dict[int, list[int]]:
    """For each kept version that has a kept predecessor: the layers that are combined into its own, in order."""
    return {after: line.layers(before, after) for before, after in pairwise(stay)}
