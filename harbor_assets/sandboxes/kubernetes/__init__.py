"""The `kubernetes` sandbox: one pod per sandbox, by Harbor's environment interface. `environment.py` is the way in."""
