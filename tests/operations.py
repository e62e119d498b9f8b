"""How much work a call does, counted instead of timed: the same on every machine.

Calls of functions, Python's and C's, and elements that numpy reads of the arrays that were wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Counted(np.ndarray[Any, Any]):
    """An array that counts what is read of it and of everything made from it."""

    num_elements = 0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        Counted.num_elements += max((one.size for one in inputs if isinstance(one, np.ndarray)), default=0)
        plain = [one.view(np.ndarray) if isinstance(one, Counted) else one for one in inputs]
        if (out := options.get("out")) is not None:
            options["out"] = tuple(one.view(np.ndarray) if isinstance(one, Counted) else one for one in out)
        result = getattr(ufunc, method)(*plain, **options)
        return result.view(Counted) if isinstance(result, np.ndarray) else result


def counted(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, watched."""
    return array.view(Counted)


def operations_of(function: Callable[[], object]) -> int:
    """Run it; returns the calls made and the elements read on the way."""
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
    """``prepare(n)`` gives a call with n times the input: twice as much may take little more than twice the operations.

    The sizes double, and the smallest is large enough that what a call costs by itself does not hide what its input does.
    """
    counts = [operations_of(prepare(size)) for size in sizes]
    for (size, count), larger in zip(zip(sizes, counts, strict=True), counts[1:], strict=False):
        assert count > size / 4, f"{count} operations for {size}: what grows is not seen"
        assert larger <= 2.2 * count, f"{dict(zip(sizes, counts, strict=True))}: more than linear from {size} on"
