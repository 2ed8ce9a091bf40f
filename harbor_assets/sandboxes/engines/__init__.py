"""The sandboxes `docker` and `podman`: one container for each, through the engine's own command."""
