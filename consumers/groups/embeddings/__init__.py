"""Vectors of texts, by an OpenAI-compatible endpoint: asked for in batches, checked, and kept."""

from offsetzero.consumers.groups.embeddings.endpoint import PROVIDER, QUERIES, ask, model_of, read

__all__ = ["PROVIDER", "QUERIES", "ask", "model_of", "read"]
