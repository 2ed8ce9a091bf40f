"""harbor-assets: suites of Harbor tasks, published, run in sandboxes, and scored with an account of every trial."""
