"""``python -m herd_learner.group.pod OPTIONS``: the learner shards of one pod, a process and a GPU each, all with the same options.

GPUs of one node use NVLink only between processes that see both GPUs, so shards that should use it share a container. Its variables are
those of torchrun: GROUP_RANK is the number of the pod, LOCAL_WORLD_SIZE the number of shards in it, WORLD_SIZE that of all. Each shard
gets its RANK and LOCAL_RANK, and LOCAL_RANK is added to its ports.

A group of shards ends as a whole whenever one of its members is replaced. The shards of the other pods then start again here: if their
containers ended, Kubernetes would delay each restart longer than the last.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from herd.components.user_code import PYTHON
from herd.launch.child import before_exec
from herd.launch.restarts import RestartPolicy
from herd.service import EXIT_BAD_INPUT, EXIT_SHARD_LOST
from herd.service.signals import SignalInbox
from herd.topology import LEARNER, METRICS_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PATIENCE_SECONDS = 60.0
"""Time for the other shards to end after one has. They notice it by its heartbeat, or finish their update and write a checkpoint."""
_REPEATS = frozenset({0, EXIT_SHARD_LOST})
"""Exit codes of shards that were not asked to stop themselves: one of another pod was, or it was lost."""


class ShardProcesses:
    """One generation of the shards of this pod."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str], inbox: SignalInbox) -> None:
        """Start them. Raises `ValueError` or `KeyError` if ``environ`` does not describe the pod."""
        size, group = int(environ["LOCAL_WORLD_SIZE"]), int(environ["GROUP_RANK"])
        self._inbox = inbox
        self.started = time.monotonic()
        self._processes = [
            subprocess.Popen(
                [*PYTHON, "-m", LEARNER.module, *words, *_ports(words, local)],
                env={**environ, **_threads(environ, size), "RANK": str(group * size + local), "LOCAL_RANK": str(local)},
                preexec_fn=before_exec(os.getpid(), 0),  # noqa: PLW1509  system calls only, which take no lock
            )
            for local in range(size)
        ]

    def wait(self) -> list[int]:
        """Wait until all have ended, and return their exit codes in the order of their ends. A stop or the end of one ends all."""
        ended: list[subprocess.Popen[bytes]] = []
        deadline: float | None = None
        while True:
            ended += [process for process in self._processes if process.poll() is not None and process not in ended]
            if len(ended) == len(self._processes):
                return [process.returncode for process in ended]
            if deadline is None and (self._inbox.asked or ended):
                # What is left of a grace period is for the checkpoint: only Kubernetes ends it.
                deadline = float("inf") if self._inbox.asked else time.monotonic() + PATIENCE_SECONDS
                self._send(signal.SIGTERM)
            if deadline is not None and time.monotonic() > deadline:
                self._send(signal.SIGKILL)
            self._inbox.wait(1.0)

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send_signal(number)  # does nothing once it has ended


def run(words: Sequence[str], environ: Mapping[str, str], policy: RestartPolicy | None = None) -> int:
    """Run the shards until a request to stop or a failure; returns the exit code.

    ``policy`` limits groups that end right after their start; the container then ends, and Kubernetes delays its restarts.
    """
    policy = policy or RestartPolicy()
    early = 0
    with SignalInbox() as inbox:
        while True:
            shards = ShardProcesses(words, environ, inbox)
            codes = shards.wait()
            if inbox.asked:
                return _exit_code(next((code for code in codes if code), 0))
            # Those that end after the first were told to, some of them before they could handle the signal.
            failed = codes[0] if codes[0] not in _REPEATS else None
            early = early + 1 if time.monotonic() - shards.started < policy.early_seconds else 0
            if failed is not None or early >= policy.max_failures:
                return _exit_code(EXIT_SHARD_LOST if failed is None else failed)
            inbox.wait(policy.first_delay_seconds)
            if inbox.asked:
                return 0


def _ports(words: Sequence[str], local: int) -> list[str]:
    """Return the options of the ports of a shard. The last option of a name counts."""
    given = dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith(("--listen=", "--metrics=")))
    defaults = {"listen": f"*:{LEARNER.port}", "metrics": f"*:{METRICS_PORT}"}
    ports = []
    for name, default in defaults.items():
        host, _, port = given.get(name, default).rpartition(":")
        ports.append(f"--{name}={host}:{int(port) + local}")
    return ports


def _threads(environ: Mapping[str, str], size: int) -> dict[str, str]:
    """Return each shard's part of the pod's CPUs."""
    threads = environ.get("OMP_NUM_THREADS", "")
    return {"OMP_NUM_THREADS": str(max(1, int(threads) // size))} if threads.isdecimal() else {}


def _exit_code(code: int) -> int:
    """Return the exit code of this process for that of a child, which is negative for a signal."""
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:], os.environ))
    except (KeyError, ValueError) as error:
        print(f"learner: GROUP_RANK and LOCAL_WORLD_SIZE must be numbers: {error}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
