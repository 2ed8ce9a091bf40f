"""From bundles to rows of the store. The same bundles give the same rows, in whatever order and batches they come.

One statement reads the files of many bundles at once: reading them one by one costs more than the rows do. One thread
adds a run's numbers up in the order of its rows, so that sums do not depend on what else is read.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harbor_assets.domain import bundle
from harbor_assets.engine.ranking_ports import RankedBundle
from harbor_assets.leaderboard.parquet import SCORE_COLUMNS, TRIAL_COLUMNS
from harbor_assets.leaderboard.schema import TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ROW_BYTES_MAX = 64 * 1024 * 1024  # of one line of `outcomes.jsonl`: a trial with all its tries' tracebacks

# What a run's bundle says of it as a whole; the rest of `runs` is added up from its trials.
_RUN_FACTS = {
    "run_id": "VARCHAR", "workspace": "VARCHAR", "experiment": "VARCHAR", "taskset": "VARCHAR",
    "taskset_ref": "VARCHAR", "agent": "VARCHAR", "model": "VARCHAR", "sandbox": "VARCHAR", "evaluation": "VARCHAR",
    "dataset": "VARCHAR", "dataset_version": "VARCHAR", "owner": "VARCHAR", "phase": "VARCHAR",
    "agent_version": "VARCHAR", "reward_key": "VARCHAR", "verifier": "VARCHAR", "multipliers": "VARCHAR",
    "sizing": "VARCHAR", "network": "VARCHAR", "machine": "VARCHAR", "harbor_version": "VARCHAR",
    "harbor_assets_version": "VARCHAR", "n_attempts": "INTEGER", "planned_trials": "BIGINT", "scored_trials": "BIGINT",
    "planned_tasks": "BIGINT", "scored_tasks": "BIGINT", "mean": "DOUBLE", "mean_low": "DOUBLE", "mean_high": "DOUBLE",
    "mean_method": "VARCHAR", "mean_missing_as_zero": "DOUBLE", "started_at": "TIMESTAMPTZ",
    "finished_at": "TIMESTAMPTZ", "rerun_of": "VARCHAR", "regrade_of": "VARCHAR", "line": "VARCHAR",
}  # fmt: skip
_TRIES = (
    'STRUCT(start TIMESTAMPTZ, "end" TIMESTAMPTZ, cost DOUBLE, error STRUCT(type VARCHAR, message VARCHAR), '
    "leftovers VARCHAR, reason VARCHAR, reward DOUBLE, prompt_tokens BIGINT, completion_tokens BIGINT, "
    "cache_read_tokens BIGINT)[]"
)

_QUERIES = {
    "runs": """
        SELECT * FROM facts LEFT JOIN (
            SELECT run_id,
                sha256(string_agg(DISTINCT task_ref, chr(10) ORDER BY task_ref)) AS tasks_digest,
                sum(tries)::BIGINT AS tries,
                sum(prompt_tokens) AS prompt_tokens,
                sum(completion_tokens) AS completion_tokens,
                fsum(cost_usd) AS cost_usd,
                count(cost_usd) AS cost_trials,
                fsum(duration_sec) AS duration_sec
            FROM given GROUP BY run_id
        ) USING (run_id)""",
    "trials": "SELECT *, reward >= 1 AS passed FROM given JOIN of_run USING (run_id)",
    "tasks": """
        SELECT * FROM (
            SELECT run_id, task_index, task, task_ref, any_value(native_task_id) AS native_task_id,
                count(*) AS planned, count(reward) AS scored, count(*) FILTER (reward >= 1) AS passed,
                fsum(reward) / nullif(count(reward), 0) AS mean, min(reward) AS lowest, max(reward) AS highest,
                fsum(cost_usd) AS cost_usd, fsum(duration_sec) AS duration_sec
            FROM given GROUP BY run_id, task_index, task, task_ref
        ) JOIN of_run USING (run_id)""",
    "attempts": """
        SELECT *, (epoch_us(ended_at) - epoch_us(started_at)) / 1000000 AS duration_sec FROM (
            SELECT run_id, task_index, task, task_ref, k, trial_id, n AS attempt, n = len(tries) AS last,
                coalesce(tries[n].reason, CASE WHEN n = len(tries) THEN reason END) AS reason,
                tries[n].start AS started_at, tries[n]."end" AS ended_at, tries[n].cost AS cost_usd,
                tries[n].error.type AS error_type, tries[n].error.message AS error_message,
                tries[n].leftovers AS leftovers, tries[n].reward AS reward,
                tries[n].prompt_tokens AS prompt_tokens, tries[n].completion_tokens AS completion_tokens,
                tries[n].cache_read_tokens AS cache_read_tokens
            FROM (SELECT *, unnest(range(1, len(tries) + 1)) AS n FROM told)
        ) JOIN of_run USING (run_id)""",
    "scores": """
        SELECT scored.*, given.task_ref, "primary" AS is_primary, of_run.*
        FROM scored JOIN given USING (run_id, task_index, k) JOIN of_run USING (run_id)""",
    "lineage": """
        SELECT *,
            split_part(task_ref, '#', 2) AS task_digest,
            format('{}|{:05d}', run_id, task_index) AS trial_partition,
            split_part(task_ref, '#', 1) || '#' || left(split_part(task_ref, '#', 2), 12) AS task_partition,
            split_part(taskset_ref, '#', 1) || '#' || left(split_part(taskset_ref, '#', 2), 12) AS taskset_partition,
            run_id AS bundle_partition
        FROM given JOIN of_run USING (run_id)""",
    "pairings": """
        SELECT * FROM facts LEFT JOIN (
            SELECT run_id, list(scored ORDER BY task_ref, task_index) AS scored,
                list(total ORDER BY task_ref, task_index) AS totals,
                bool_and(rates) AS rates, bool_and(unit) AS unit
            FROM (
                SELECT run_id, task_ref, task_index, count(reward)::INTEGER AS scored,
                    coalesce(fsum(reward), 0) AS total, coalesce(bool_and(reward IN (0, 1)), true) AS rates,
                    coalesce(bool_and(reward BETWEEN 0 AND 1), true) AS unit
                FROM given GROUP BY run_id, task_ref, task_index
            ) GROUP BY run_id
        ) USING (run_id)""",
}
# Of a run, what stands in the other tables too; in its bundle's own rows it is left out, so that there is one of each.
_OF_RUN = (
    "run_id, workspace, experiment, taskset, taskset_ref, agent, model, sandbox, agent_version, reward_key, verifier, "
    "multipliers, sizing, network, machine, harbor_version"
)
_REPEATED = "taskset_ref, agent, sandbox, reward_key, harbor_version"
_TOLD = {
    "run_id": "VARCHAR", "index": "INTEGER", "task": "VARCHAR", "task_ref": "VARCHAR", "k": "INTEGER",
    "trial_id": "VARCHAR", "reason": "VARCHAR", "tries": _TRIES,
}  # fmt: skip


def ingest(connection: "DuckDBPyConnection", bundles: Sequence[RankedBundle], there: Collection[str]) -> None:
    """Put these bundles in the place of what is there of their runs, which may be some of `there` and no others. The
    caller has begun a transaction."""
    again = [found.run.run_id for found in bundles if found.run.run_id in there]
    if again:
        for table in TABLES:
            connection.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT unnest(?))", [again])  # noqa: S608
    _facts(connection, bundles)
    trials = _rows(TRIAL_COLUMNS, "read_parquet(?, union_by_name = true)")
    scores = _rows(SCORE_COLUMNS, "read_parquet(?, union_by_name = true)")
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in _TOLD.items())
    told = f"read_ndjson(?, columns = {{{columns}}}, maximum_object_size = {_ROW_BYTES_MAX})"
    for name, query, file in (
        ("given", f"SELECT * EXCLUDE ({_REPEATED}) FROM ({trials})", bundle.TRIALS_TABLE),  # noqa: S608
        ("scored", scores, bundle.SCORES_TABLE),
        ("told", f'SELECT * RENAME ("index" AS task_index) FROM {told}', bundle.OUTCOMES),  # noqa: S608
    ):
        files = [str(found.folder / file) for found in bundles]
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}", [files])
    for table, query in _QUERIES.items():
        names = ", ".join(f'"{column.name}"' for column in TABLES[table])
        connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM ({query})")  # noqa: S608


def _rows(columns: Mapping[str, str], source: str) -> str:
    """What `source` gives in these columns; those that bundles of an earlier version lack are null."""
    typed = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in columns.items())
    names = ", ".join(f'"{name}"' for name in columns)
    return f"SELECT {names} FROM (SELECT {typed} WHERE false UNION ALL BY NAME SELECT * FROM {source})"  # noqa: S608


def _facts(connection: "DuckDBPyConnection", bundles: Sequence[RankedBundle]) -> None:
    typed = ", ".join(f'"{name}" {kind}' for name, kind in _RUN_FACTS.items())
    rows = [_facts_of(found) for found in bundles]
    unnested = f"SELECT unnest(row) FROM (SELECT unnest(?::STRUCT({typed})[]) AS row)"  # noqa: S608
    connection.execute(f"CREATE OR REPLACE TEMP TABLE facts AS {unnested}", [rows])
    connection.execute(f"CREATE OR REPLACE TEMP VIEW of_run AS SELECT {_OF_RUN} FROM facts")  # noqa: S608


def _facts_of(found: RankedBundle) -> dict[str, Any]:
    run = found.run
    interval, conditions = run.mean_interval, run.conditions
    derived = {
        "taskset": run.taskset_ref.partition("#")[0],
        "planned_trials": run.coverage.of_trials,
        "scored_trials": run.coverage.trials,
        "planned_tasks": run.coverage.of_tasks,
        "scored_tasks": run.coverage.tasks,
        "mean_low": interval.low if interval else None,
        "mean_high": interval.high if interval else None,
        "mean_method": interval.method if interval else None,
        "line": run.model_dump_json(),
        **conditions.model_dump(include={"verifier", "multipliers", "sizing", "network", "machine"}),
    }
    return {name: derived[name] if name in derived else getattr(run, name) for name in _RUN_FACTS}
