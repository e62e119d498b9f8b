"""Measures the cost of the replay service: ``python benchmarks/replay.py --experiment breakout --output FILE.json``.

It plays real games with random actions, starts one ``herd_replay`` process, and measures over loopback:

  insert    unrolls inserted as by a learner, with new actors in each cycle; agent steps per core-second of the service
  unrolls   28 drawn at a time, as for a batch of 32 with 7/8 replay; per core-second of the service, and the learner's unpacking cost
  episodes  the same for first parts of episodes, which are whole games of Atari

Processor time is that of the processes themselves, so other load changes the figures only slightly. Bytes per agent step are the memory
that the service reports, over all steps that it holds. Phases have a fixed length.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from herd_actor.unroll import UnrollBuilder

from herd.acting.policy import PolicyStep
from herd.acting.row_state import RowState
from herd.acting.temperatures import Temperatures
from herd.components.suites import environment_spec, make_environments
from herd.config.loading import dump_settings, load_settings
from herd.config.run_contract import contract_digest, run_layout
from herd.protocols.replay.client import ReplayClient
from herd.protocols.replay.samples import SampledUnrolls
from herd.service.host import describe_hardware
from herd.telemetry.scrape import scrape, total
from herd.transport.context import Context

if TYPE_CHECKING:
    from herd.config.run import RunSettings
    from herd.contract.unroll import Array, UnrollLayout

START_SECONDS = 60.0
REPLAYED = 28
"""Unrolls per draw: 7/8 of a batch of 32."""
PENDING_BYTES = 256 << 20


def play(settings: RunSettings, layout: UnrollLayout, num_environments: int, num_unrolls: int) -> list[dict[str, Array]]:
    """Return messages of ``num_environments`` unrolls each, played with uniformly random actions and synthetic logits."""
    spec = environment_spec(settings.env)
    environments = make_environments(settings.env, num_environments=num_environments, first_slot=0, seed=settings.seed, num_threads=1)
    random = np.random.default_rng(settings.seed)
    state = RowState(spec, settings.network, Temperatures(), num_environments=num_environments)
    builder = UnrollBuilder(layout, state, task_ids=environments.task_ids, first_slot=0)
    observation = environments.reset()
    messages = []
    for number in range(num_unrolls):
        builder.begin(layout.allocate(num_environments), observation)
        for _ in range(layout.new_steps):
            state.rows(observation)
            actions = random.integers(0, spec.actions.num_actions, num_environments).astype(np.int32)
            parameters = random.normal(size=(num_environments, spec.actions.num_actions)).astype(np.float32)
            step = PolicyStep(actions, parameters, np.zeros((num_environments, 1), np.float32), state.core_state, (1, number))
            transition = environments.step(actions)
            state.advance(step, transition)
            builder.add(step, transition)
            observation = transition.observation
        messages.append(builder.finish())
    environments.close()
    return messages


class Service:
    """One replay process."""

    def __init__(self, settings: RunSettings, run_dir: Path) -> None:
        config = run_dir / "config.yaml"
        config.write_text(dump_settings(settings))
        words = [sys.executable, "-m", "herd_replay", "--config", str(config)]
        self.popen = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        assert self.popen.stderr is not None
        said = ""
        for line in self.popen.stderr:
            said += line
            if "listening" in line:
                break
        else:
            raise RuntimeError(f"the service did not start: {said}")
        (self.endpoint,) = re.findall(r"endpoint=(\S+)", said)
        (port,) = re.findall(r"metrics_port=(\d+)", said)
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._process = psutil.Process(self.popen.pid)

    def cpu_seconds(self) -> float:
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def total(self, name: str, **labels: str) -> float:
        return total(scrape(self._url), name, **labels)

    def resident_bytes(self) -> int:
        return int(self._process.memory_info().rss)


def insert(client: ReplayClient, service: Service, messages: list[dict[str, Array]], seconds: float) -> dict[str, float]:
    """Insert as fast as the service accepts unrolls."""
    cpu, started = service.cpu_seconds(), time.monotonic()
    own, rounds, unrolls = time.process_time(), 0, 0
    while rounds == 0 or time.monotonic() - started < seconds:
        for arrays in messages:
            count = len(arrays["task_id"])
            client.insert(arrays, count, np.full((count, 2), (rounds, 1 << 40), np.int64))
            unrolls += count
            while client.pending_bytes > PENDING_BYTES // 2:
                client.poll(0.01)
        rounds += 1
    while client.num_unacknowledged:
        client.poll(0.01)
    wall, used, own = time.monotonic() - started, service.cpu_seconds() - cpu, time.process_time() - own
    assert not client.num_dropped_unrolls
    return {"unrolls": unrolls, "wall_seconds": wall, "service_cpu_seconds": used, "client_cpu_seconds": own}


def draw(client: ReplayClient, service: Service, layout: UnrollLayout, seconds: float, *, whole_episodes: bool) -> dict[str, float]:
    """Draw with two requests ahead; unpack each answer into a batch's memory."""
    batch = layout.allocate(REPLAYED)
    counts, steps, unpacking = [0, 0], 0, 0.0
    cpu, started, own = service.cpu_seconds(), time.monotonic(), time.process_time()
    while time.monotonic() - started < seconds:
        while client.num_requests < 2:
            client.request(1 if whole_episodes else REPLAYED, whole_episodes=whole_episodes)
        for sample in client.poll(0.05):
            began = time.thread_time()
            unrolls = sample.unrolls if isinstance(sample, SampledUnrolls) else sample.part.unrolls() if sample.part is not None else []
            for number, unroll in enumerate(unrolls):
                unroll.write_into(batch, number % REPLAYED)
                steps += unroll.num_steps
            unpacking += time.thread_time() - began
            counts = [counts[0] + 1, counts[1] + len(unrolls)]
    used, own = service.cpu_seconds() - cpu, time.process_time() - own
    while client.num_requests:
        client.poll(0.05)
    return {
        "samples": counts[0],
        "unrolls": counts[1],
        "agent_steps": steps,
        "wall_seconds": time.monotonic() - started,
        "service_cpu_seconds": used,
        "client_cpu_seconds": own,
        "unpacking_cpu_seconds": unpacking,
    }


