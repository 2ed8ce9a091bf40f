"""Runs on Kubernetes: Jobs, their names and sizes, what their pods say, and who cleans up after them.

`manifests` and `diagnosis` are pure. `launcher` and `executor` are loaded by every Dagster process, so they import no
Kubernetes library; `steps` and `workers` hold what they stand for.
"""
