"""Idempotency keys remember the request itself, so that a refusal can say what changed."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("idempotency", sa.Column("request", sa.Text(), nullable=True))
