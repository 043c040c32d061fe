"""Sentences for people, as columns of text take them."""

MOST = 2000
"""Characters: what is wrong is said in the first ones, and an error may quote megabytes."""


def storable(text: str, most: int = MOST) -> str:
    """A sentence without what PostgreSQL refuses in text (NUL, half a surrogate pair), and not too long.

    Args:
        text: of an error, of anybody.
        most: characters that are kept.
    """
    return text[:most].replace("\0", "\ufffd").encode(errors="replace").decode()
