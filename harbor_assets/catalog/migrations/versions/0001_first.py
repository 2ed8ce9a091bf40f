"""The first schema: tasks, tasksets, runs, plans, outcomes, tries, idempotency keys."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("phase", sa.String(length=32), nullable=False),
        sa.Column("result_state", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("executions", sa.Integer(), nullable=False),
        sa.Column("lost_workers", sa.Integer(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("outcomes_before", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index(op.f("ix_runs_created_at"), "runs", ["created_at"], unique=False)
    op.create_index(op.f("ix_runs_phase"), "runs", ["phase"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("latest", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("workspace", "name", name=op.f("uq_tasks_workspace_name")),
    )
    op.create_table(
        "tasksets",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("latest", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasksets")),
        sa.UniqueConstraint("workspace", "name", name=op.f("uq_tasksets_workspace_name")),
    )
    op.create_table(
        "idempotency",
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_idempotency_run_id")),
        sa.PrimaryKeyConstraint("workspace", "owner", "key", name=op.f("pk_idempotency")),
    )
    op.create_table(
        "outcomes",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("task_index", sa.Integer(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=32), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_outcomes_run_id")),
        sa.PrimaryKeyConstraint("run_id", "task_index", "k", name=op.f("pk_outcomes")),
    )
    op.create_table(
        "plans",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_plans_run_id")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_plans")),
    )
    op.create_table(
        "task_revisions",
        sa.Column("record_id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["record_id"], ["tasks.id"], name=op.f("fk_task_revisions_record_id")),
        sa.PrimaryKeyConstraint("record_id", "ordinal", name=op.f("pk_task_revisions")),
    )
    op.create_index(op.f("ix_task_revisions_record_id_digest"), "task_revisions", ["record_id", "digest"], unique=False)
    op.create_table(
        "task_tags",
        sa.Column("record_id", sa.String(length=64), nullable=False),
        sa.Column("tag", sa.String(length=255), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["record_id"], ["tasks.id"], name=op.f("fk_task_tags_record_id")),
        sa.PrimaryKeyConstraint("record_id", "tag", name=op.f("pk_task_tags")),
    )
    op.create_table(
        "taskset_revisions",
        sa.Column("record_id", sa.String(length=64), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["record_id"], ["tasksets.id"], name=op.f("fk_taskset_revisions_record_id")),
        sa.PrimaryKeyConstraint("record_id", "ordinal", name=op.f("pk_taskset_revisions")),
    )
    op.create_index(
        op.f("ix_taskset_revisions_record_id_digest"), "taskset_revisions", ["record_id", "digest"], unique=False
    )
    op.create_table(
        "taskset_tags",
        sa.Column("record_id", sa.String(length=64), nullable=False),
        sa.Column("tag", sa.String(length=255), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["record_id"], ["tasksets.id"], name=op.f("fk_taskset_tags_record_id")),
        sa.PrimaryKeyConstraint("record_id", "tag", name=op.f("pk_taskset_tags")),
    )
    op.create_table(
        "tries",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("task_index", sa.Integer(), nullable=False),
        sa.Column("k", sa.Integer(), nullable=False),
        sa.Column("start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("leftovers", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_tries_run_id")),
        sa.PrimaryKeyConstraint("run_id", "task_index", "k", "start", name=op.f("pk_tries")),
    )
