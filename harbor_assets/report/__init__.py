"""Draws a run's report: one self-contained HTML page."""

from harbor_assets.report.html import HtmlReport

__all__ = ["HtmlReport"]
