"""The Kubernetes engine: one Indexed Job or JobSet per attempt, and a watch that knows of every node and job."""
