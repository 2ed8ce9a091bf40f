"""The `process` sandbox: a task runs on a copy-on-write view of this machine, in namespaces of its own. No engine.

For checking suites, not for containing an adversary: root inside is the machine's root with most rights taken away, and
no system call is filtered. Keep this file free of imports: the sandbox's own processes start through it.
"""
