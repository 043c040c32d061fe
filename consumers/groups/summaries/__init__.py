"""Ways to summarise a text: on this machine, or by an OpenAI-compatible endpoint."""

from offsetzero.consumers.groups.summaries.summary import Summary

__all__ = ["Summary"]
