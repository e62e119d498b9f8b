"""What can go wrong. Each fault makes its choices with its own random numbers, so that others can be left out without changing it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Process, World


def break_connections(world: World, process: Process, random: Random) -> None:
    """Some connections break soon, around one of their next messages, and perhaps those that follow them too."""
    world.network.flaky_until = world.now + random.choice([0.0, 4.0, 10.0])
    connections = world.network.connections
    for connection in random.sample(connections, min(len(connections), random.choice([1, 10, 100]))):
        connection.breaks_after = random.randint(1, 4)


def silence(world: World, process: Process, random: Random) -> None:
    """Some connections are half open: their messages vanish, until both sides notice."""
    connections = world.network.connections
    for connection in random.sample(connections, min(len(connections), random.choice([1, 2, 5]))):
        connection.is_silent = True
        world.at(world.now + random.uniform(2.0, 40.0), lambda connection=connection: world.network.break_(connection))  # type: ignore[misc]


def cut_off(world: World, process: Process, random: Random) -> None:
    """A process can be reached by nobody."""
    network = world.network
    network.cut_off[process] = world.now + random.choice([1.0, 8.0, 40.0, 90.0])
    for connection in [each for each in network.connections if process in (each.client.process, each.server.process)]:
        network.break_(connection)


def slow_wire(world: World, process: Process, random: Random) -> None:
    world.network.delay_seconds = random.choice([0.1, 0.5, 2.0])
    world.at(world.now + random.uniform(2.0, 20.0), lambda: setattr(world.network, "delay_seconds", world.plan.delay_seconds))


def kill(world: World, process: Process, random: Random) -> None:
    """A process is killed, or several at once."""
    for each in [process, *random.sample(world.processes, random.choice([0, 0, 2, len(world.processes)]))]:
        if each.is_alive:
            each.end()


def kill_in_a_write(world: World, process: Process, random: Random) -> None:
    """A process is killed at one of its next operations on files."""
    world.fuses[process] = random.randint(1, 12)


def power(world: World, process: Process, random: Random) -> None:
    """A process's machine loses power."""
    process.end()
    world.sometimes("power failure lost what was not flushed", world.disk.lose_power(process.folder) > 0)


def stop(world: World, process: Process, random: Random) -> None:
    """SIGTERM, perhaps while its next message is on the wire, which is lost."""
    generation = process.num_starts

    def leave() -> None:
        if process.is_running and process.num_starts == generation and world.step(process, process.leave):
            process.end()

    if random.random() < 0.5:
        leave()
    else:
        world.network.on_next_message[process] = lambda: world.at(world.now, leave)


def pause(world: World, process: Process, random: Random) -> None:
    """A process does nothing for a while, perhaps longer than every lease and timeout."""
    process.paused_until = world.now + random.choice([0.3, 3.0, 10.0, 25.0, 150.0])
    process.disturbed_at = process.paused_until


def jump(world: World, process: Process, random: Random) -> None:
    """A clock jumps ahead."""
    process.skew += random.choice([1.0, 10.0, 100.0])
    process.disturbed_at = world.now


def full_disk(world: World, process: Process, random: Random) -> None:
    world.full_until = world.now + random.uniform(1.0, 20.0)


FAULTS: dict[str, Callable[[World, Process, Random], None]] = {
    function.__name__: function
    for function in (break_connections, silence, cut_off, slow_wire, kill, kill_in_a_write, power, stop, pause, jump, full_disk)
}
