"""What runs on a node: one supervisor, keepers of process trees, and a template that starts ranks warm.

Modules that a keeper, a template or a sweep needs use the standard library only: they start in tens of
milliseconds, and may be run where nothing is installed.
"""
