"""What makes an intermediate the same in another process: its plan, its inputs, the options that change results.

Invariants:
- Expression ids, plan ids and subquery numbers are replaced by their order of appearance; the rest of the plan's
  text is kept. Rows that live in the plan and the code of Python functions are part of it by hash.
- Files count with size and modification time. A leaf whose contents can't be told (rows from the driver's RDDs, a
  JDBC table) has no identity, and nothing above it is saved.
- What does not give the same rows twice is named in `unstable`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import xxhash
from pyspark.sql import SparkSession

from kedge.spark.resume import options as session_options
from kedge.spark.resume.plan import BROADCAST, SHUFFLE, Node, kind, seq

_IDS = re.compile(r"(plan_id=|id=#|subquery#|dynamicpruning#|#)(\d+)")
_FILE_SCANS = ("FileSourceScanExec",)
_LEAVES = (
    *_FILE_SCANS,
    "RangeExec",
    "LocalTableScanExec",
    "InMemoryTableScanExec",
    "OneRowRelationExec",
    "EmptyRelationExec",
)
_ORDERED = (
    "WindowExec",
    "GlobalLimitExec",
    "LocalLimitExec",
    "CollectLimitExec",
    "TakeOrderedAndProjectExec",
    "SampleExec",
)
_ORDERED_TEXT = re.compile(
    r"\b(?:partial_|merge_)?(first|last|any_value|collect_list|collect_set|mode|max_by|min_by|"
    r"approx_\w+|percentile\w*|listagg|string_agg)\("
)


@dataclass(frozen=True, slots=True)
class Identity:
    """The same `id`: the same rows. The rest says what changed when it is another."""

    id: str
    plan: str
    inputs: dict[str, list[int]]
    options: dict[str, str]
    unknown: str
    unstable: str

    def to_json(self) -> dict[str, Any]:
        """What the ledger keeps."""
        return {"plan": self.plan, "inputs": self.inputs, "options": self.options}


def of(node: Node, files: Files) -> Identity:
    """The identity of what `node` makes."""
    lines: list[str] = []
    inputs: dict[str, list[int]] = {}
    names: dict[str, str] = {}
    unknown = unstable = ""

    def ordinal(match: re.Match[str]) -> str:
        return match[1] + names.setdefault(f"{match[1] != '#'}{match[2]}", str(len(names)))

    def visit(part: Node, depth: int) -> None:
        nonlocal unknown, unstable
        facts = files.facts(part)
        text = _IDS.sub(ordinal, part.text)
        lines.append(f"{'  ' * depth}{text}{facts.extra}")
        inputs.update(facts.inputs)
        if not part.children and not part.held and part.kind not in _LEAVES:
            unknown = unknown or text[:80]
        unstable = unstable or facts.unstable
        for below in (*part.children, *part.held):
            visit(below, depth + 1)

    visit(node, 0)
    options = files.options
    plan = digest("\n".join(lines))
    whole = digest(json.dumps([plan, inputs, options], sort_keys=True))
    return Identity(whole, plan, inputs, options, unknown, unstable)


@dataclass(frozen=True, slots=True)
class Facts:
    """What one node adds to the identity of everything above it."""

    extra: str
    inputs: dict[str, list[int]]
    unstable: str


def digest(text: str) -> str:
    """A short name for a text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def _extra(node: Node) -> str:
    """What a node's own text leaves out: rows in the plan, code of functions."""
    if node.kind == "LocalTableScanExec":
        return f" rows={digest(str(node.jvm.rows().toString()))}"
    found = ""
    if "Python" in node.kind or "Pandas" in node.kind or "Arrow" in node.kind:
        stack = seq(node.jvm.expressions())
        while stack:
            expression = stack.pop()
            if kind(expression) in ("PythonUDF", "PythonUDAF"):
                command = expression.func().command()
                found += f" code={command.size()}:{command.hashCode()}"
            stack.extend(seq(expression.children()))
    return found


def _unstable(node: Node) -> str:
    for expression in seq(node.jvm.expressions()):
        if not expression.deterministic():
            return str(expression.toString())[:120]
    return ""


