"""The shape of the answer of `GET /usage`."""

from datetime import datetime

from pydantic import BaseModel, Field


class UsageCounts(BaseModel):
    """What was counted in a span of time, by when it happened."""

    uploaded: int = Field(description="Documents uploaded, through the API or published to the log")
    bytes: int = Field(description="Their size")
    deleted: int = Field(description="Documents deleted")
    succeeded: int = Field(description="Runs that ended so")
    failed: int
    cancelled: int
    uploaded_per_minute: float
    ended_per_minute: float
    mean_seconds: float | None = Field(description="From the acceptance of a document to the end of its run")
    longest_seconds: float | None


class UsageWindow(UsageCounts):
    """One window that holds something."""

    start: datetime


class UsageAnswer(BaseModel):
    """The windows that hold something, oldest first, and their sum. It follows the log by some seconds."""

    window_seconds: int
    keep_seconds: int = Field(description="For how long a window is kept after its end; `total` is over this span")
    complete: bool = Field(description="Whether all partitions were asked; if not, the counts are too low")
    total: UsageCounts
    windows: list[UsageWindow]
