"""What is said of tasks' revisions and of runs."""

import sqlalchemy as sa
from alembic import op

revision = "0007_since_0006"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "marks",
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("verdict", sa.String(length=32), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subject", "kind", name=op.f("pk_marks")),
    )
    op.create_index(op.f("ix_marks_workspace_at"), "marks", ["workspace", "at"])