def measure(arguments: argparse.Namespace, run_dir: Path) -> dict[str, Any]:
    """Run all phases, one after the other."""
    words = ["--run_dir", str(run_dir), "--actor.environments", "1", "--replay.kind", "shared"]
    words += ["--learner.batch_size", "32"]
    words += ["--replay.capacity_agent_steps", str(arguments.capacity)]
    settings = load_settings([Path(arguments.experiment)], words, {})
    layout = run_layout(settings, environment_spec(settings.env))
    messages = play(settings, layout, arguments.environments, arguments.unrolls)
    service = Service(settings, run_dir)
    try:
        with Context() as context:
            client = ReplayClient(
                context,
                [service.endpoint],
                layout=layout,
                run_id=settings.name,
                agent=0,
                contract=contract_digest(settings, environment_spec(settings.env)),
                max_pending_bytes=PENDING_BYTES,
            )
            before = service.resident_bytes()
            inserted = insert(client, service, messages, arguments.seconds)
            held = service.total("herd_replay_agent_steps") + service.total("herd_replay_open_agent_steps")
            result: dict[str, Any] = {
                "insert": inserted,
                "unrolls": draw(client, service, layout, arguments.seconds, whole_episodes=False),
                "episodes": draw(client, service, layout, arguments.seconds, whole_episodes=True),
                "memory": {
                    "agent_steps": held,
                    "reported_bytes": service.total("herd_replay_bytes"),
                    "resident_bytes_beyond_the_start": service.resident_bytes() - before,
                    "bytes_per_agent_step": service.total("herd_replay_bytes") / held,
                    "bytes_per_agent_step_unpacked": layout.bytes_per_unroll / layout.new_steps,
                },
                "episodes_held": service.total("herd_replay_episodes"),
            }
            client.close()
    finally:
        service.popen.terminate()
        service.popen.wait(START_SECONDS)
    drawn, episodes = result["unrolls"], result["episodes"]
    result["figures"] = {
        "inserted_agent_steps_per_core_second": inserted["unrolls"] * layout.new_steps / inserted["service_cpu_seconds"],
        "inserted_unrolls_per_core_second": inserted["unrolls"] / inserted["service_cpu_seconds"],
        "drawn_unrolls_per_core_second": drawn["unrolls"] / drawn["service_cpu_seconds"],
        "drawn_episodes_per_core_second": episodes["samples"] / episodes["service_cpu_seconds"],
        "unpacking_microseconds_per_unroll": 1e6 * drawn["unpacking_cpu_seconds"] / drawn["unrolls"],
        "unpacking_microseconds_per_unroll_of_an_episode": 1e6 * episodes["unpacking_cpu_seconds"] / episodes["unrolls"],
        "bytes_per_agent_step": result["memory"]["bytes_per_agent_step"],
    }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="breakout", help="whose games are played, and how its unrolls look")
    parser.add_argument("--environments", type=int, default=32, help="games side by side")
    parser.add_argument("--unrolls", type=int, default=100, help="played in each, before anything is measured")
    parser.add_argument("--capacity", type=int, default=1_000_000, help="agent steps held")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--output", type=Path, help="the report, as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        result = measure(arguments, Path(temporary))
    report = {
        "command": " ".join(["python benchmarks/replay.py", *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": describe_hardware(),
        **result,
    }
    text = json.dumps(report, indent=2) + "\n"
    if arguments.output is not None:
        arguments.output.write_text(text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
