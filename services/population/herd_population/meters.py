"""The population's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.protocols.population import metrics as names
from herd.protocols.population.journal import Decided, Failed
from herd.service.serving import ServerMeters

if TYPE_CHECKING:
    from herd.protocols.population.messages import MemberReport
    from herd.telemetry import Telemetry
    from herd_population.controller import Event


class Meters(ServerMeters):
    """The counters and gauges of the population."""

    def __init__(self, telemetry: Telemetry) -> None:
        super().__init__(telemetry)
        self._reports = {outcome: telemetry.counter(names.POPULATION_REPORTS, outcome=outcome) for outcome in names.REPORT_ANSWERS}
        self._decisions = {outcome: telemetry.counter(names.POPULATION_DECISIONS, outcome=outcome) for outcome in names.DECISIONS}
        self._failed_orders = telemetry.counter(names.POPULATION_FAILED_ORDERS)
        self._file_failures = telemetry.counter(names.POPULATION_FILE_FAILURES)

    def answered(self, outcome: str) -> None:
        """Count a readable report; ``outcome`` is one of ``names.REPORT_ANSWERS``."""
        self._reports[outcome].inc()

    def show(self, report: MemberReport) -> None:
        """Export the state of a member."""
        agent = str(report.agent)
        if report.fitness is not None:
            self._telemetry.gauge(names.POPULATION_FITNESS, agent=agent).set(report.fitness)
        for setting in report.settings:
            if isinstance(setting.value, float | int):
                self._telemetry.gauge(names.POPULATION_SETTING, agent=agent, setting=setting.key).set(setting.value)

    def happened(self, event: Event) -> None:
        """Count an event that is in the journal."""
        if isinstance(event, Decided):
            self._decisions["copied" if event.donor is not None else "perturbed" if event.is_order else "unchanged"].inc()
        elif isinstance(event, Failed):
            self._failed_orders.inc()

    def file_failed(self) -> None:
        """Count an event that could not be written."""
        self._file_failures.inc()
