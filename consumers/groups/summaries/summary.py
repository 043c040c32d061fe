"""What every summariser returns."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, the model that made it, what it cost, and what people should know about it.

    `estimated_tokens` are those, of input and output, that the provider did not tell. All are None where no provider
    was asked.
    """

    text: str
    model: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    estimated_tokens: int | None = None
    warnings: list[str] = field(default_factory=list)
