"""Ray as an engine: `engine.RayEngine` in the server, an envoy process per cluster that speaks to Ray for it, and a
warden on each node of a job that holds the supervisor on a leash.

```
server: RayEngine ──JSON lines──▶ envoy (a Ray driver) ──▶ Ray ──▶ warden (an actor) ──▶ leash ──▶ supervisor
```
"""
