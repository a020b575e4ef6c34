"""Nodes remember which ends of attempts were blamed on them."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("strikes", sa.Text(), nullable=False, server_default="[]"))
