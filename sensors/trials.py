"""Publishes the trials of a deployment's runs to their Experiments, task by task, as their events come.

On a laptop the worker does that itself. What a sensor misses is published when the run is settled.
"""

import dagster as dg

from harbor_assets.events.following import Followed, ended_tasks
from harbor_assets.settings import Settings
from harbor_assets.wiring import wire


def trial_sensor(settings: Settings) -> dg.SensorDefinition:
    """The sensor, running unless somebody stops it."""

    @dg.sensor(
        name="experiment_trials",
        minimum_interval_seconds=round(settings.settle_seconds),
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Publishes each task's trials to the Experiment of their run, as soon as the task has ended.",
    )
    def experiment_trials(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        engine = wire(settings).engine
        found = ended_tasks(context.instance, Followed.read(context.cursor))
        told = 0
        for published in found.each(engine.publish_trials):
            told += published.sessions
            for line in (*published.failed, *published.skipped):
                context.log.warning(line)
        for line in found.problems:
            context.log.warning(line)
        said = f"{told} trials published" if told else "nothing new"
        return dg.SensorResult(skip_reason=said, cursor=found.followed.text())

    return experiment_trials
