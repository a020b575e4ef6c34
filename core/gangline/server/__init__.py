"""HTTP handlers over the service, and the composition root of `gangline serve`. No decisions, no SQL."""
