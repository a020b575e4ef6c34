"""Plans that the checker refused are kept, with what is wrong with them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("passes", sa.Column("faults", sa.Text(), nullable=False, server_default="[]"))
