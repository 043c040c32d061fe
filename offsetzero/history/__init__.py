"""The log as a history to look at, to keep and to bring back: decoded, exported, imported, archived."""
