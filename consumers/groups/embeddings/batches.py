"""Which texts are asked about in one call: providers limit their number and their tokens. Pure."""

from collections.abc import Iterable, Iterator


def split(texts: Iterable[str], most_texts: int, most_bytes: int) -> Iterator[list[str]]:
    """The texts in their order, in as few batches as go.

    Args:
        texts: any number.
        most_texts: of a batch.
        most_bytes: of the texts of a batch in UTF-8; one text that is larger is a batch of its own.
    """
    batch: list[str] = []
    size = 0
    for text in texts:
        own = len(text.encode())
        if batch and (len(batch) == most_texts or size + own > most_bytes):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += own
    if batch:
        yield batch
