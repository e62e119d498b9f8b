"""The process around the controller: one thread, one ROUTER, and the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herd.config.sweep import swept_values
from herd.files import FileError
from herd.protocols.population import metrics as names
from herd.protocols.population.journal import Decided, Failed
from herd.protocols.population.messages import POPULATION, MemberAnswer, MemberReport
from herd.rpc.envelope import MAX_HEADER_BYTES
from herd.rpc.serving import Received, Reply, RequestRefused
from herd.service.inbox import RequestInbox, ServerMeters, open_router, serve_requests
from herd.service.process import ServiceProcess
from herd.service.startup import BadInputError
from herd.telemetry.logs import warn_limited
from herd_population.controller import Controller
from herd_population.journal import Journal

if TYPE_CHECKING:
    from herd.config.run import RunSettings
    from herd.protocols.population.journal import Settings
    from herd.service.identity import Identity
    from herd.service.signals import StopRequest
    from herd.telemetry import Telemetry
    from herd_population.controller import Event

UNREAD_BYTES_EACH = 64 << 10
"""A report of 64 settings takes 10 kB, and a learner has one pending."""


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


class Reports:
    """Answers reports with orders, once the resulting events are in the journal."""

    def __init__(self, process: ServiceProcess, controller: Controller, journal: Journal, meters: Meters) -> None:
        self._log = process.log
        self._controller = controller
        self._journal = journal
        self._meters = meters

    def answer(self, received: Received) -> Reply:
        """Answer one report. A member that does not receive the answer reports again.

        Raises:
            RequestRefused: the controller has no such member.

        """
        report = received.message
        assert isinstance(report, MemberReport)
        if (reason := self._controller.objection(report)) is not None:
            raise RequestRefused("other", reason, report.id)
        self._meters.show(report)
        # Before what it did is on disk, it does nothing more.
        order = self._controller.order_of(report.agent) if self._is_taken(report) else None
        self._meters.answered("noted" if order is None else "ordered")
        return Reply(MemberAnswer(id=report.id, order=order))

    def _is_taken(self, report: MemberReport) -> bool:
        """Apply the events of a report; return False if one could not be written. It is not applied then; the next report decides anew."""
        for event in self._controller.heard(report):
            try:
                self._journal.append(event)
            except OSError as error:
                self._meters.file_failed()
                warn_limited("write journal", "the journal cannot be written: nothing is decided", reason=error.strerror or str(error))
                return False
            self._controller.note(event)
            self._meters.happened(event)
            self._log.info(f"member {event.event}", **event.model_dump(exclude={"event"}))
        self._controller.keep(report)
        return True


def run(settings: RunSettings, identity: Identity, stop: StopRequest) -> None:
    """Serve the run until ``stop``.

    Raises:
        BadInputError: unknown task, unusable address, journal of other settings, or a fitness that these tasks do not have.

    """
    with ServiceProcess("population", settings, identity) as process:
        if (objection_to_tasks := settings.population.objection(settings.env)) is not None:
            raise BadInputError(objection_to_tasks)
        meters = Meters(process.telemetry)
        first = tuple(swept_values(settings.sweep, agent, settings.seed) for agent in range(settings.agents))
        controller = Controller(
            settings.population,
            num_members=settings.agents,
            seed=settings.seed,
            is_allowed=lambda values: is_allowed(settings, values),
        )
        try:
            journal = Journal(settings.directory, run=settings.name, members=first, note=controller.note)
        except FileError as error:
            raise BadInputError(str(error)) from error
        router = open_router(process.context, identity, max_frame_bytes=MAX_HEADER_BYTES, unread_bytes_each=UNREAD_BYTES_EACH)
        with router:
            reports = Reports(process, controller, journal, meters)
            inbox = RequestInbox(router, POPULATION, process.served_run("--population"), reports.answer, meters)
            serve_requests(process, inbox, router, meters, stop, events=journal.num_events)
            process.log.info("stopped")


def is_allowed(settings: RunSettings, values: Settings) -> bool:
    """Return whether they are values of what the run's sweep names, all of it and nothing else."""
    if values.keys() != settings.sweep.keys():
        return False
    try:
        settings.with_values(values)
    except ValueError:
        return False
    return True
