"""Runs dummy children under the real supervisor: supervise.py RUN_DIR PORT WALL_SECONDS NAME[@AGENT][+SPARE]:BEHAVIOUR ..."""

import sys
from pathlib import Path

from herd.config.run import StopSettings
from herd.launch.plan import ChildPlan
from herd.launch.restarts import RestartPolicy
from herd.launch.shutdown import Grace
from herd.launch.supervisor import Supervisor
from tests.patience import patient


class PrintingView:
    def show(self, children, readings, elapsed_seconds, trained_seconds):
        pass

    def note(self, message):
        print(message, flush=True)

    def close(self):
        pass


run_dir, port, wall_seconds, *children = sys.argv[1:]
(Path(run_dir) / "logs").mkdir(parents=True, exist_ok=True)
plans = []
directories: dict[Path, None] = {}
for child in children:
    name, _, behaviour = child.partition(":")
    name, _, spare = name.partition("+")
    name, _, agent = name.partition("@")
    service, _, number = name.partition("-")
    directory = Path(run_dir) / "agents" / (agent or "0")
    directory.mkdir(parents=True, exist_ok=True)
    directories[directory] = None

    def command(start, name=name, behaviour=behaviour, directory=directory):
        if behaviour == "missing":
            return ["/no/such/program"]
        return [
            sys.executable,
            str(Path(__file__).with_name("child.py")),
            port,
            name,
            behaviour,
            str(directory),
            f"restarts={start.restarts}",
        ]

    plans.append(
        ChildPlan(service, int(number), command, {}, agent=int(agent or 0) if service == "learner" else None, spare=int(spare or 0))
    )
outcome = Supervisor(
    plans,
    Path(run_dir),
    StopSettings(wall_seconds=float(wall_seconds) or None),
    PrintingView(),
    agent_directories=sorted(directories),
    policy=RestartPolicy(first_delay_seconds=0.01, max_failures=3),
    most_start_seconds=0.0,  # no child trains here
    grace=Grace(learner_seconds=patient(30.0), others_seconds=patient(1.0)),
).run()
print("outcome:", outcome.exit_code, outcome.message, "|", *outcome.log_lines, flush=True)
print(*(f"without: {line}" for line in outcome.given_up), sep="\n", flush=True)
sys.exit(outcome.exit_code)
