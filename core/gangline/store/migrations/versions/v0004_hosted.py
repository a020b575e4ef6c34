"""Nodes and jobs of other systems: what their engine sees of a node, and the job of an attempt."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("nodes") as nodes:
        nodes.drop_constraint("uq_nodes_address", type_="unique")  # machines behind one address differ by name
        nodes.add_column(sa.Column("foreign_gpus", sa.Integer(), nullable=False, server_default="0"))
        nodes.add_column(sa.Column("foreign_jobs", sa.Text(), nullable=False, server_default="[]"))
        nodes.add_column(sa.Column("engine_text", sa.Text(), nullable=False, server_default=""))
    op.add_column("attempts", sa.Column("pool", sa.Text()))
    op.add_column("attempts", sa.Column("job", sa.Text()))
    op.add_column("attempts", sa.Column("launched_ms", sa.BigInteger()))
    op.add_column("attempts", sa.Column("job_text", sa.Text(), nullable=False, server_default=""))
    op.create_index("ix_attempts_hosted", "attempts", ["pool"], sqlite_where=sa.text("ended_ms IS NULL"),
                    postgresql_where=sa.text("ended_ms IS NULL"))
