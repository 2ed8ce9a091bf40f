"""Experiments, evaluations, sessions with their traces, and what evaluators say of them."""

import sqlalchemy as sa
from alembic import op

revision = "0008_since_0006"
down_revision = "0007_since_0006"


def upgrade() -> None:
    by_code_point = "C" if op.get_bind().dialect.name == "postgresql" else None  # SQLite orders like that by itself
    moment = sa.DateTime(timezone=True)
    for table in ("experiments", "evaluations"):
        op.create_table(
            table,
            sa.Column("id", sa.String(length=64), nullable=False),
            sa.Column("workspace", sa.String(length=255), nullable=False),
            sa.Column("name", sa.String(length=255, collation=by_code_point), nullable=False),
            sa.Column("created_by", sa.String(length=255), nullable=True),
            sa.Column("created_at", moment, nullable=False),
            sa.Column("updated_at", moment, nullable=False),
            sa.Column("deleted_at", moment, nullable=True),
            sa.Column("body", sa.Text(), nullable=False),
            *([sa.Column("pinned_at", moment, nullable=True)] if table == "evaluations" else []),
            sa.PrimaryKeyConstraint("id", name=op.f(f"pk_{table}")),
            sa.UniqueConstraint("workspace", "name", name=op.f(f"uq_{table}_workspace_name")),
        )
        op.create_index(op.f(f"ix_{table}_workspace_created_at"), table, ["workspace", "created_at"])
    op.create_table(
        "experiment_evaluations",
        sa.Column("experiment_id", sa.String(length=64), nullable=False),
        sa.Column("evaluation_id", sa.String(length=64), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiments.id"], name=op.f("fk_experiment_evaluations_experiment_id")
        ),
        sa.ForeignKeyConstraint(
            ["evaluation_id"], ["evaluations.id"], name=op.f("fk_experiment_evaluations_evaluation_id")
        ),
        sa.PrimaryKeyConstraint("experiment_id", "evaluation_id", name=op.f("pk_experiment_evaluations")),
    )
    op.create_index(op.f("ix_experiment_evaluations_evaluation_id"), "experiment_evaluations", ["evaluation_id"])
    op.create_table(
        "evaluation_rollups",
        sa.Column("evaluation_id", sa.String(length=64), nullable=False),
        sa.Column("changed", sa.Integer(), nullable=False),
        sa.Column("computed", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["evaluation_id"], ["evaluations.id"], name=op.f("fk_evaluation_rollups_evaluation_id")
        ),
        sa.PrimaryKeyConstraint("evaluation_id", name=op.f("pk_evaluation_rollups")),
    )
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("session_id", sa.String(length=400, collation=by_code_point), nullable=False),
        sa.Column("evaluation_id", sa.String(length=64), nullable=False),
        sa.Column("test_case", sa.String(length=400, collation=by_code_point), nullable=False),
        sa.Column("agent_name", sa.String(length=400), nullable=True),
        sa.Column("agent_version", sa.String(length=400), nullable=True),
        sa.Column("model_name", sa.String(length=400), nullable=True),
        sa.Column("latency_ms", sa.Float(), nullable=True),
        sa.Column("tokens", sa.BigInteger(), nullable=True),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("updated_at", moment, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluations.id"], name=op.f("fk_sessions_evaluation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("workspace", "session_id", name=op.f("uq_sessions_workspace_session_id")),
    )
    op.create_index(op.f("ix_sessions_evaluation_id_test_case"), "sessions", ["evaluation_id", "test_case"])
    op.create_table(
        "session_traces",
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("spans", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session"], ["sessions.id"], name=op.f("fk_session_traces_session")),
        sa.PrimaryKeyConstraint("session", name=op.f("pk_session_traces")),
    )
    op.create_table(
        "evaluator_results",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("session", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["session"], ["sessions.id"], name=op.f("fk_evaluator_results_session")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_evaluator_results")),
    )
    op.create_index(op.f("ix_evaluator_results_session"), "evaluator_results", ["session"])
