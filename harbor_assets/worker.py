"""`python -m harbor_assets.worker RUN FD`: the detached worker of one run on this machine.

It makes one Dagster run, whose single step runs every trial that has no outcome yet, then settles the run. It may be
killed anywhere: the next command finds the run's lock free and starts another, which goes on from the outcome rows.
"""

import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.plans import RunPlan
from harbor_assets.domain.runs import MAX_LOST_WORKERS
from harbor_assets.engine.lifecycle import Settled
from harbor_assets.local import locks
from harbor_assets.local.dying import die
from harbor_assets.local.instance import open_instance
from harbor_assets.settings import Settings
from harbor_assets.settings.model import WEBHOOK_URL
from harbor_assets.wiring import Services, wire

if TYPE_CHECKING:
    import dagster as dg
    from dagster._core.origin import JobPythonOrigin
    from dagster._core.remote_origin import RemoteJobOrigin

log = logging.getLogger("harbor_assets.worker")

GC_THRESHOLD = 50_000  # as a command has it: Dagster and Harbor are two thousand modules


def main(argv: Sequence[str]) -> int:
    """Work off the run named in `argv`; its lock is the inherited descriptor. Returns the exit status."""
    run_id, fd = argv[1], int(argv[2])
    os.set_inheritable(fd, False)  # a sandbox that outlived us must not keep the run "alive"
    locks.write_owner(fd, os.getpid())
    gc.set_threshold(GC_THRESHOLD)
    _set_up_log()
    try:
        settings = Settings.load()
        os.environ.pop(WEBHOOK_URL, None)  # trials may be given variables by name
        settings.prepare_home()
        _work(wire(settings), run_id)
    except HarborAssetsError as error:
        log.error("%s", error)  # noqa: TRY400 - said by us on purpose; a traceback would hide the sentence
        return 1
    except Exception:
        log.exception("the worker of %s failed; the next command lets the run go on", run_id)
        return 1
    return 0


