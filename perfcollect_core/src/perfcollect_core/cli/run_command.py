"""What ``perfcollect run`` does: find the database and the devices, plan, measure, report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

import attrs

from perfcollect_core.environment import DeviceFamily, Probe
from perfcollect_core.errors import DataError, UsageError
from perfcollect_core.loading import LoadedPlugin, load_executor, load_wrappers
from perfcollect_core.runner.choose_family import choose_family, device_error
from perfcollect_core.runner.context import RunContext, check_writable, select_devices
from perfcollect_core.runner.execution import ExecutorPlugin
from perfcollect_core.runner.fitting import check_needs, fit_devices
from perfcollect_core.runner.journal import JOURNAL_NAME, JournalState, read_journal
from perfcollect_core.runner.launch import RunOutcome, execute
from perfcollect_core.runner.options import RunOptions, decode_options
from perfcollect_core.runner.plan import RunPlan, build_plan
from perfcollect_core.runner.run_dir import database_of, find_run, new_run_dir
from perfcollect_core.runner.settings import CaseResult
from perfcollect_core.runner.table_choice import what_to_do
from perfcollect_core.tables.identity import check_identity, read_identity
from perfcollect_core.tables.layout import DatabaseOptions, locate_database

from .output import Progress, emit, note, progress, warn
from .run_plan import plan_document, plan_lines
from .run_report import finish, summary_of

__all__ = ["PreparedRun", "RunCommand"]


@attrs.frozen(eq=False)
class PreparedRun:
    """A plan with the database, the device family and the wrappers it is for."""

    plan: RunPlan
    database: Path
    family: LoadedPlugin
    probe: Probe
    wrappers: tuple[LoadedPlugin, ...]


@attrs.define(eq=False)
class RunCommand:
    """One invocation of ``perfcollect run``; ``named`` are the options that stood on the command line."""

    database: DatabaseOptions
    family: str
    options: RunOptions
    named: frozenset[str]
    resume: str | None
    run_dir: Path | None
    output_format: str
    _path: Path = attrs.field(init=False, factory=Path)
    _loaded: LoadedPlugin = attrs.field(init=False, default=LoadedPlugin("", None))
    _probe: Probe = attrs.field(init=False, factory=Probe)
    _earlier: JournalState | None = attrs.field(init=False, default=None)
    _resumed_dir: Path | None = attrs.field(init=False, default=None)
    _wrappers: tuple[LoadedPlugin, ...] = attrs.field(init=False, default=())

    def show_plan(self) -> int:
        """Print the plan and measure nothing."""
        plan = self._prepare()
        emit(
            plan_document(plan, self._path, self._probe),
            lambda: "\n".join(plan_lines(plan, self._path, self._probe)),
            self.output_format,
        )
        return 0

    def prepare(self) -> PreparedRun:
        """Find database and family, check identity and needs, plan, and start nothing."""
        plan = self._prepare()
        return PreparedRun(plan, self._path, self._loaded, self._probe, self._wrappers)

    def measure(self) -> int:
        """Measure and write; returns the exit code."""
        plan = self._prepare()
        sentence = self._nothing_to_do(plan)
        if sentence is not None:
            # A run taken up again is still the run it was: what failed in it has not gone away.
            code = 3 if plan.denied else 0
            emit({"nothing_to_do": sentence, "exit_code": code}, sentence, self.output_format)
            return code
        write = check_writable(self._path, self.run_dir or self._resumed_dir)
        run_dir = self._resumed_dir or new_run_dir(self._path, self.run_dir)
        context = RunContext(
            database=self._path,
            run_dir=run_dir,
            family=self._loaded,
            devices=select_devices(self._probe.devices, self.options.devices),
            versions=self._probe.versions,
            executor=cast(ExecutorPlugin, load_executor("local").plugin),
            write=write,
        )
        for table, why in plan.unreadable.items():
            warn(f"{table} is left out: {why}")
        for table in plan.unclaimed:
            warn(what_to_do(table))
        started = datetime.now(timezone.utc)
        with progress(len(plan.cases), "cases") as bar:
            outcome = self._execute(plan, context, bar)
        summary = summary_of(plan, self.options, context, outcome, started)
        return finish(summary, context, outcome, self.output_format)

    def _execute(self, plan: RunPlan, context: RunContext, bar: Progress) -> RunOutcome:
        def show(result: CaseResult) -> None:
            planned = result.job.planned
            words = (
                f"{planned.table.operator} {planned.row.ref.key[1] if len(planned.row.ref.key) > 1 else ''}"
            )
            bar.advance(1, words)
            if result.outcome.state == "failed":
                bar.print(f"{words}: {result.outcome.failure}: {result.outcome.reason}")

        return execute(
            plan,
            self.options,
            context,
            self._wrappers,
            earlier=self._earlier,
            on_result=show,
            announce=note,
        )

    def _prepare(self) -> RunPlan:
        """Find database and family, check identity and needs, and plan."""
        if self.resume is not None:
            self._take_up()
        self._locate()
        device = self._probe.devices[0].name if self._probe.devices else ""
        held = read_identity(self._path) if not device else None
        # Without a device nothing is known of it, and its absence is the better message.
        emulated = held.emulated if held else self._probe.emulated
        check_identity(self._path, family=self._family.name, device=device, emulated=emulated)
        self._wrappers = load_wrappers(self.options.wrappers)
        state = self._earlier or JournalState()
        plan = build_plan(
            self._path, self.options, self._loaded, self._wrappers, done=state.measured, denied=state.failed
        )
        check_needs(plan, self._family.name, self._probe, self._worker_environ())
        if not self._probe.devices and any(table.selected for table in plan.tables):
            raise device_error(self._family.name, self._probe)
        ranks = getattr(self._loaded.plugin, "max_ranks", None) or len(self._probe.devices)
        return fit_devices(plan, select_devices(self._probe.devices, self.options.devices), ranks)

    def _worker_environ(self) -> Mapping[str, str] | None:
        """Return the environment workers will have; what the family adds to this one is said."""
        additions = getattr(self._loaded.plugin, "worker_environment", None)
        if additions is None:
            return None
        env, said = additions()
        for sentence in said:
            note(f"workers get {sentence}")
        return {**os.environ, **env}

    @property
    def _family(self) -> DeviceFamily:
        return cast(DeviceFamily, self._loaded.plugin)

    def _locate(self) -> None:
        given = self.database.database_path
        if given is not None:
            if not given.is_dir():
                # Not derived, so there is nothing to explain but the path.
                locate_database(self.database, family="", device_name="")
                raise DataError(f"database {given} is no directory")
            identity = read_identity(given) if self.family == "auto" else None
            self._path = given
            self._loaded, self._probe = choose_family(self.family, identity.family if identity else None)
            return
        self._loaded, self._probe = choose_family(self.family, None)
        name = self._probe.devices[0].name if self._probe.devices else ""
        self._path = locate_database(self.database, family=self._family.name, device_name=name)

    def _take_up(self) -> None:
        """Read the journal of the run to go on with; its options hold where the command line says nothing."""
        directory = find_run(self._resume_database(), self.resume or "", self.run_dir)
        state = read_journal(directory / JOURNAL_NAME)
        database = database_of(state.run, directory)
        given = self.database.database_path
        if given is not None and given.resolve() != database:
            raise UsageError(
                f"--resume {directory.name}: the run is of database {database}, not of {given}",
                hint="leave out --database-path",
            )
        self.database = attrs.evolve(self.database, database_path=given or database)
        if self.family == "auto":
            self.family = str(state.run["family"])
        before = decode_options(state.run["options"])
        asked = {name: getattr(self.options, name) for name in self.named if hasattr(before, name)}
        plugin_options = {
            **before.plugin_options,
            **{name: value for name, value in self.options.plugin_options.items() if name in self.named},
        }
        asked = {"retry_failed": self.options.retry_failed, "plugin_options": plugin_options, **asked}
        self.options = attrs.evolve(before, **asked)
        self._earlier, self._resumed_dir = state, directory
        if state.broken:
            warn(f"{state.broken} lines of {directory / JOURNAL_NAME} are no JSON and were passed over")

    def _resume_database(self) -> Path | None:
        if self.database.database_path is not None:
            return self.database.database_path
        if self.run_dir is not None or (self.resume and (Path(self.resume) / JOURNAL_NAME).exists()):
            return None
        self._locate()
        return self._path

    def _nothing_to_do(self, plan: RunPlan) -> str | None:
        sentence = plan.nothing_to_do()
        if sentence is not None or self._earlier is None or plan.cases:
            return sentence
        if self._earlier.unpatched:
            return None
        again = "; --retry-failed tries the failed ones again" if plan.denied else ""
        return f"nothing to do: {plan.done} cases of this run are measured, {plan.denied} failed{again}"
