"""The tables. Records are JSON text as it was digested; columns beside it are what queries ask for."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

# Every version of the schema, oldest first: the names of the scripts in migrations/versions. After 0006 a name says
# which programs still work on it: `0007_since_0006` those that know 0006, as it only adds what they need not know of.
# A change that they would break on, or break, ends that: `0008_since_0008`. See docs/cluster.md, "Going back". Alembic
# takes no "-" in a name.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007_since_0006", "0008_since_0006", "0009_since_0006")
HEAD = REVISIONS[-1]
_NAME = re.compile(r"([0-9]{4})_since_([0-9]{4})")


def works_here(version: str, head: str = HEAD) -> bool:
    """Whether a program whose newest schema is `head` works on one that a newer program made, by its name."""
    found = _NAME.fullmatch(version)
    return found is not None and head[:4].isdigit() and int(found[2]) <= int(head[:4]) < int(found[1])


METADATA = MetaData(
    naming_convention={  # names of our own, so that a later migration can name what it drops on every database
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

# Alembic's own table, by its definition; apart from METADATA because Alembic expects to own it.
VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


class Utc(TypeDecorator[datetime]):
    """An aware timestamp, stored in UTC; SQLite keeps no offset, so it is put back on reading."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"the time {value.isoformat()} has no offset from UTC; nobody knows which moment it is")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class RecordTables:
    """The tables of one kind of versioned record. `noun` is the prefix of its ids and its word in messages."""

    noun: str
    records: Table  # one row per name; `latest` is the ordinal of the newest revision
    revisions: Table  # immutable; ordinals count from 1
    tags: Table  # every tag but `latest`, which is always records.latest
    facts: Table  # what filters ask of the newest revision; follows from its body


def _in_order(kind: String) -> TypeEngine[str]:
    """Text that is ordered by code point on every database, whatever language that was set up for."""
    return kind.with_variant(type(kind)(kind.length, collation="C"), "postgresql")


def _record_tables(noun: str) -> RecordTables:
    return RecordTables(
        noun,
        Table(
            f"{noun}s",
            METADATA,
            Column("id", String(64), primary_key=True),
            Column("workspace", String(255), nullable=False),
            Column("name", _in_order(String(255)), nullable=False),
            Column("latest", Integer, nullable=False),
            Column("created_at", Utc, nullable=False),
            Column("updated_at", Utc, nullable=False),
            Column("project", String(255)),
            UniqueConstraint("workspace", "name"),
            Index(None, "workspace", "created_at"),
            Index(None, "workspace", "updated_at"),
        ),
        Table(
            f"{noun}_revisions",
            METADATA,
            Column("record_id", ForeignKey(f"{noun}s.id"), primary_key=True),
            Column("ordinal", Integer, primary_key=True),
            Column("digest", String(64), nullable=False),
            Column("created_at", Utc, nullable=False),
            Column("body", Text, nullable=False),
            Index(None, "record_id", "digest"),
        ),
        Table(
            f"{noun}_tags",
            METADATA,
            Column("record_id", ForeignKey(f"{noun}s.id"), primary_key=True),
            Column("tag", String(255), primary_key=True),
            Column("ordinal", Integer, nullable=False),
        ),
        # See catalog/search.py. Hashes, because an index of Postgres holds no text above 2,700 bytes.
        Table(
            f"{noun}_facts",
            METADATA,
            Column("record_id", ForeignKey(f"{noun}s.id"), primary_key=True),
            Column("place", String(32), primary_key=True),  # of the field and key
            Column("fact", String(32), primary_key=True),  # of the field, the key and the value
            Column("text", _in_order(Text())),
            Column("folded", Text),
            Column("number", Float),
            Index(None, "fact", "record_id"),
            Index(None, "place", "record_id"),
        ),
    )


TASKS = _record_tables("task")
TASKSETS = _record_tables("taskset")

PROJECTS = Table(
    "projects",
    METADATA,
    Column("workspace", String(255), primary_key=True),
    Column("name", String(255), primary_key=True),
    Column("created_at", Utc, nullable=False),
)

