"""`harbor-assets doctor`: what is wrong with a cluster, a service or this machine, and what to do about it."""
