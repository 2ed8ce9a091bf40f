"""Projects, and what filters ask of records. The facts of older records are written after the upgrade (search.py)."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("workspace", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("workspace", "name", name=op.f("pk_projects")),
    )
    postgres = op.get_bind().dialect.name == "postgresql"
    by_code_point = "C" if postgres else None  # SQLite orders like that by itself
    for noun in ("task", "taskset"):
        records, facts = f"{noun}s", f"{noun}_facts"
        if postgres:
            op.alter_column(records, "name", type_=sa.String(length=255, collation="C"), existing_nullable=False)
        op.add_column(records, sa.Column("project", sa.String(length=255), nullable=True))
        for time in ("created_at", "updated_at"):
            op.create_index(op.f(f"ix_{records}_workspace_{time}"), records, ["workspace", time], unique=False)
        op.create_table(
            facts,
            sa.Column("record_id", sa.String(length=64), nullable=False),
            sa.Column("place", sa.String(length=32), nullable=False),
            sa.Column("fact", sa.String(length=32), nullable=False),
            sa.Column("text", sa.Text(collation=by_code_point), nullable=True),
            sa.Column("folded", sa.Text(), nullable=True),
            sa.Column("number", sa.Float(), nullable=True),
            sa.ForeignKeyConstraint(["record_id"], [f"{records}.id"], name=op.f(f"fk_{facts}_record_id")),
            sa.PrimaryKeyConstraint("record_id", "place", "fact", name=op.f(f"pk_{facts}")),
        )
        for column in ("fact", "place"):
            op.create_index(op.f(f"ix_{facts}_{column}_record_id"), facts, [column, "record_id"], unique=False)
