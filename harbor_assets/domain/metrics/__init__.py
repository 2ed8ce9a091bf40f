"""Metrics: their definitions, what they give, how they are stored, and the formulas of those that need no model."""
