"""Counts the work of a call instead of timing it, so that the result is the same on every machine.

Counted are calls of Python and C functions, and the elements that numpy reads from wrapped arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Counted(np.ndarray[Any, Any]):
    """An array that counts the elements read from it and from every array derived from it."""

    num_elements = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.num_elements += max((one.size for one in inputs if isinstance(one, np.ndarray)), default=0)
        plain = [one.view(np.ndarray) if isinstance(one, Counted) else one for one in inputs]
        if (out := options.get("out")) is not None:
            options["out"] = tuple(one.view(np.ndarray) if isinstance(one, Counted) else one for one in out)
        result = getattr(ufunc, method)(*plain, **options)
        return result.view(Counted) if isinstance(result, np.ndarray) else result


def counted(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, with reads counted."""
    return array.view(Counted)


def operations_of(function: Callable[[], object]) -> int:
    """Run the function; returns the number of calls made and elements read."""
    num_calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    Counted.num_elements = 0
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return num_calls + Counted.num_elements


def assert_linear(prepare: Callable[[int], Callable[[], object]], *sizes: int) -> None:
    """Assert linear cost. ``prepare(n)`` returns a call with n times the input; doubling n may take little more than twice the
    operations.

    The sizes double. The smallest is large enough that the fixed cost of a call does not hide the cost of its input.
    """
    counts = [operations_of(prepare(size)) for size in sizes]
    for (size, count), larger in zip(zip(sizes, counts, strict=True), counts[1:], strict=False):
        assert count > size / 4, f"{count} operations for {size}: what grows is not seen"
        assert larger <= 2.2 * count, f"{dict(zip(sizes, counts, strict=True))}: more than linear from {size} on"
