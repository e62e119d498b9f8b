"""How busy the machine is, whoever keeps it so: a figure measured beside other work says so."""

from __future__ import annotations

import psutil


def busy_cores() -> float:
    """Cores in use since the last call, over the whole machine; the first call's result means nothing."""
    return psutil.cpu_percent() / 100.0 * (psutil.cpu_count() or 1)
