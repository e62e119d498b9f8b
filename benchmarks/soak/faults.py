"""Kinds of faults, drawn at random, and their injection."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from benchmarks.soak.network import USUAL, Conditions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from benchmarks.soak.proxied_run import ProxiedRun

KindName = Literal["kill", "stop", "stop_long", "cut", "stall", "slow", "lose", "deaf", "move", "lossy", "late", "parted"]
KINDS: tuple[KindName, ...] = get_args(KindName)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault."""

    name: str
    """Label in the picture."""
    on: Literal["process", "server", "link", "network"]
    """Its possible targets. A server is a process that others connect to. A run has either links that can be broken one by one, or a
    network."""
    weight: float
    """Relative frequency."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Shortest and longest duration in seconds; 0 for faults that end at once."""
    meaning: str = ""


CATALOGUE: dict[KindName, Kind] = {
    "kill": Kind("process killed", "process", 25.0, meaning="SIGKILL; the supervisor starts it again"),
    "stop": Kind("process stopped for a moment", "process", 15.0, (0.5, 4.0), "SIGSTOP, then SIGCONT"),
    # 36 s each, so they are rare, and an hour has room for hundreds of others.
    "stop_long": Kind("process stopped for long", "process", 2.5, meaning="SIGSTOP for longer than every time-out, then SIGCONT"),
    "cut": Kind("connections cut", "link", 15.0, (0.2, 5.0), "connections reset, new ones refused"),
    "stall": Kind("connection stalled", "link", 10.0, (0.5, 6.0), "connections stay open, nothing passes"),
    "slow": Kind("connection slowed down", "link", 10.0, (1.0, 6.0), "a few kB a second"),
    "lose": Kind("messages lost, then reset", "link", 7.5, (0.5, 3.0), "a few kB a second, then reset: what is under way is lost"),
    "deaf": Kind("answers lost, then reset", "link", 7.5, (0.5, 3.0), "messages arrive, answers do not; then reset"),
    "move": Kind("server moved to another port", "server", 10.0, meaning="SIGKILL; it starts again on another port"),
    "lossy": Kind("network loses packets", "network", 25.0, (2.0, 8.0), "one packet in ten is lost"),
    "late": Kind("network delays packets", "network", 25.0, (2.0, 8.0), "each packet takes 20 to 300 ms: they overtake each other"),
    "parted": Kind("network parted", "network", 25.0, (1.0, 10.0), "no packet arrives"),
}
CONDITIONS: dict[KindName, Conditions] = {
    "lossy": Conditions(loss=0.1),
    "late": Conditions(delay_seconds=(0.02, 0.3)),
    "parted": Conditions(loss=1.0),
}
"""Conditions of the network during the fault."""
SLOW_BYTES_PER_SECOND = (2_000.0, 20_000.0, 200_000.0)
"""Rates from almost nothing to slow: a message of Catch has 60 kB, one of Atari 4.7 MB."""
TOGETHER_PROBABILITY = 0.2
"""Probability that a second fault occurs at the same time."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault to inject."""

    kind: KindName
    target: str
    """Name of a process or link."""
    seconds: float = 0.0
    """Duration; 0 for faults that end at once."""
    bytes_per_second: float = 0.0
    """Rate of a slow link, or of one that will lose data."""

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        rate = f" at {self.bytes_per_second / 1000:g} kB/s" if self.bytes_per_second else ""
        return f"{self.kind} {self.target}{lasting}{rate}"


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of a run."""

    processes: tuple[str, ...]
    servers: tuple[str, ...]
    links: tuple[str, ...]
    networks: tuple[str, ...] = ()

    def of(self, kind: KindName) -> tuple[str, ...]:
        """Return the targets of this kind."""
        return {"process": self.processes, "server": self.servers, "link": self.links, "network": self.networks}[CATALOGUE[kind].on]


def targets_of(run: ProxiedRun) -> Targets:
    """Return every process, server and link of the run. On a network, servers do not move, because clients know one address of each."""
    if run.network is not None:
        return Targets(tuple(run.children), (), (), ("network",))
    return Targets(tuple(run.children), tuple(run.ports), tuple(run.links))


def draw(random: Random, targets: Targets, *, long_seconds: float, kinds: Iterable[KindName] = KINDS) -> tuple[Fault, ...]:
    """Draw one fault, or two simultaneous ones with different targets.

    Args:
        random: determines everything.
        targets: the targets of the run.
        long_seconds: longer than every timeout of the run.
        kinds: the kinds to draw from.
    """
    kinds = tuple(kind for kind in kinds if targets.of(kind))
    first = _draw_one(random, targets, long_seconds, kinds)
    if random.random() >= TOGETHER_PROBABILITY:
        return (first,)
    second = _draw_one(random, targets, long_seconds, kinds)
    return (first,) if _named_in(first) & _named_in(second) else (first, second)


def _draw_one(random: Random, targets: Targets, long_seconds: float, kinds: tuple[KindName, ...]) -> Fault:
    kind = random.choices(kinds, [CATALOGUE[name].weight for name in kinds])[0]
    target = random.choice(targets.of(kind))
    if kind == "stop_long":
        return Fault(kind, target, long_seconds)
    seconds = random.uniform(*CATALOGUE[kind].seconds)
    return Fault(kind, target, seconds, random.choice(SLOW_BYTES_PER_SECOND) if kind in {"slow", "lose"} else 0.0)


def _named_in(fault: Fault) -> set[str]:
    """Return the processes involved, so that no process is killed and stopped at once."""
    return {fault.target}


def inject(run: ProxiedRun, fault: Fault) -> bool:
    """Inject the fault; return False if no process has that name."""
    match fault.kind:
        case "kill":
            return run.signal(fault.target, signal.SIGKILL) is not None
        case "stop" | "stop_long":
            return run.signal(fault.target, signal.SIGSTOP) is not None
        case "move":
            run.move(fault.target)
            return run.signal(fault.target, signal.SIGKILL) is not None
        case "cut":
            run.proxies[fault.target].cut()
        case "stall":
            run.proxies[fault.target].stall()
        case "deaf":
            run.proxies[fault.target].deafen()
        case "slow" | "lose":
            run.proxies[fault.target].slow(fault.bytes_per_second)
        case "lossy" | "late" | "parted":
            assert run.network is not None
            run.network.become(CONDITIONS[fault.kind])
    return True


def lift(run: ProxiedRun, fault: Fault) -> None:
    """End the fault; killed processes are restarted by the supervisor."""
    match fault.kind:
        case "stop" | "stop_long":
            run.signal(fault.target, signal.SIGCONT)
        case "cut" | "stall" | "slow":
            run.proxies[fault.target].forward()
        case "lose" | "deaf":
            run.proxies[fault.target].reset()
        case "lossy" | "late" | "parted":
            assert run.network is not None
            run.network.become(USUAL)
        case _:
            pass


def is_over_at_once(fault: Fault) -> bool:
    """Return whether nothing needs to be lifted."""
    return fault.kind in {"kill", "move"}


def kills(fault: Fault) -> bool:
    """Return whether the fault ends a process."""
    return fault.kind in {"kill", "move"}
