"""What runs on the sandbox's side of the wall: `worker -> keeper -> init (pid 1) -> supervisor -> command`.

These modules are started as `python -I -S` and pay for every import: the standard library's C modules stand in for
`socket`, `signal` and `json`, which cost more than the sandbox itself (10 of 30 ms). `marshal` carries the messages:
both ends are the same interpreter, and nothing that a task wrote is ever parsed with it.
"""
