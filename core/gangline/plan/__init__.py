"""Pure decisions: `plan(snapshot, policy, now_ms) -> Plan`. No clock, no I/O, no randomness, no logging."""
