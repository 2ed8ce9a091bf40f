"""What Dagster is told: materialisations, observations and checks, with the metadata that people read beside them.

Made the same way wherever the event comes from: a laptop's worker, a deployment's sensor, a job started in the UI.
Metadata holds names, digests, figures and places. Texts that come from tasks, agents or verifiers stand in it as plain
text, or with every sign of Markdown and HTML escaped; arguments of agents, which may be secret, never.
"""
