"""Free heap memory is returned to the kernel on request."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from herd.service.allocator import ALLOCATOR_ENVIRONMENT, RETURN_SECONDS, FreeMemory
from tests.patience import patient

pytestmark = pytest.mark.processes

HOLES = """
import ctypes, psutil
from herd.service.allocator import return_free_memory

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
size, resident = 1 << 20, psutil.Process().memory_info
blocks = [libc.malloc(size) for _ in range(128)]
for block in blocks:
    ctypes.memset(block, 1, size)
for block in blocks[::2]:  # the other blocks keep the heap from shrinking
    libc.free(ctypes.c_void_p(block))
before = resident().rss
assert return_free_memory()
print((before - resident().rss) / size)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps free memory")
def test_free_heap_memory_is_returned_to_the_kernel() -> None:
    environment = {**os.environ, **ALLOCATOR_ENVIRONMENT}
    done = subprocess.run([sys.executable, "-c", HOLES], env=environment, capture_output=True, text=True, check=True, timeout=patient(50))
    assert float(done.stdout) > 60  # of 64 free MiB


def test_a_server_returns_free_memory_at_intervals() -> None:
    now, given_back = [0.0], []
    memory = FreeMemory(lambda: now[0], lambda: given_back.append(now[0]))
    for second in range(100):
        now[0] = float(second)
        memory.tick()
    assert given_back == [RETURN_SECONDS, 2 * RETURN_SECONDS, 3 * RETURN_SECONDS]
