"""A run whose connections all pass through proxies, or a network, of this process, and the faults that can be applied to it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.soak.proxy import HOST, Proxy
from benchmarks.soak.supervised import LINKS, WIRING, write_json
from benchmarks.soak.wiring import LISTEN, Link
from herd.launch.child import Child, last_lines
from herd.launch.plan import held_ports
from herd.run.paths import AGENTS, PROCESSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.soak.network import Network

START_SECONDS = 60.0
"""Timeout for the supervisor to read its settings and choose ports."""
STOP_SECONDS = 120.0
"""Time for a checkpoint, the end of the actors, and the supervisor's own limits of 60 s and 10 s."""
ONLOOKER = "onlooker"
"""Client name of the links through which this process observes parameter servers; they have no faults."""
ROOT = Path(__file__).parents[2]


class RunEndedError(RuntimeError):
    """The run ended by itself; the text has the end of its output."""


class ProxiedRun:
    """A supervised run in ``folder``. Use it as a context manager in the main thread: the run ends with it."""

    def __init__(
        self, folder: Path, words: Sequence[str], network: Network | None = None, *, module: str = "benchmarks.soak.supervised"
    ) -> None:
        """Start it. ``words`` are files and settings as for ``herd train``; with ``network``, servers listen on that network.

        ``module``: the program to run, with the arguments of ``benchmarks.soak.supervised``.

        Raises:
            RunEndedError: the settings are invalid.
        """
        self.folder = folder
        self.run_dir = folder / "run"
        self.network = network
        """The network for all connections; None: each connection has its own proxy."""
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / "run.out"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HERD_")} | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", module, str(folder), *words, "--run_dir", str(self.run_dir)]
        # In its own process group, so that Ctrl-C reaches only this process, which ends the run cleanly.
        self._child = Child(command, environment, self._output)
        self.proxies: dict[str, Proxy] = {}
        self._held = ExitStack()
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> None:
        file = self.folder / LINKS
        deadline = time.monotonic() + START_SECONDS
        while not file.exists():
            self.check_running()
            if time.monotonic() > deadline:
                raise RunEndedError(f"the run did not start within {START_SECONDS:g} s")
            time.sleep(0.02)
        contents = json.loads(file.read_text())
        self.children: tuple[str, ...] = tuple(contents["children"])
        """``actor-0`` and so on, as the supervisor names them."""
        self.links: dict[str, Link] = {link.name: link for link in (Link(**fields) for fields in contents["links"])}
        """Links by name, without those of the observer."""
        self.ports: dict[str, int] = dict(contents["ports"])
        """The port of each server, now or after its next start."""
        self.num_agents: int = contents["num_agents"]
        self._onlooking = [Link(ONLOOKER, "", name) for name in self.paramservers]
        for link in (*self.links.values(), *self._onlooking) if self.network is None else ():
            self.proxies[link.name] = Proxy(self.ports[link.server])
        self._write_wiring()

    def __enter__(self) -> ProxiedRun:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def supervisor_pid(self) -> int:
        return self._child.pid

    @property
    def output(self) -> str:
        """The supervisor's output so far."""
        return self._output.read_text(errors="replace")

    @property
    def agent_directories(self) -> list[Path]:
        """The directories of the agents' checkpoints and reports."""
        return [self.run_dir / AGENTS / str(agent) for agent in range(self.num_agents)] if self.num_agents > 1 else [self.run_dir]

    @property
    def paramservers(self) -> list[str]:
        """Root and replicas."""
        return [name for name in self.children if name.startswith("paramserver")]

    def onlooker_address(self, server: str) -> str:
        """Return the address at which this process reaches a parameter server, wherever it listens."""
        return self._address(Link(ONLOOKER, "", server))

    def pid(self, process: str) -> int | None:
        """Return the process that last announced itself under this name; None before the first."""
        try:
            return int(json.loads((self.run_dir / PROCESSES / f"{process}.json").read_text())["pid"])
        except FileNotFoundError:
            return None

    def signal(self, process: str, number: signal.Signals) -> int | None:
        """Send a signal to the process of this name; return its pid, or None if there is none."""
        pid = self.pid(process)
        if pid is None:
            return None
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return None
        return pid

    def move(self, server: str) -> None:
        """Give ``server`` another port for its next start, and redirect all clients."""
        self.ports[server] = self._held.enter_context(held_ports({"port": (HOST, 0)}))["port"]
        self._write_wiring()
        for link in (*self.links.values(), *self._onlooking):
            if link.server == server:
                self.proxies[link.name].move(self.ports[server])

    def exit_counts(self) -> dict[str, int]:
        """Return how often each child ended, by the supervisor's output."""
        lines = [line.partition(" ended (") for line in self.output.splitlines()]
        names = [before.rpartition(" ")[2] for before, found, _ in lines if found]
        return {name: names.count(name) for name in self.children}

    def check_running(self) -> None:
        """Check that the run continues.

        Raises:
            RunEndedError: it has ended.
        """
        code = self._child.exit_code()
        if code is not None:
            raise RunEndedError(f"the run ended by itself with exit code {code}:\n" + "\n".join(last_lines(self._output, 30)))

    def stop(self) -> int | None:
        """End the run cleanly; return its exit code, or None if it had to be killed."""
        self._child.send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while (code := self._child.exit_code()) is None:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)
        return code

    def close(self) -> None:
        """Kill what still runs; the children end with their supervisor."""
        for process in getattr(self, "children", ()):
            if self._child.exit_code() is None:
                self.signal(process, signal.SIGCONT)
        self._child.send(signal.SIGKILL)
        while self._child.exit_code() is None:
            time.sleep(0.02)
        for proxy in self.proxies.values():
            proxy.close()
        self._held.close()

    def _address(self, link: Link) -> str:
        return self.proxies[link.name].address if self.network is None else self.network.address(self.ports[link.server])

    def _write_wiring(self) -> None:
        addresses: dict[tuple[str, str], list[str]] = {}
        for link in self.links.values():
            addresses.setdefault((link.client, link.option), []).append(self._address(link))
        wiring: dict[str, dict[str, str]] = {name: {} for name in self.children}
        for (client, option), found in addresses.items():
            wiring[client][option] = ",".join(found)
        for server, port in self.ports.items():
            wiring[server][LISTEN] = f"{HOST}:{port}"
        write_json(self.folder / WIRING, wiring)