def _set_up_log() -> None:
    """The run's log holds what the run does; what a trial says is in its own folder."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for noisy in ("alembic", "httpx", "LiteLLM", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: not record.name.startswith("harbor."))
    warnings.simplefilter("ignore")  # Dagster's notices about beta parameters, at every start


def _work(services: Services, run_id: str) -> None:
    engine = services.engine
    run = engine.begin(run_id)
    if run.phase.terminal:
        return
    log.info("execution %d of %s (%d tasks)", run.executions, run_id, len(run.plan.tasks))
    die(run.executions, "started")
    if run.lost_workers >= MAX_LOST_WORKERS:
        # Whatever kills every worker, Dagster's own files perhaps, must not keep the run from its end.
        engine.finish(run_id, engine.settle(run_id))
        log.error("settled after %d lost workers in a row, without telling Dagster", run.lost_workers)
        return

    with open_instance(services.settings) as instance:
        _report_lost(instance, run_id)
        publications = _Publications(instance, services, run.plan)
        publications.start()
        if engine.has_work(run_id):
            _execute(instance, services, run.plan, run.executions)
        die(run.executions, "step_ended")
        if engine.has_work(run_id):
            publications.stop()
            log.info("stopped with trials left; the next command lets the run go on")
            return
        settled = engine.settle(run_id)
        publications.stop()
        die(run.executions, "merged")
        if run.executions > 1:  # the worker before may have died between a task's last row and its event
            _report_unheard(instance, services, run.plan)
        _report_settled(instance, services, run.plan, settled)
        die(run.executions, "settled")
        engine.finish(run_id, settled)  # last of all: a terminal run is never looked at again
        _retire(instance, services)
    log.info("%s is %s, result %s", run_id, settled.phase, settled.state)
    _notify(services, run_id)
    services.artifacts.sweep()


def _execute(instance: "dg.DagsterInstance", services: Services, plan: RunPlan, execution: int) -> None:
    from dagster._core.definitions.job_base import InMemoryJob
    from dagster._core.execution.api import execute_run_iterator

    from harbor_assets.partitions import EXECUTION_TAG, RUN_TAG, RUN_TASKS, RUNS, run_task_key

    keys = [run_task_key(plan.run_id, task.index) for task in plan.tasks]
    with locks.lock(services.settings.locks, "partitions"):  # four clients adding at once broke all four runs
        instance.add_dynamic_partitions(str(RUN_TASKS.name), keys)
        instance.add_dynamic_partitions(str(RUNS.name), [plan.run_id])
    die(execution, "keys_added")
    job = evaluate_job(services)
    remote, code = _origins(job.name)
    run = instance.create_run_for_job(
        job,
        run_config={"loggers": {"console": {"config": {"log_level": "WARNING"}}}},
        tags={
            RUN_TAG: plan.run_id,
            EXECUTION_TAG: str(execution),
            "harbor/taskset": plan.taskset_ref,
            "harbor/agent": plan.agent.name,
        },
        remote_job_origin=remote,
        job_code_origin=code,
    )
    die(execution, "run_created")
    for event in execute_run_iterator(InMemoryJob(job), run, instance):
        if event.is_failure:
            log.warning("%s: %s", event.event_type_value, event.message)


def evaluate_job(services: Services) -> "dg.JobDefinition":
    """The job `evaluate` as a worker on this machine executes it; nothing else of what Dagster loads is looked at."""
    import dagster as dg

    from harbor_assets.assets.runs import trial_results_alone
    from harbor_assets.jobs import evaluate

    alone = dg.Definitions(assets=[trial_results_alone], jobs=[evaluate], resources={"engine": services.engine})
    return alone.resolve_job_def("evaluate")


def _origins(job_name: str) -> "tuple[RemoteJobOrigin, JobPythonOrigin]":
    """What the webserver would write: with it the run belongs to the code location, and Terminate is offered."""
    from dagster._core.code_pointer import ModuleCodePointer
    from dagster._core.origin import DEFAULT_DAGSTER_ENTRY_POINT, JobPythonOrigin, RepositoryPythonOrigin
    from dagster._core.remote_origin import (
        ManagedGrpcPythonEnvCodeLocationOrigin,
        RemoteJobOrigin,
        RemoteRepositoryOrigin,
    )
    from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

    module = "harbor_assets.definitions"
    target = LoadableTargetOrigin(executable_path=sys.executable, module_name=module)
    location = ManagedGrpcPythonEnvCodeLocationOrigin(loadable_target_origin=target, location_name="harbor_assets")
    remote = RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job_name)
    pointer = ModuleCodePointer(module, "defs", None)
    code = JobPythonOrigin(
        job_name, RepositoryPythonOrigin(sys.executable, pointer, entry_point=DEFAULT_DAGSTER_ENTRY_POINT)
    )
    return remote, code


def _runs_of(instance: "dg.DagsterInstance", run_id: str) -> Sequence["dg.DagsterRun"]:
    """By tag, not by a recorded id: the last worker may have died between creating a run and recording it."""
    import dagster as dg

    from harbor_assets.partitions import EVALUATE, RUN_TAG

    return instance.get_runs(dg.RunsFilter(tags={RUN_TAG: run_id}, job_name=EVALUATE))


def _report_lost(instance: "dg.DagsterInstance", run_id: str) -> None:
    for run in _runs_of(instance, run_id):
        if not run.is_finished:
            instance.report_run_failed(run, "The worker was lost; the evaluation goes on as its next execution.")


def _report_unheard(instance: "dg.DagsterInstance", services: Services, plan: RunPlan) -> None:
    from harbor_assets.events.settling import unheard

    engine = services.engine
    for event in unheard(instance, plan, engine.outcomes(plan.run_id), lambda path: engine.place(plan.run_id, path)):
        instance.report_runless_asset_event(event)


def _report_settled(instance: "dg.DagsterInstance", services: Services, plan: RunPlan, settled: Settled) -> None:
    from harbor_assets.events.settling import report_settled

    engine = services.engine
    report_settled(
        instance,
        plan,
        settled,
        engine.outcomes(plan.run_id),
        list(engine.inspect(plan.run_id)),
        place=lambda path: engine.place(plan.run_id, path),
        day=services.benchmarks.day_of(plan.run_id),
        lock=lambda: locks.lock(services.settings.locks, "partitions"),
    )


def _retire(instance: "dg.DagsterInstance", services: Services) -> None:
    """Nobody waits for it, and what goes wrong here is no fault of the run's."""
    from harbor_assets.events.retention import retire

    try:
        active = services.catalog.list_runs(active=True, page_size=1000)
        retired = retire(
            instance,
            keep=services.settings.partitions_kept,
            active={*(run.id for run in active.items), *active.unreadable},
            lock=lambda: locks.lock(services.settings.locks, "partitions"),
        )
        if retired.keys or retired.left:
            log.info("%s", retired)
    except Exception:
        log.exception("partitions of old runs were not retired; the next run tries again")


def _notify(services: Services, run_id: str) -> None:
    """The run has ended: what goes wrong from here on is only said."""
    try:
        for line in services.notices.tell(run_id) if services.notices else ():
            log.warning("%s", line)
    except Exception:
        log.exception("nobody was told that %s has ended", run_id)


class _Publications(threading.Thread):
    """Reports the run's task revisions and taskset to Dagster, where they are not known yet.

    Beside the trials, since each event costs 16 ms and no command may pay for importing Dagster. Stopped midway it
    loses nothing: the next run of the same tasks reports what is missing.
    """

    def __init__(self, instance: "dg.DagsterInstance", services: Services, plan: RunPlan) -> None:
        super().__init__(name="publications", daemon=True)
        self._instance, self._services, self._plan = instance, services, plan
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let it finish what it is at, for at most some seconds."""
        self._stopping.set()
        self.join(timeout=10)

    def run(self) -> None:
        """The thread's work."""
        try:
            self._report()
        except Exception:
            log.exception("publications were not reported to Dagster; the next run of these tasks reports them")

    def _report(self) -> None:
        from harbor_assets.events.settling import report_published

        report_published(
            self._instance,
            self._plan,
            lock=lambda: locks.lock(self._services.settings.locks, "partitions"),
            files=self._services.engine.task_files,
            stop=self._stopping.is_set,
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv))