RUNS = Table(
    "runs",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("workspace", String(255), nullable=False),
    Column("owner", String(255), nullable=False),
    Column("request_digest", String(64), nullable=False),
    Column("phase", String(32), nullable=False),
    Column("result_state", String(32), nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("started_at", Utc),
    Column("ended_at", Utc),
    Column("cancel_requested_at", Utc),
    Column("executions", Integer, nullable=False, default=0),
    Column("lost_workers", Integer, nullable=False, default=0),
    Column("held", Boolean, nullable=False, default=False),  # a worker took it up and did not say that it stopped
    Column("outcomes_before", Integer, nullable=False, default=0),  # number of outcomes when that worker took it up
    Column("error", Text),
    Column("admission", Text),  # as JSON: may trials begin; null: nothing happened yet
    Index(None, "created_at"),
    Index(None, "phase"),
)

# Apart from runs: a plan of 1,000 tasks is half a megabyte, and an update of a row writes all of it again.
PLANS = Table(
    "plans",
    METADATA,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("plan", Text, nullable=False),
)

OUTCOMES = Table(
    "outcomes",
    METADATA,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("task_index", Integer, primary_key=True),
    Column("k", Integer, primary_key=True),
    Column("outcome", String(32), nullable=False),
    Column("reward", Float),
    Column("body", Text, nullable=False),
)

TRIES = Table(
    "tries",
    METADATA,
    Column("run_id", ForeignKey("runs.id"), primary_key=True),
    Column("task_index", Integer, primary_key=True),
    Column("k", Integer, primary_key=True),
    Column("start", Utc, primary_key=True),
    Column("leftovers", Text, nullable=False),
)

IDEMPOTENCY = Table(
    "idempotency",
    METADATA,
    Column("workspace", String(255), primary_key=True),
    Column("owner", String(255), primary_key=True),
    Column("key", String(255), primary_key=True),
    Column("request_digest", String(64), nullable=False),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("request", Text),  # what was asked, so that a refusal can say what changed; null before 0003
)

# One row for each image by the key of its content (or its name), whichever tasks it serves.
IMAGES = Table(
    "images",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("state", String(16), nullable=False),
    Column("seen_at", Utc, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "state", "seen_at"),
)

# Which images a task's content needs: a cache, since it follows from the archive alone.
TASK_IMAGES = Table(
    "task_images",
    METADATA,
    Column("files_hash", String(64), primary_key=True),
    Column("role", String(16), primary_key=True),
    Column("body", Text, nullable=False),
)

# Who sees to an image right now. A row outlives its holder only until `until`.
IMAGE_CLAIMS = Table(
    "image_claims",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("until", Utc, nullable=False),
)

# Metrics never change, so one row each. `derived`: it came inside a task, and is named by its content.
METRICS = Table(
    "metrics",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("workspace", String(255), nullable=False),
    Column("name", String(255), nullable=False),
    Column("project", String(255)),
    Column("metric_type", String(255), nullable=False),
    Column("derived", Boolean, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("updated_at", Utc, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("workspace", "name"),
)


def _eval_table(name: str) -> Table:
    return Table(
        name,
        METADATA,
        Column("id", String(64), primary_key=True),
        Column("workspace", String(255), nullable=False),
        Column("name", String(255), nullable=False),
        Column("created_at", Utc, nullable=False),
        Column("updated_at", Utc, nullable=False),
        Column("body", Text, nullable=False),
        UniqueConstraint("workspace", "name"),
    )


# Evaluations of given outputs: what was asked, and what came of it. Either can be deleted without the other.
EVAL_JOBS = _eval_table("eval_jobs")
EVAL_RESULTS = _eval_table("eval_results")

# What is said of a task's revision or of a run. `subject` is the SHA-256 of workspace and subject: with long names the
# text would be above what an index of Postgres holds.
MARKS = Table(
    "marks",
    METADATA,
    Column("subject", String(64), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("workspace", String(255), nullable=False),
    Column("verdict", String(32), nullable=False),
    Column("at", Utc, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "workspace", "at"),
)


def _intake_table(name: str, *more: Column[Any] | Index) -> Table:
    """A named record that is deleted softly: `deleted_at` is set, and it gets another name."""
    return Table(
        name,
        METADATA,
        Column("id", String(64), primary_key=True),
        Column("workspace", String(255), nullable=False),
        Column("name", _in_order(String(255)), nullable=False),
        Column("created_by", String(255)),
        Column("created_at", Utc, nullable=False),
        Column("updated_at", Utc, nullable=False),
        Column("deleted_at", Utc),
        Column("body", Text, nullable=False),
        *more,
        UniqueConstraint("workspace", "name"),
        Index(None, "workspace", "created_at"),
    )


EXPERIMENTS = _intake_table("experiments")
EVALUATIONS = _intake_table("evaluations", Column("pinned_at", Utc))
MEMBERSHIPS = Table(
    "experiment_evaluations",
    METADATA,
    Column("experiment_id", ForeignKey("experiments.id"), primary_key=True),
    Column("evaluation_id", ForeignKey("evaluations.id"), primary_key=True),
    Column("place", Integer, nullable=False),  # in the evaluation's list of experiments
    Index(None, "evaluation_id"),
)

# The figures of an evaluation, kept as they were at its change number `computed`; every write below it adds to
# `changed`, so that what is kept is known to be of then. A read computes what is not up to date.
ROLLUPS = Table(
    "evaluation_rollups",
    METADATA,
    Column("evaluation_id", ForeignKey("evaluations.id"), primary_key=True),
    Column("changed", Integer, nullable=False),
    Column("computed", Integer),
    Column("body", Text),
)

SESSIONS = Table(
    "sessions",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("workspace", String(255), nullable=False),
    Column("session_id", _in_order(String(400)), nullable=False),
    Column("evaluation_id", ForeignKey("evaluations.id"), nullable=False),
    Column("test_case", _in_order(String(400)), nullable=False),
    # What figures are computed from, so that no body is read for them
    Column("agent_name", String(400)),
    Column("agent_version", String(400)),
    Column("model_name", String(400)),
    Column("latency_ms", Float),
    Column("tokens", BigInteger),
    Column("cost_usd", Float),
    Column("updated_at", Utc, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("workspace", "session_id"),
    Index(None, "evaluation_id", "test_case"),
)

# Apart from sessions: a trace has megabytes, and lists of sessions read none.
TRACES = Table(
    "session_traces",
    METADATA,
    Column("session", ForeignKey("sessions.id"), primary_key=True),
    Column("spans", Text, nullable=False),
)

RESULTS = Table(
    "evaluator_results",
    METADATA,
    Column("id", String(64), primary_key=True),  # a hash of session, span and name: putting one again replaces it
    Column("session", ForeignKey("sessions.id"), nullable=False),
    Column("name", String(255), nullable=False),
    Column("value", Float),
    Column("failed", Boolean, nullable=False),
    Column("created_at", Utc, nullable=False),
    Column("body", Text, nullable=False),
    Index(None, "session"),
)
