"""The tables. Instants are integer epoch milliseconds; money is integer nano-units.

Rules that must hold whatever the code does are kept by the database: one gang holds a slot, one
lease holds a GPU, an open lease has at most one open interval, a port has one user.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from gangline.model.gang import End, Progress, RdmaProof, Resume
from gangline.model.node import Strike
from gangline.model.states import Cause, GangState, NodeLifecycle, Phase
from gangline.model.volume import FileEntry
from gangline.store.columns import Choice, Json, Listed, Spec, Value, Values

REVISIONS = ("0001", "0002", "0003", "0004", "0005")

metadata = MetaData(naming_convention={
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
})

counters = Table(
    "counters", metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)

nodes = Table(
    "nodes", metadata,
    Column("name", Text, primary_key=True),
    Column("ordinal", Integer, nullable=False, unique=True),
    Column("pool", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("gpu_type", Text, nullable=False),
    Column("gpu_count", Integer, nullable=False),
    Column("zone", Text, nullable=False),
    Column("fabric", Text),
    Column("path", Listed, nullable=False),
    Column("domain", Text),
    Column("address", Text, nullable=False),
    Column("emulated", Boolean, nullable=False),
    Column("origin", Text, nullable=False),
    Column("lifecycle", Choice(NodeLifecycle), nullable=False),
    Column("drain_owner", Text),
    Column("drain_reason", Text, nullable=False),
    Column("healthy", Boolean, nullable=False),
    Column("incarnation", Text),
    Column("boot_done_ms", BigInteger),
    Column("idle_ms", BigInteger, nullable=False, server_default="0"),
    Column("strikes", Values(Strike), nullable=False, server_default="[]"),
    Column("foreign_gpus", Integer, nullable=False, server_default="0"),
    Column("foreign_jobs", Listed, nullable=False, server_default="[]"),
    Column("engine_text", Text, nullable=False, server_default=""),
    Column("price_nano_per_gpu_hour", BigInteger, nullable=False),
    Column("currency", Text, nullable=False),
)

gangs = Table(
    "gangs", metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("slot", Text, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("state", Choice(GangState), nullable=False),
    Column("active", Boolean, nullable=False),
    Column("spec", Spec, nullable=False),
    Column("digest", Text, nullable=False),
    Column("snapshot", Text),
    Column("interpreter", Text),
    Column("pinned", Json, nullable=False),
    Column("submitted_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger),
    Column("previous", Text, ForeignKey("gangs.id")),
    Column("owner", Integer, nullable=False),
    Column("token_hash", Text, nullable=False),
    Column("watched_ms", BigInteger, nullable=False),
    Column("orphan_after_ms", BigInteger),
    Column("timeout_ms", BigInteger),
    Column("ran_ms", BigInteger, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("avoid", Listed, nullable=False),
    Column("cancel_cause", Choice(Cause)),
    Column("cancel_text", Text),
    Column("end", Value(End)),
    Column("progress", Value(Progress), nullable=False),
    Column("preempted_ms", BigInteger, nullable=False, server_default="0"),
    Column("resized_ms", BigInteger, nullable=False, server_default="0"),
    Index(None, "slot", "seq"),
    Index(None, "state", "seq"),
    Index("ux_gangs_active_slot", "slot", unique=True,
          sqlite_where=text("active"), postgresql_where=text("active")),
)

attempts = Table(
    "attempts", metadata,
    Column("gang", Text, ForeignKey("gangs.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("phase", Choice(Phase), nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("issued_ms", BigInteger, nullable=False),
    Column("running_ms", BigInteger),
    Column("stopped_ms", BigInteger),
    Column("ended_ms", BigInteger),
    Column("zone", Text, nullable=False),
    Column("fabric", Text),
    Column("master_addr", Text, nullable=False),
    Column("master_port", Integer, nullable=False),
    Column("world_size", Integer, nullable=False),
    Column("resume", Values(Resume), nullable=False),
    Column("rdma", Value(RdmaProof), nullable=False),
    Column("emulated", Boolean, nullable=False),
    Column("grace_ms", BigInteger, nullable=False),
    Column("end", Value(End)),
    Column("give_up", Listed, nullable=False, server_default="[]"),
    Column("want", Integer),
    Column("pool", Text),
    Column("job", Text),
    Column("launched_ms", BigInteger),
    Column("job_text", Text, nullable=False, server_default=""),
    Index("ix_attempts_hosted", "pool", sqlite_where=text("ended_ms IS NULL"),
          postgresql_where=text("ended_ms IS NULL")),
)

members = Table(
    "members", metadata,
    Column("gang", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("node_rank", Integer, primary_key=True, autoincrement=False),
    Column("node", Text, ForeignKey("nodes.name"), nullable=False),
    Column("role", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("gpus", Listed, nullable=False),
    Column("gpu_type", Text, nullable=False),
    Column("incarnation", Text),
    Column("ready_ms", BigInteger),
    Column("started_ms", BigInteger),
    Column("empty_ms", BigInteger),
    Column("lost", Boolean, nullable=False),
    ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"]),
    Index("ix_members_node_busy", "node",
          sqlite_where=text("empty_ms IS NULL"), postgresql_where=text("empty_ms IS NULL")),
)

ranks = Table(
    "ranks", metadata,
    Column("gang", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("node_rank", Integer, nullable=False),
    Column("local_rank", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("cause", Choice(Cause)),
    Column("exit_code", Integer),
    Column("signal", Text),
    Column("result", Json),
    ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"]),
)

leases = Table(
    "leases", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("gang", Text, ForeignKey("gangs.id"), nullable=False),
    Column("node", Text, ForeignKey("nodes.name"), nullable=False),
    Column("gpus", Listed, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("pool", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("slot", Text, nullable=False),
    Column("opened_ms", BigInteger, nullable=False),
    Column("closed_ms", BigInteger),
    Column("price_nano_per_gpu_hour", BigInteger, nullable=False),
    Column("currency", Text, nullable=False),
    Index(None, "gang"),
    Index("ux_leases_open", "gang", "node", unique=True,
          sqlite_where=text("closed_ms IS NULL"), postgresql_where=text("closed_ms IS NULL")),
)

# A row is a GPU that is leased now; the key is what makes a double lease impossible.
lease_gpus = Table(
    "lease_gpus", metadata,
    Column("node", Text, ForeignKey("nodes.name"), primary_key=True),
    Column("gpu", Integer, primary_key=True, autoincrement=False),
    Column("lease", BigInteger, ForeignKey("leases.id"), nullable=False),
    Index(None, "lease"),
)

intervals = Table(
    "intervals", metadata,
    Column("lease", BigInteger, ForeignKey("leases.id"), primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("attempt", Integer, nullable=False),
    Column("phase", Choice(Phase), nullable=False),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger),
    Index("ux_intervals_open", "lease", unique=True,
          sqlite_where=text("end_ms IS NULL"), postgresql_where=text("end_ms IS NULL")),
    Index(None, "end_ms"),
)

ports = Table(
    "ports", metadata,
    Column("host", Text, primary_key=True),
    Column("port", Integer, primary_key=True, autoincrement=False),
    Column("gang", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"]),
)

volumes = Table(
    "volumes", metadata,
    Column("name", Text, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)

versions = Table(
    "versions", metadata,
    Column("volume", Text, ForeignKey("volumes.name"), primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("directory", Text, nullable=False),
    Column("manifest_sha256", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("files", Integer, nullable=False),
    Column("parent", Integer),
    Column("step", BigInteger),
    Column("metrics", Json, nullable=False),
    Column("gang", Text, ForeignKey("gangs.id")),
    Column("attempt", Integer),
    Column("slot", Text),
    Column("format", Text, nullable=False),
    Column("damaged", Text),
    Column("created_ms", BigInteger, nullable=False),
    UniqueConstraint("volume", "directory"),
    Index(None, "slot", "volume"),
    Index(None, "gang"),
)

pointers = Table(
    "pointers", metadata,
    Column("volume", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(["volume", "version"], ["versions.volume", "versions.version"]),
)

saves = Table(
    "saves", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("gang", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("mount", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("volume", Text, ForeignKey("volumes.name"), nullable=False),
    Column("directory", Text, nullable=False),
    Column("step", BigInteger),
    Column("state", Text, nullable=False),
    Column("manifest", Text),
    Column("version", Integer),
    Column("error", Text),
    Column("opened_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(["gang", "attempt"], ["attempts.gang", "attempts.number"]),
    UniqueConstraint("gang", "attempt", "generation", "mount", "key"),
    UniqueConstraint("volume", "directory"),
    Index(None, "state"),
)

save_ranks = Table(
    "save_ranks", metadata,
    Column("save", BigInteger, ForeignKey("saves.id"), primary_key=True, autoincrement=False),
    Column("rank", Integer, primary_key=True, autoincrement=False),
    Column("files", Values(FileEntry), nullable=False),
    Column("format", Text, nullable=False),
    Column("metrics", Json, nullable=False),
    Column("extra", Json, nullable=False),
)

events = Table(
    "events", metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("gang", Text),
    Column("data", Json, nullable=False),
    Index(None, "gang", "seq"),
)

# What a person asked a pool to be; a pool without a row is as large as its work asks for.
pool_sizes = Table(
    "pool_sizes", metadata,
    Column("pool", Text, primary_key=True),
    Column("wanted", Integer, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

# `plan` and `inputs` are compressed JSON, `size_bytes` both of them, `inputs` NULL when nothing was decided.
passes = Table(
    "passes", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("duration_us", BigInteger, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("pending", Integer, nullable=False),
    Column("placed", Integer, nullable=False),
    Column("asked", Integer, nullable=False),
    Column("released", Integer, nullable=False),
    Column("preempted", Integer, nullable=False),
    Column("resized", Integer, nullable=False),
    Column("retired", Integer, nullable=False),
    Column("refused", Integer, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("plan", LargeBinary, nullable=False),
    Column("inputs", LargeBinary),
    Column("faults", Listed, nullable=False, server_default="[]"),
)
