"""The executor of a deployment: each step a Job. Importing it imports no Kubernetes library.

It must be the same definition in every process: a step checks the run's configuration against its schema.
"""

import dagster as dg
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.base import Executor
from dagster._core.executor.init import InitExecutorContext


@dg.executor(
    name="harbor_kubernetes",
    config_schema={"max_concurrent": dg.Field(int, is_required=False)},
    requirements=multiple_process_executor_requirements(),
)
def kubernetes_executor(context: InitExecutorContext) -> Executor:
    """At most `max_concurrent` steps, and their Jobs, at once. The run's next execution retries what is lost."""
    from harbor_assets.cluster.steps import JobExecutor, JobSteps

    cap = context.executor_config.get("max_concurrent")
    cap = cap if isinstance(cap, int) else None
    return JobExecutor(
        JobSteps(context.instance.run_launcher, max_active=cap), retries=RetryMode.DISABLED, max_concurrent=cap
    )
