"""The tables and views of the store. `docs/store.md` promises them: columns are only ever added, at a table's end.

Times are UTC, durations in seconds, money in US dollars. Null is unknown, never zero. What most questions group by
stands in every table, so that one table answers them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

LAYOUT: Final = 3  # of the tables; a file of another number is not read but made afresh from the bundles


class Column(NamedTuple):
    """A column: its name, its DuckDB type, and what it holds where the name does not say."""

    name: str
    kind: str
    what: str = ""


_OF_RUN: Final = (
    Column("workspace", "VARCHAR"),
    Column("experiment", "VARCHAR", "null where the run belongs to none"),
    Column("run_id", "VARCHAR"),
    Column("taskset", "VARCHAR", "`workspace/name`"),
    Column("taskset_ref", "VARCHAR", "`workspace/name#digest`"),
    Column("agent", "VARCHAR"),
    Column("model", "VARCHAR", "null for an agent that calls none"),
    Column("sandbox", "VARCHAR"),
)
_OF_TASK: Final = (
    *_OF_RUN,
    Column("task_index", "INTEGER", "position in the run's taskset"),
    Column("task", "VARCHAR", "stored name"),
    Column("task_ref", "VARCHAR", "`workspace/name#digest`"),
)
_OF_TRIAL: Final = (
    *_OF_TASK,
    Column("k", "INTEGER", "which trial of its task, from 1"),
    Column("trial_id", "VARCHAR", "unique in its run"),
)
_CONDITIONS: Final = (
    Column("reward_key", "VARCHAR"),
    Column("verifier", "VARCHAR", "empty: each trial was graded by its task's own; else how a regrade was made"),
    Column("multipliers", "VARCHAR", "of times; empty: none; null: not recorded, as in the next two"),
    Column("sizing", "VARCHAR", "what replaces the tasks' own sizes; empty: nothing"),
    Column("network", "VARCHAR", "what narrows the tasks' own network; empty: nothing"),
    Column("machine", "VARCHAR", "fingerprint of the machine, for the sandbox `process`"),
)

TABLES: Final[Mapping[str, tuple[Column, ...]]] = {
    "runs": (
        *_OF_RUN,
        Column("evaluation", "VARCHAR", "in its experiment"),
        Column("dataset", "VARCHAR", "that its publication names"),
        Column("dataset_version", "VARCHAR"),
        Column("owner", "VARCHAR"),
        Column("phase", "VARCHAR", "`completed`, `failed`, `cancelled` or `expired`"),
        Column("agent_version", "VARCHAR"),
        *_CONDITIONS,
        Column("tasks_digest", "VARCHAR", "equal where the same tasks were run"),
        Column("harbor_version", "VARCHAR"),
        Column("harbor_assets_version", "VARCHAR"),
        Column("n_attempts", "INTEGER", "trials planned of each task"),
        Column("planned_trials", "BIGINT"),
        Column("scored_trials", "BIGINT"),
        Column("planned_tasks", "BIGINT"),
        Column("scored_tasks", "BIGINT", "tasks with at least one scored trial"),
        Column("mean", "DOUBLE", "over the scored trials; null if there are none"),
        Column("mean_low", "DOUBLE", "of the interval at 95 %"),
        Column("mean_high", "DOUBLE"),
        Column("mean_method", "VARCHAR", "of the interval"),
        Column("mean_missing_as_zero", "DOUBLE", "over the planned trials"),
        Column("tries", "BIGINT", "executions of trials"),
        Column("prompt_tokens", "HUGEINT", "over the trials that know theirs"),
        Column("completion_tokens", "HUGEINT"),
        Column("cost_usd", "DOUBLE", "over the trials that know theirs; null if none does"),
        Column("cost_trials", "BIGINT", "trials that know their cost"),
        Column("duration_sec", "DOUBLE", "of all trials, one after another"),
        Column("started_at", "TIMESTAMPTZ"),
        Column("finished_at", "TIMESTAMPTZ"),
        Column("rerun_of", "VARCHAR", "the run whose tasks it ran again; null also in bundles of before"),
        Column("regrade_of", "VARCHAR", "the run whose trials it verified again; null: its trials are its own"),
    ),
    "tasks": (
        *_OF_TASK,
        Column("native_task_id", "VARCHAR", "the suite's own name"),
        Column("planned", "BIGINT", "trials"),
        Column("scored", "BIGINT", "trials"),
        Column("passed", "BIGINT", "trials with a reward of at least 1"),
        Column("mean", "DOUBLE", "over the scored trials"),
        Column("lowest", "DOUBLE", "reward"),
        Column("highest", "DOUBLE", "reward"),
        Column("cost_usd", "DOUBLE", "over the trials that know theirs"),
        Column("duration_sec", "DOUBLE", "of its trials, one after another"),
    ),
    "trials": (
        *_OF_TRIAL,
        Column("native_task_id", "VARCHAR", "the suite's own name"),
        Column("trial_key", "VARCHAR", "equal where everything was that decides a reward"),
        Column("outcome", "VARCHAR", "see outcomes.md"),
        Column("reason", "VARCHAR"),
        Column("message", "VARCHAR"),
        Column("reward", "DOUBLE", "null unless scored"),
        Column("reward_key", "VARCHAR"),
        Column("passed", "BOOLEAN", "whether the reward is at least 1; null unless scored"),
        Column("flags", "VARCHAR[]"),
        Column("error_type", "VARCHAR"),
        Column("error_message", "VARCHAR"),
        Column("tries", "INTEGER", "executions; their rows are in `attempts`"),
        Column("started_at", "TIMESTAMPTZ"),
        Column("ended_at", "TIMESTAMPTZ"),
        Column("duration_sec", "DOUBLE"),
        Column("prompt_tokens", "BIGINT"),
        Column("completion_tokens", "BIGINT"),
        Column("cache_read_tokens", "BIGINT"),
        Column("runtime_sec", "DOUBLE"),
        Column("cost_usd", "DOUBLE"),
        Column("evidence", "VARCHAR", "folder, relative to the bundle"),
    ),
    "attempts": (
        *_OF_TRIAL,
        Column("attempt", "INTEGER", "which execution of its trial, from 1"),
        Column("last", "BOOLEAN", "whether its ending is the trial's"),
        Column("reason", "VARCHAR", "how it ended; null if its worker was lost"),
        Column("started_at", "TIMESTAMPTZ"),
        Column("ended_at", "TIMESTAMPTZ", "null if nobody saw it end"),
        Column("duration_sec", "DOUBLE"),
        Column("cost_usd", "DOUBLE"),
        Column("error_type", "VARCHAR"),
        Column("error_message", "VARCHAR"),
        Column("leftovers", "VARCHAR", "folder, relative to the bundle"),
        Column("reward", "DOUBLE", "what the verifier gave in it; only that of a scored trial's last one counts"),
        Column("prompt_tokens", "BIGINT"),
        Column("completion_tokens", "BIGINT"),
        Column("cache_read_tokens", "BIGINT"),
    ),
    "scores": (
        *_OF_TRIAL,
        Column("metric", "VARCHAR"),
        Column("output", "VARCHAR", "name of the reward"),
        Column("is_primary", "BOOLEAN", "whether it is the run's reward key"),
        Column("state", "VARCHAR", "`observed`, `missing` or `trial_failed`"),
        Column("value", "DOUBLE", "null unless observed"),
    ),
    "lineage": (
        *_OF_TRIAL,
        Column("task_digest", "VARCHAR"),
        Column("archive", "VARCHAR", "reference of the task's archive"),
        Column("archive_hash", "VARCHAR", "SHA-256 of its content; null, as the next three, in bundles of before"),
        Column("agent_image", "VARCHAR", "`repository@digest`; null also where the sandbox needs none"),
        Column("verifier_image", "VARCHAR", "where the verifier has its own"),
        Column("verifier_revision", "VARCHAR", "digest of the task revision whose verifier graded"),
        Column("agent_version", "VARCHAR"),
        *_CONDITIONS,
        Column("harbor_version", "VARCHAR"),
        Column("trial_key", "VARCHAR"),
        Column("outcome", "VARCHAR"),
        Column("reward", "DOUBLE"),
        Column("evidence", "VARCHAR", "folder, relative to the bundle"),
        Column("trial_partition", "VARCHAR", "of the Dagster asset `trial_results`"),
        Column("task_partition", "VARCHAR", "of `harbor_task`"),
        Column("taskset_partition", "VARCHAR", "of `taskset`"),
        Column("bundle_partition", "VARCHAR", "of `merged_bundle`"),
    ),
    # What rankings read: a row per run, so that no ranking reads all trials. Not for questions of people.
    "pairings": (
        Column("run_id", "VARCHAR"),
        Column("scored", "INTEGER[]", "scored trials of each task, tasks by `task_ref`"),
        Column("totals", "DOUBLE[]", "sums of their rewards"),
        Column("rates", "BOOLEAN", "whether every reward is 0 or 1"),
        Column("unit", "BOOLEAN", "whether every reward lies from 0 to 1"),
        Column("line", "VARCHAR", "the run's line of the leaderboard, JSON"),
    ),
}

# What adds up over runs leaves regrades out: they have the trials of another run, which count there.
VIEWS: Final[Mapping[str, tuple[str, str]]] = {
    "leaderboard": (
        "runs with a mean, the best of each taskset and sandbox first",
        "SELECT workspace, experiment, taskset_ref, sandbox, agent, model, mean, mean_low, mean_high, scored_trials, "
        "planned_trials, cost_usd, run_id, finished_at, regrade_of FROM runs WHERE mean IS NOT NULL "
        "ORDER BY workspace, taskset_ref, sandbox, mean DESC, run_id",
    ),
    "agent_tasks": (
        "each task revision by agent, model and sandbox, over all runs but regrades",
        "SELECT workspace, experiment, taskset_ref, task_ref, agent, model, sandbox, count(DISTINCT run_id) AS runs, "
        "sum(planned) AS planned, sum(scored) AS scored, sum(passed) AS passed, "
        "sum(mean * scored) / nullif(sum(scored), 0) AS mean, sum(cost_usd) AS cost_usd "
        "FROM tasks WHERE run_id NOT IN (SELECT run_id FROM runs WHERE regrade_of IS NOT NULL) GROUP BY ALL",
    ),
    "failures": (
        "trials without a reward, counted by what became of them, over all runs but regrades",
        "SELECT workspace, experiment, taskset_ref, agent, model, sandbox, outcome, reason, count(*) AS trials, "
        "count(DISTINCT run_id) AS runs, min(message) AS message FROM trials "
        "WHERE reward IS NULL AND run_id NOT IN (SELECT run_id FROM runs WHERE regrade_of IS NOT NULL) GROUP BY ALL",
    ),
    "provenance": (
        "what each scored trial rests on, and which runs have one of equal `trial_key`",
        "SELECT *, count(*) OVER (PARTITION BY trial_key) AS trials_of_key FROM lineage WHERE reward IS NOT NULL",
    ),
}


def statements() -> tuple[str, ...]:
    """What makes an empty file of this layout."""
    tables = (
        f"CREATE TABLE {table} ({', '.join(f'"{column.name}" {column.kind}' for column in columns)})"
        for table, columns in TABLES.items()
    )
    views = (f"CREATE VIEW {view} AS {query}" for view, (_, query) in VIEWS.items())
    return (f"CREATE TABLE layout AS SELECT {LAYOUT} AS version", *tables, *views)
