"""Everything the first release stores."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _shared()
    _gangs()
    _attempts()
    _leases()
    _volumes()
    _saves()


def _shared() -> None:
    op.create_table(
        "counters",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_counters")),
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("gang", sa.Text(), nullable=True),
        sa.Column("data", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_gang_seq"), "events", ["gang", "seq"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("gpu_type", sa.Text(), nullable=False),
        sa.Column("gpu_count", sa.Integer(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("fabric", sa.Text(), nullable=True),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("lifecycle", sa.Text(), nullable=False),
        sa.Column("drain_owner", sa.Text(), nullable=True),
        sa.Column("drain_reason", sa.Text(), nullable=False),
        sa.Column("healthy", sa.Boolean(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=True),
        sa.Column("boot_done_ms", sa.BigInteger(), nullable=True),
        sa.Column("price_nano_per_gpu_hour", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
        sa.UniqueConstraint("address", name=op.f("uq_nodes_address")),
        sa.UniqueConstraint("ordinal", name=op.f("uq_nodes_ordinal")),
    )
    op.execute("INSERT INTO counters (name, value) VALUES ('version', 0)")


def _gangs() -> None:
    op.create_table(
        "gangs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=True),
        sa.Column("interpreter", sa.Text(), nullable=True),
        sa.Column("pinned", sa.Text(), nullable=False),
        sa.Column("submitted_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("previous", sa.Text(), nullable=True),
        sa.Column("owner", sa.Integer(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("watched_ms", sa.BigInteger(), nullable=False),
        sa.Column("orphan_after_ms", sa.BigInteger(), nullable=True),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=True),
        sa.Column("ran_ms", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("avoid", sa.Text(), nullable=False),
        sa.Column("cancel_cause", sa.Text(), nullable=True),
        sa.Column("cancel_text", sa.Text(), nullable=True),
        sa.Column("end", sa.Text(), nullable=True),
        sa.Column("wait", sa.Text(), nullable=True),
        sa.Column("progress", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["previous"], ["gangs.id"], name=op.f("fk_gangs_previous")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_gangs")),
        sa.UniqueConstraint("seq", name=op.f("uq_gangs_seq")),
    )
    op.create_index(op.f("ix_gangs_slot_seq"), "gangs", ["slot", "seq"], unique=False)
    op.create_index(op.f("ix_gangs_state_seq"), "gangs", ["state", "seq"], unique=False)
    op.create_index("ux_gangs_active_slot", "gangs", ["slot"], unique=True,
                    sqlite_where=sa.text("active"), postgresql_where=sa.text("active"))


def _attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("issued_ms", sa.BigInteger(), nullable=False),
        sa.Column("running_ms", sa.BigInteger(), nullable=True),
        sa.Column("stopped_ms", sa.BigInteger(), nullable=True),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("fabric", sa.Text(), nullable=True),
        sa.Column("master_addr", sa.Text(), nullable=False),
        sa.Column("master_port", sa.Integer(), nullable=False),
        sa.Column("world_size", sa.Integer(), nullable=False),
        sa.Column("resume", sa.Text(), nullable=False),
        sa.Column("rdma", sa.Text(), nullable=False),
        sa.Column("emulated", sa.Boolean(), nullable=False),
        sa.Column("grace_ms", sa.BigInteger(), nullable=False),
        sa.Column("end", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["gang"], ["gangs.id"], name=op.f("fk_attempts_gang")),
        sa.PrimaryKeyConstraint("gang", "number", name=op.f("pk_attempts")),
    )
    op.create_table(
        "members",
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Text(), nullable=False),
        sa.Column("gpu_type", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=True),
        sa.Column("ready_ms", sa.BigInteger(), nullable=True),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("empty_ms", sa.BigInteger(), nullable=True),
        sa.Column("lost", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"],
            name=op.f("fk_members_gang_attempt")),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"], name=op.f("fk_members_node")),
        sa.PrimaryKeyConstraint("gang", "attempt", "node_rank", name=op.f("pk_members")),
    )
    op.create_index("ix_members_node_busy", "members", ["node"], unique=False,
                    sqlite_where=sa.text("empty_ms IS NULL"), postgresql_where=sa.text("empty_ms IS NULL"))
    op.create_table(
        "ranks",
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_rank", sa.Integer(), nullable=False),
        sa.Column("local_rank", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"],
            name=op.f("fk_ranks_gang_attempt")),
        sa.PrimaryKeyConstraint("gang", "attempt", "rank", name=op.f("pk_ranks")),
    )


def _leases() -> None:
    op.create_table(
        "leases",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("gpus", sa.Text(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("pool", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("opened_ms", sa.BigInteger(), nullable=False),
        sa.Column("closed_ms", sa.BigInteger(), nullable=True),
        sa.Column("price_nano_per_gpu_hour", sa.BigInteger(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["gang"], ["gangs.id"], name=op.f("fk_leases_gang")),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"], name=op.f("fk_leases_node")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_leases")),
    )
    op.create_index(op.f("ix_leases_gang"), "leases", ["gang"], unique=False)
    op.create_index("ux_leases_open", "leases", ["gang", "node"], unique=True,
                    sqlite_where=sa.text("closed_ms IS NULL"), postgresql_where=sa.text("closed_ms IS NULL"))
    op.create_table(
        "lease_gpus",
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("gpu", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lease", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name=op.f("fk_lease_gpus_lease")),
        sa.ForeignKeyConstraint(["node"], ["nodes.name"], name=op.f("fk_lease_gpus_node")),
        sa.PrimaryKeyConstraint("node", "gpu", name=op.f("pk_lease_gpus")),
    )
    op.create_index(op.f("ix_lease_gpus_lease"), "lease_gpus", ["lease"], unique=False)
    op.create_table(
        "intervals",
        sa.Column("lease", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["lease"], ["leases.id"], name=op.f("fk_intervals_lease")),
        sa.PrimaryKeyConstraint("lease", "number", name=op.f("pk_intervals")),
    )
    op.create_index(op.f("ix_intervals_end_ms"), "intervals", ["end_ms"], unique=False)
    op.create_index("ux_intervals_open", "intervals", ["lease"], unique=True,
                    sqlite_where=sa.text("end_ms IS NULL"), postgresql_where=sa.text("end_ms IS NULL"))
    op.create_table(
        "ports",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("port", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"],
            name=op.f("fk_ports_gang_attempt")),
        sa.PrimaryKeyConstraint("host", "port", name=op.f("pk_ports")),
    )


def _volumes() -> None:
    op.create_table(
        "volumes",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_volumes")),
    )
    op.create_table(
        "versions",
        sa.Column("volume", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("manifest_sha256", sa.Text(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("gang", sa.Text(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=True),
        sa.Column("slot", sa.Text(), nullable=True),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("damaged", sa.Text(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["gang"], ["gangs.id"], name=op.f("fk_versions_gang")),
        sa.ForeignKeyConstraint(["volume"], ["volumes.name"], name=op.f("fk_versions_volume")),
        sa.PrimaryKeyConstraint("volume", "version", name=op.f("pk_versions")),
        sa.UniqueConstraint("volume", "directory", name=op.f("uq_versions_volume_directory")),
    )
    op.create_index(op.f("ix_versions_gang"), "versions", ["gang"], unique=False)
    op.create_index(op.f("ix_versions_slot_volume"), "versions", ["slot", "volume"], unique=False)
    op.create_table(
        "pointers",
        sa.Column("volume", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["volume", "version"], ["versions.volume", "versions.version"],
            name=op.f("fk_pointers_volume_version")),
        sa.PrimaryKeyConstraint("volume", "name", name=op.f("pk_pointers")),
    )


def _saves() -> None:
    op.create_table(
        "saves",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("gang", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("mount", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("volume", sa.Text(), nullable=False),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("opened_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"],
            name=op.f("fk_saves_gang_attempt")),
        sa.ForeignKeyConstraint(["volume"], ["volumes.name"], name=op.f("fk_saves_volume")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saves")),
        sa.UniqueConstraint("gang", "attempt", "generation", "mount", "key",
            name=op.f("uq_saves_gang_attempt_generation_mount_key")),
        sa.UniqueConstraint("volume", "directory", name=op.f("uq_saves_volume_directory")),
    )
    op.create_index(op.f("ix_saves_state"), "saves", ["state"], unique=False)
    op.create_table(
        "save_ranks",
        sa.Column("save", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("extra", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["save"], ["saves.id"], name=op.f("fk_save_ranks_save")),
        sa.PrimaryKeyConstraint("save", "rank", name=op.f("pk_save_ranks")),
    )
