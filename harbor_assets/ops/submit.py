"""Submitting a run from the Dagster UI: the engine call that `runs submit` makes."""

from enum import Enum

import dagster as dg
from pydantic import Field, ValidationError

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.domain.publication import Intake, PublicationRequest
from harbor_assets.domain.requests import (
    AgentSource,
    Execution,
    RunRequest,
    SandboxRequest,
    Spec,
    Target,
    TaskSelection,
)
from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.events.links import partition_link, runs_link
from harbor_assets.partitions import RUN_TAG
from harbor_assets.settings import Settings


class Sandbox(Enum):
    """An enumeration, since the Launchpad offers its values and refuses others before the launch. A test keeps it equal
    to what a request takes."""

    auto = "auto"
    process = "process"
    docker = "docker"
    podman = "podman"
    kubernetes = "kubernetes"


class Submission(dg.Config):
    """What to evaluate. Everything but the taskset has a default."""

    taskset: str = Field(
        description="Taskset to run: workspace/name, or workspace/name#digest for one revision. The asset `taskset` "
        "lists them: `ref` in the metadata of each of its partitions.",
        examples=["default/hello-world-suite-3e2e2903"],
    )
    agent: str = Field(default="oracle", description="Harbor agent, by name. oracle applies each task's own solution.")
    tasks: list[str] = Field(
        default=[], description='Tasks by name or index, such as ["3", "csv-report"]. Empty: all of the taskset.'
    )
    agent_env: dict[str, str] = Field(
        default={},
        description="Variables of the agent. ${NAME} takes what NAME holds where trials run; a key is given only so.",
        examples=[{"LOG_LEVEL": "debug", "OPENAI_API_KEY": "${OPENAI_API_KEY}"}],
    )
    agent_timeout_multiplier: float | None = Field(
        default=None, description="Times the time that each task gives its agent. Empty: as the tasks say."
    )
    attempts: int = Field(default=1, description="Trials of each task, from 1 to 1000.")
    max_retries: int = Field(default=0, description="Tries a trial that errs this many times more.")
    min_coverage: float | None = Field(
        default=None,
        description="Share of trials that must be scored for the run's check to pass. Empty: none is asked.",
    )
    max_concurrent: int | None = Field(
        default=None, description="Trials at the same time. Empty: as the settings of this home or deployment say."
    )
    timeout_seconds: int | None = Field(
        default=None, description="Time budget of the whole run, from its first slot. Empty: as the settings say."
    )
    cpus: float | None = Field(default=None, description="Cores of the agent's sandbox. Empty: what the task asks for.")
    memory_mb: int | None = Field(
        default=None, description="Megabytes of memory of the agent's sandbox. Empty: what the task asks for."
    )
    storage_mb: int | None = Field(
        default=None, description="Megabytes of disk of the agent's sandbox. Empty: what the task asks for."
    )
    sandbox: Sandbox = Field(default=Sandbox.auto, description="Where trials run; auto takes what works here.")
    sandbox_profile: str | None = Field(
        default=None, description="Sandbox profile of a deployment. Empty: its default. A laptop has none."
    )
    experiment: str | None = Field(
        default=None, description="Experiment in which its trials appear, each as it ends. Empty: in none."
    )
    workspace: str | None = Field(default=None, description="Workspace of the run. Empty: as the settings say.")

    def request(self) -> RunRequest:
        """The same request as the command line's. Raises `dg.Failure` that names each value and its rule."""
        try:
            return RunRequest(
                spec=Spec(
                    target=Target(
                        source=AgentSource(name=self.agent),
                        n_attempts=self.attempts,
                        max_retries=self.max_retries,
                        env_vars=self.agent_env,
                        agent_timeout_multiplier=self.agent_timeout_multiplier,
                    ),
                    tasks=TaskSelection(taskset=self.taskset, select=self.tasks or None),
                    publication=PublicationRequest(intake=Intake(experiment=self.experiment))
                    if self.experiment
                    else None,
                ),
                execution=Execution(
                    sandbox=SandboxRequest.model_validate(
                        {
                            "kind": self.sandbox.value,
                            "profile": self.sandbox_profile,
                            "cpus": self.cpus,
                            "memory_mb": self.memory_mb,
                            "storage_mb": self.storage_mb,
                        }
                    ),
                    max_concurrent_task_jobs=self.max_concurrent,
                ),
                timeout_seconds=self.timeout_seconds,
                min_coverage=self.min_coverage,
            )
        except ValidationError as error:
            problems = "; ".join(
                f"{at['loc'][-1]}{'' if 'env_vars' in at['loc'] else f' {at["input"]!r}'}: {at['msg']}"
                for at in error.errors()
            )
            raise dg.Failure(f"The run was not submitted: {problems}", allow_retries=False) from None


@dg.op(out=dg.Out(dg.Nothing), description="Submits the run and ends; the run goes on as job evaluate.")
def submit(
    context: dg.OpExecutionContext, config: Submission, evaluations: dg.ResourceParam[Evaluations]
) -> dg.Output[None]:
    """One Dagster run submits one run, also if it is tried again."""
    request = config.request()
    workspace = config.workspace or Settings.load().workspace
    try:
        submitted = evaluations.submit(workspace, request, idempotency_key=f"dagster-{context.run_id}")
    except HarborAssetsError as error:
        raise dg.Failure(str(error), allow_retries=False) from None
    run = submitted.run
    context.instance.add_run_tags(context.run_id, {RUN_TAG: run.id})
    context.log.info(f"Run {run.id} accepted: {run.n_tasks} tasks, {run.n_trials} trials; the worker starts them")
    for other in submitted.already_running:
        context.log.warning(f"{other} is already running {run.taskset_ref}")
    return dg.Output(
        None,
        metadata={
            "run": run.id,
            "dagster_runs": runs_link(run.id),
            "bundle": partition_link("merged_bundle", run.id),
            "follow": f"harbor-assets runs status {run.id} --watch",
            "cancel": f"harbor-assets runs cancel {run.id}",
            "taskset": run.taskset_ref,
            "agent": run.agent,
            "sandbox": f"{run.sandbox}: {run.sandbox_why}",
            "tasks": run.n_tasks,
            "trials": run.n_trials,
        },
    )
