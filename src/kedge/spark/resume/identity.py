"""What makes an intermediate the same in another process: its plan, its inputs, the options that change results.

Invariants:
- Expression ids, plan ids and subquery numbers are replaced by their order of appearance; the rest of the plan's
  text is kept. Rows that live in the plan and the code of Python functions are part of it by hash.
- Files count with size and modification time, rows from the driver by content. A leaf whose contents can't be told
  (other RDDs, a JDBC table) has no identity, and nothing above it is saved.
- What does not give the same rows twice is named in `unstable`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import xxhash
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kedge.spark.resume import options as session_options
from kedge.spark.resume.functions import fingerprint
from kedge.spark.resume.plan import BROADCAST, SHUFFLE, Node, kind, seq

_IDS = re.compile(r"(plan_id=|id=#|subquery#|dynamicpruning#|#)(\d+)")
_FILE_SCANS = ("FileSourceScanExec",)
_SEEDED = re.compile(r"\b(?:rand|randn|uuid|shuffle|randstr|uniform)\((?:[^()]|\([^()]*\))*\)")
_SEED = re.compile(r"-?\d{10,}")  # drawn, not typed
_LEAVES = ("RangeExec", "InMemoryTableScanExec", "OneRowRelationExec", "EmptyRelationExec")
_RDDS = re.compile(r"\b(\w+RDD)\[\d+\]")
_OF_THE_DRIVER = {"ParallelCollectionRDD", "MapPartitionsRDD", "PythonRDD"}
_LATER = re.compile("dynamicpruning|subquery", re.IGNORECASE)  # filters that are known only while the query runs
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


def of(node: Node, files: Files, *, pinned: bool = False) -> Identity:
    """The identity of what `node` makes; `pinned`: seeds that Spark drew do not count, rows of the first run stay."""
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
        if pinned:
            text = _SEEDED.sub(lambda call: _SEED.sub("seed", call[0]), text)
        lines.append(f"{'  ' * depth}{text}{facts.extra}")
        inputs.update(facts.inputs)
        unknown = unknown or facts.unknown
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
    unknown: str
    unstable: str


def digest(text: str) -> str:
    """A short name for a text."""
    return xxhash.xxh3_64_hexdigest(text.encode())


def _functions(node: Node, jvm: Any) -> tuple[str, str]:
    """The code of the Python functions of a node; and why it can't be told."""
    found = unknown = ""
    stack = seq(node.jvm.expressions())
    while stack:
        expression = stack.pop()
        if kind(expression) in ("PythonUDF", "PythonUDAF", "PythonUDTF"):
            function = expression.func()
            if int(function.broadcastVars().size()):
                unknown = f"{expression.name()} reads a broadcast variable"
            found += f" code={fingerprint(bytes(function.command().toArray(jvm.scala.reflect.ClassTag.Byte())))}"
        stack.extend(seq(expression.children()))
    return found, unknown


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
    """The inputs below scans, each looked up once: files with their sizes and times, rows of the driver by content."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._jvm: Any = session.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        self._conf = session._jsparkSession.sessionState().newHadoopConf()  # pyright: ignore
        self.options = session_options.that_count(session)
        self.seen: dict[str, list[int]] = {}
        self._facts: dict[int, tuple[Node, Facts]] = {}

    def facts(self, node: Node) -> Facts:
        """What `node` adds to identities, asked of the JVM once."""
        if id(node) not in self._facts:
            self._facts[id(node)] = (node, self._asked(node))
        return self._facts[id(node)][1]

    def changed(self) -> list[str]:
        """Those that are not what they were when first seen."""
        return [path for path, was in self.seen.items() if self._look(path) != was]

    def _asked(self, node: Node) -> Facts:
        extra, inputs, unknown = "", dict[str, list[int]](), ""
        if node.kind in _FILE_SCANS:
            inputs = self._listed(node)
        elif node.kind == "LocalTableScanExec":
            extra = f" rows={digest(str(node.jvm.rows().toString()))}"
        elif node.kind == "RDDScanExec":
            extra = self._contents(node)
            unknown = "" if extra else node.text[:80]
        elif not node.children and not node.held and node.kind not in _LEAVES:
            unknown = node.text[:80]
        if node.children and any(word in node.kind for word in ("Python", "Pandas", "Arrow")):
            extra, unknown = _functions(node, self._jvm)
        return Facts(extra, inputs, unknown, _unstable(node))

    def _listed(self, node: Node) -> dict[str, list[int]]:
        """What Spark listed when the DataFrame was made (a cache may hold older rows than the files of today),
        without the partitions of a table that the query does not read."""
        static = [e for e in seq(node.jvm.partitionFilters()) if not _LATER.search(str(e.toString()))]
        to_seq = self._jvm.PythonUtils.toSeq
        found: dict[str, list[int]] = {}
        for folder in seq(node.jvm.relation().location().listFiles(to_seq(static), to_seq([]))):
            for status in seq(folder.files()):
                path = str(status.getPath().toUri().toString())
                found[path] = [int(status.getLen()), int(status.getModificationTime())]
        for path, facts in found.items():
            self.seen.setdefault(path, facts)
        return found

    def _contents(self, node: Node) -> str:
        """A digest of rows that the driver handed over (`createDataFrame` of a list); empty for any other RDD."""
        lineage = _RDDS.findall(str(node.jvm.rdd().toDebugString()))
        if "ParallelCollectionRDD" not in lineage or not set(lineage) <= _OF_THE_DRIVER:
            return ""
        jsession: Any = self._session._jsparkSession  # pyright: ignore
        rows = DataFrame(jsession.internalCreateDataFrame(node.jvm.rdd(), node.jvm.schema(), False), self._session)
        rows = rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))
        try:
            each = rows.select(F.xxhash64(F.monotonically_increasing_id(), *rows.columns).alias("digest"))
            count, digests = each.agg(F.count("*"), F.bit_xor("digest")).collect()[0]
        except AnalysisException:  # maps have no digest
            return ""
        return f" rows={count}:{digests}"

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
