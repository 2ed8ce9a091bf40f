"""Alembic's entry: it runs on the connection it is given, inside that connection's transaction."""

from alembic import context

from harbor_assets.catalog.schema import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,  # SQLite's is transactional too, once nothing commits behind our back
    render_as_batch=True,  # SQLite alters most things by making the table again
)
with context.begin_transaction():
    context.run_migrations()