def order_matters(node: Node) -> bool:
    """Whether the rows of one attempt may differ from another's, though each attempt is right.

    Above an exchange rows arrive in any order. Then a limit, a rank among equals, the first of a group, or a float
    sum that decides a partition makes partitions of different attempts unfit to be mixed.
    """
    parts = list(node.walk())
    if not any(part.kind in (SHUFFLE, BROADCAST) for part in parts):
        return False
    return any(
        part.kind in _ORDERED
        or "Python" in part.kind
        or "Pandas" in part.kind
        or _ORDERED_TEXT.search(part.text)
        or (part.kind == SHUFFLE and (_float_key(part) or "RoundRobin" in part.text))
        for part in parts
    )


def _float_key(shuffle: Node) -> bool:
    keys = [key for partitioning in seq(shuffle.jvm.expressions()) for key in seq(partitioning.children())]
    return any(str(key.dataType().typeName()) in ("double", "float") for key in keys)


class Files:
    """The files below scans with their sizes and times, each looked up once; `again` looks afresh."""

    def __init__(self, session: SparkSession) -> None:
        self._jvm: Any = session.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        self._conf = session._jsparkSession.sessionState().newHadoopConf()  # pyright: ignore
        self.options = session_options.that_count(session)
        self.seen: dict[str, list[int]] = {}
        self._facts: dict[int, tuple[Node, Facts]] = {}

    def facts(self, node: Node) -> Facts:
        """What `node` adds to identities, asked of the JVM once."""
        if id(node) not in self._facts:
            inputs = self._listed(node.jvm.relation().location()) if node.kind in _FILE_SCANS else {}
            facts = Facts(_extra(node), inputs, _unstable(node))
            self._facts[id(node)] = (node, facts)
        return self._facts[id(node)][1]

    def changed(self) -> list[str]:
        """Those that are not what they were when first seen."""
        return [path for path, was in self.seen.items() if self._look(path) != was]

    def _listed(self, index: Any) -> dict[str, list[int]]:
        """What Spark listed when the DataFrame was made: a cache may hold older rows than the files of today."""
        found: dict[str, list[int]] = {}
        if kind(index) == "InMemoryFileIndex":
            for status in seq(index.allFiles()):
                path = str(status.getPath().toUri().toString())
                found[path] = [int(status.getLen()), int(status.getModificationTime())]
        else:
            for name in index.inputFiles():
                found[str(name)] = self.seen.get(str(name)) or self._look(str(name))
        for path, facts in found.items():
            self.seen.setdefault(path, facts)
        return found

    def _look(self, path: str) -> list[int]:
        name = self._jvm.org.apache.hadoop.fs.Path(self._jvm.java.net.URI(path))
        try:
            status = name.getFileSystem(self._conf).getFileStatus(name)
        except Exception as error:  # a file that is gone is a change, not a failure here
            if "FileNotFound" not in str(error):
                raise
            return [-1, -1]
        return [int(status.getLen()), int(status.getModificationTime())]


def differences(was: dict[str, Any], now: Identity) -> str:
    """In words: why an intermediate of an earlier run is not the one of this query."""
    if was["inputs"] != now.inputs:
        gone = sorted(set(was["inputs"]) - set(now.inputs))
        new = sorted(set(now.inputs) - set(was["inputs"]))
        other = sorted(p for p in set(was["inputs"]) & set(now.inputs) if was["inputs"][p] != now.inputs[p])
        told = [f"{path} is gone" for path in gone] + [f"{path} is new" for path in new]
        for path in other:
            (size, _), (size_now, _) = was["inputs"][path], now.inputs[path]
            told.append(
                f"{path} changed ({size} -> {size_now} bytes)" if size != size_now else f"{path} was written again"
            )
        return "; ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
    for name in sorted(set(was["options"]) | set(now.options)):
        before, after = was["options"].get(name, "unset"), now.options.get(name, "unset")
        if before != after:
            return f"the option {name} changed from {before} to {after}"
    return "the query changed"
