"""Whether trials of a run may begin."""

import sqlalchemy as sa
from alembic import op

revision = "0009_since_0006"
down_revision = "0008_since_0006"


def upgrade() -> None:
    op.add_column("runs", sa.Column("admission", sa.Text(), nullable=True))
