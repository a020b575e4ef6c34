"""The production planner under a virtual clock: traces in, waits and utilisation per policy out.

Nothing here reads a clock but the timer of `pass_ms`; randomness comes from a seed.
"""
