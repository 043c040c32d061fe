"""Reading of documents in child processes: what a hostile file does to its reader, it does to nothing else."""

from offsetzero.consumers.groups.extraction.pool import ReaderPool

__all__ = ["ReaderPool"]
