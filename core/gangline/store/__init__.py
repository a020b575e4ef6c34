"""The durable picture: gangs, leases, nodes, versions and events, behind named verbs."""

from gangline.store.store import Store, Transaction
from gangline.store.values import (
    Attempt,
    Gang,
    Interval,
    Lease,
    Member,
    Node,
    Pass,
    Rank,
    Save,
    SavedRank,
    Success,
)

__all__ = ["Attempt", "Gang", "Interval", "Lease", "Member", "Node", "Pass", "Rank", "Save", "SavedRank", "Store",
           "Success", "Transaction"]
