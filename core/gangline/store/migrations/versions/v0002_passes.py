"""Passes are kept; pools have a size that was asked for; gangs are preempted and resized; nodes have domains."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("nodes", sa.Column("domain", sa.Text(), nullable=True))
    op.add_column("nodes", _zero("idle_ms"))
    op.drop_column("gangs", "wait")  # the loop says anew why a gang waits
    op.add_column("gangs", _zero("preempted_ms"))
    op.add_column("gangs", _zero("resized_ms"))
    op.add_column("attempts", sa.Column("give_up", sa.Text(), nullable=False, server_default="[]"))
    op.add_column("attempts", sa.Column("want", sa.Integer(), nullable=True))
    op.create_table(
        "pool_sizes",
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pool", name=op.f("pk_pool_sizes")),
    )
    _passes()


def _zero(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")


def _passes() -> None:
    op.create_table(
        "passes",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("duration_us", sa.BigInteger(), nullable=False),
        sa.Column("trigger", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("pending", sa.Integer(), nullable=False),
        sa.Column("placed", sa.Integer(), nullable=False),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.Column("released", sa.Integer(), nullable=False),
        sa.Column("preempted", sa.Integer(), nullable=False),
        sa.Column("resized", sa.Integer(), nullable=False),
        sa.Column("retired", sa.Integer(), nullable=False),
        sa.Column("refused", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("inputs", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passes")),
    )
