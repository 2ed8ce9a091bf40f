"""What the jobs of the Launchpad do. Each calls what the command line calls."""
