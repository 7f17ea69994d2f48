"""A physical plan of classic PySpark, copied once into Python: nodes, stages, and replacing what was saved.

The stages are those of the plan before adaptive execution rewrites it: each exchange ends one, and its child is
what the tasks of that stage make. A *cut* is such a child. Surgery replaces it by a scan of saved rows; adaptive
execution then starts from a plan whose lower stages are already there, and may still change what is above them.

Invariant: every question about a node goes to the JVM once, when the copy is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from kedge.errors import UsageError

SHUFFLE, BROADCAST = "ShuffleExchangeExec", "BroadcastExchangeExec"
MARK = "kedge-step:"
_ATTRIBUTES_MAX = 100_000


@dataclass(eq=False, slots=True)
class Node:
    """One operator: `children` are its inputs, `held` are plans inside it (caches, subqueries)."""

    jvm: Any
    kind: str
    text: str
    children: list[Node]
    held: list[Node]

    def walk(self) -> Iterator[Node]:
        """The node and all below it, parents first."""
        yield self
        for child in (*self.children, *self.held):
            yield from child.walk()

    @property
    def step(self) -> str:
        """The name that `kedge.step` gave this point; empty for other nodes."""
        name = str(self.jvm.name()) if self.kind == "CollectMetricsExec" else ""
        return name.removeprefix(MARK) if name.startswith(MARK) else ""

    @property
    def label(self) -> str:
        """What people see."""
        name = self.kind.removesuffix("Exec")
        tables = sorted(
            {part.text.rpartition("/")[2].split("]")[0] for part in self.walk() if "FileSource" in part.kind}
        )
        return f"{name} of {', '.join(tables[:4])}" if tables else name


def seq(values: Any) -> list[Any]:
    """A Scala Seq as a list."""
    return [values.apply(i) for i in range(values.size())]


def kind(node: Any) -> str:
    """The class of a JVM object, without its package."""
    return str(node.getClass().getSimpleName())


def copied(node: Any) -> Node:
    """The plan below a JVM node."""
    name = kind(node)
    held = [copied(subquery.child()) for subquery in seq(node.subqueries())]
    if name == "InMemoryTableScanExec":
        held.append(copied(node.relation().cachedPlan()))
    elif name == "AdaptiveSparkPlanExec":
        held.append(copied(node.initialPlan()))
    children = [copied(child) for child in seq(node.children())]
    text = "" if name == "AdaptiveSparkPlanExec" else str(node.simpleString(_ATTRIBUTES_MAX))  # it tells if it ran
    return Node(node, name, text, children, held)


def classic(df: DataFrame) -> Any:
    """The JVM DataFrame; UsageError where there is none (Spark Connect) or where it streams."""
    if not hasattr(df, "isStreaming"):
        raise UsageError(f"A {type(df).__name__} is not a DataFrame of Spark: pass a pyspark.sql.DataFrame.")
    if df.isStreaming:
        raise UsageError("This is a streaming DataFrame; kedge.resume is for batch queries, use a run for streams.")
    jvm_df = getattr(df, "_jdf", None)
    if jvm_df is None:
        raise UsageError("kedge.resume needs classic PySpark; on Spark Connect use kedge.step(df, name, at=...).")
    return jvm_df


class Planned:
    """The physical plan of a DataFrame, before it runs."""

    def __init__(self, df: DataFrame) -> None:
        self.df = df
        self.session = df.sparkSession
        self.jvm: Any = self.session.sparkContext._jvm  # pyright: ignore[reportPrivateUsage]
        self.jsession: Any = self.session._jsparkSession  # pyright: ignore
        with settings(
            self.session,
            {"spark.sql.maxMetadataStringLength": "100000", "spark.sql.debug.maxToStringFields": "100000"},
        ):
            execution = classic(df).queryExecution()
            top = execution.executedPlan()
            self.adaptive = top if kind(top) == "AdaptiveSparkPlanExec" else None
            self.exchange: dict[int, Node] = {}  # id() of a cut below an exchange -> that exchange
            self.root = copied(top.initialPlan() if self.adaptive is not None else top)

    def cuts(self) -> list[Node]:
        """What may be saved, inputs first: below each exchange, at each mark, and at last the root."""
        found: list[Node] = []

        def visit(node: Node) -> None:
            for child in node.children:
                visit(child)
            made = node.children[0] if node.kind in (SHUFFLE, BROADCAST) else node
            if made is not node:
                self.exchange[id(made)] = node
            if (made is not node or node.step) and made not in found:
                found.append(made)

        visit(self.root)
        return found if self.root in found else [*found, self.root]

    def rebuilt(self, node: Node, scans: Mapping[int, Any]) -> Any:
        """The JVM plan of `node` with the cuts `scans` (by id() of their node) replaced by scans."""
        if id(node) in scans:
            return scans[id(node)]
        after = [self.rebuilt(child, scans) for child in node.children]
        if all(a is b.jvm for a, b in zip(after, node.children, strict=True)):
            return node.jvm
        return node.jvm.withNewChildren(self.jvm.PythonUtils.toSeq(after))

    def static(self, plan: Any) -> Any:
        """A plan made ready to run as it is, with code generation and without adaptive rewriting.

        Adaptive execution must not touch a sub-tree on its own: it would plan the logical node of a partial
        aggregate again, and make the whole aggregate of it.
        """
        execution = getattr(self.jvm.org.apache.spark.sql.execution, "QueryExecution$")
        module: Any = getattr(execution, "MODULE$")
        none = getattr(getattr(self.jvm.scala, "None$"), "MODULE$")
        return module.prepareForExecution(module.preparations(self.jsession, none, False), plan)

    def runnable(self, plan: Any, *, whole: bool) -> Any:
        """The plan to execute: adaptive for the whole query where the session is, static for a part of it."""
        if self.adaptive is None:
            return plan
        if not whole:
            return self.static(plan)
        adaptive = self.jvm.org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec
        old = self.adaptive
        return adaptive(plan, old.context(), old.preprocessingRules(), old.isSubquery(), old.supportsColumnar())


class settings:  # noqa: N801  (used as a with-statement, like a function)
    """Session options for a while."""

    def __init__(self, session: Any, values: Mapping[str, str]) -> None:
        self._session, self._values, self._before = session, values, dict[str, str | None]()

    def __enter__(self) -> None:
        for name, value in self._values.items():
            self._before[name] = self._session.conf.get(name, None)
            self._session.conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                self._session.conf.unset(name)
            else:
                self._session.conf.set(name, value)
