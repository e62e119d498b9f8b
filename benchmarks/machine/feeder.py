"""``python -m benchmarks.machine.feeder --config FILE``: an actor without environments or policy, for measuring a learner at its limit.

Until SIGTERM it sends the same synthetic unrolls over the real links, with credit, acknowledgements and repetitions, as fast as the
learner's shards accept them.
"""

from __future__ import annotations

import sys

from benchmarks.machine.synthetic import synthetic_unrolls
from herd.components.suites import environment_spec
from herd.config.run_contract import contract_digest, run_layout
from herd.protocols.unrolls.client import UnrollClient
from herd.protocols.unrolls.links import UnrollLinks, choose_shards, shards_of_agent
from herd.service.signals import StopRequest
from herd.service.startup import parse_command_line
from herd.transport.context import Context

CREDIT_SECONDS = 0.5
"""Longest single wait for credit, so that a signal is noticed."""


def main() -> int:
    """Feed the learner until a signal; return the exit code."""
    stop = StopRequest()
    settings, identity = parse_command_line("actor", sys.argv[1:])
    actor, spec = settings.actor, environment_spec(settings.env)
    layout = run_layout(settings, spec)
    arrays = synthetic_unrolls(layout, actor.environments, seed=settings.seed)
    num_frames = actor.environments * layout.new_steps * spec.action_repeat
    context = Context(settings.security)
    index, agent = identity.number, identity.agent or 0
    clients = [
        UnrollClient(
            context,
            endpoint,
            layout=layout,
            run_id=settings.name,
            contract=contract_digest(settings, spec),
            actor_index=index,
            agent=agent,
            max_unrolls=actor.environments,
            compression=actor.compression,
        )
        for endpoint in choose_shards(shards_of_agent(identity.addresses["learner"], settings.agents, agent), actor.links, index)
    ]
    links = UnrollLinks(clients)
    while not stop:
        if links.wait_for_credit(actor.environments, CREDIT_SECONDS):
            # The arrays never change, so they may be sent again before they are acknowledged.
            links.send_unrolls(arrays, num_frames=num_frames)
        elif links.refused is not None:
            print(f"the learner refused the feeder: {links.refused}", file=sys.stderr)
            return 2
    links.close()
    context.destroy()
    return 0


if __name__ == "__main__":
    sys.exit(main())
