"""Parses expressions: the metrics that they name, and the operands of their comparisons."""

from __future__ import annotations

from collections.abc import Iterator

import promql_parser
from promql_parser import AggregateExpr, BinaryExpr, Call, Expr, NumberLiteral, ParenExpr, StringLiteral, VectorSelector

COMPARISONS = frozenset({"==", "!=", ">", "<", ">=", "<="})
SETS = frozenset({"and", "or", "unless"})


def selectors(expression: str) -> list[VectorSelector]:
    """Every selector in the expression."""
    found: list[VectorSelector] = []

    def visit(node: Expr) -> bool:
        if isinstance(node, VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(expression), visit)
    return found


def metric_names(expression: str) -> set[str]:
    """Names of the series that the expression reads."""
    return {selector.name for selector in selectors(expression) if selector.name is not None}


def operands(expression: str) -> list[str]:
    """The operands that the expression compares or joins, without the comparisons: these must return data even if no alert fires."""
    return [str(operand) for operand in _operands(promql_parser.parse(expression))]


def _operands(node: Expr) -> Iterator[Expr]:
    if isinstance(node, ParenExpr):
        yield from _operands(node.expr)
    elif not _decides(node):
        if not isinstance(node, NumberLiteral | StringLiteral):
            yield node
    elif isinstance(node, BinaryExpr):
        yield from _operands(node.lhs)
        yield from _operands(node.rhs)
    elif isinstance(node, AggregateExpr):
        yield from _operands(node.expr)
    elif isinstance(node, Call):
        for argument in node.args:
            yield from _operands(argument)
    else:
        raise AssertionError(f"not looked into: {node}")


def _decides(node: Expr) -> bool:
    """Whether the expression contains a comparison, a set operation or absent(), and may therefore be empty."""
    found = False

    def visit(inner: Expr) -> bool:
        nonlocal found
        found |= isinstance(inner, BinaryExpr) and str(inner.op) in COMPARISONS | SETS
        found |= isinstance(inner, Call) and inner.func.name == "absent"
        return not found

    promql_parser.walk(node, visit)
    return found
