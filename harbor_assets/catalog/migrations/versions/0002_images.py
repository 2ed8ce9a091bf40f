"""Images: what was built or found, and which ones a task's content needs."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "images",
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_images")),
    )
    op.create_index(op.f("ix_images_state_seen_at"), "images", ["state", "seen_at"], unique=False)
    op.create_table(
        "task_images",
        sa.Column("files_hash", sa.String(length=64), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("files_hash", "role", name=op.f("pk_task_images")),
    )
