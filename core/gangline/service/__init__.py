"""The use cases: ensure, observe, cancel, place, report, publish, usage. Each is one transaction.

Time and ids are arguments; nothing here reads a clock. What may happen to an attempt is in `life`.
"""
