"""Alembic migrations: each release's changes of the schema, applied when a store is opened."""
