"""Replay: a group reads once more what it has read, or a side job does so on its behalf."""
