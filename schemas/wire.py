"""Avro binary, strictly: the few forms that a value may have, and the refusals of all others.

fastavro reads some malformed bytes as something else (a boolean byte 2, a union index of -1, an 11-byte
varint, an int over 32 bits, trailing bytes), lets five bytes grow to ten million nulls, and recurses without
a bound. The readers that `offsetzero.schemas.reader` generates call these functions for what is not plain.
"""

from typing import NoReturn

from offsetzero.errors import DecodeError

MAX_DEPTH = 64
"""Nested records, arrays and maps in one payload; a schema may refer to itself."""
MAX_EMPTY_VALUES = 10_000
"""Values that take no byte (nulls, empty records), in one payload: a few bytes must not fill the memory."""
_MAX_VARINT = 10
_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and the position behind it.

    Raises:
        DecodeError: longer than ten bytes, or over 64 bits.
        IndexError: the data end inside it.
    """
    # Unrolled up to six bytes, which a timestamp takes: nearly every event has one.
    value = data[at]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), at + 1
    value += ((byte := data[at + 1]) << 7) - 0x80
    if byte < 0x80:
        return (value >> 1) ^ -(value & 1), at + 2
    value += ((byte := data[at + 2]) << 14) - 0x4000
    if byte < 0x80:
        return (value >> 1) ^ -(value & 1), at + 3
    value += ((byte := data[at + 3]) << 21) - 0x20_0000
    if byte < 0x80:
        return (value >> 1) ^ -(value & 1), at + 4
    value += ((byte := data[at + 4]) << 28) - 0x1000_0000
    if byte < 0x80:
        return (value >> 1) ^ -(value & 1), at + 5
    value += ((byte := data[at + 5]) << 35) - 0x8_0000_0000
    if byte < 0x80:
        return (value >> 1) ^ -(value & 1), at + 6
    return _read_long_of_many(data, at)


def _read_long_of_many(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _MAX_VARINT]:
        at += 1
        value += (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                raise DecodeError(f"byte {at}: a number of more than 64 bits")
            return (value >> 1) ^ -(value & 1), at
    if shift == 7 * _MAX_VARINT:
        raise DecodeError(f"byte {at}: a number of more than ten bytes")
    raise IndexError(at)


def read_int(data: bytes, at: int) -> tuple[int, int]:
    value, end = read_long(data, at)
    if not _INT_MIN <= value <= _INT_MAX:
        raise DecodeError(f"byte {at}: {value} does not fit an int of 32 bits")
    return value, end


def span(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of bytes with their length before them."""
    length, start = read_long(data, at)
    if not 0 <= length <= len(data) - start:
        too_long(start, length, len(data))
    return start, start + length


def too_long(start: int, length: int, end: int) -> NoReturn:
    raise DecodeError(f"byte {start}: a length of {length}, but {end - start} bytes are left")


def index(data: bytes, at: int, what: str, count: int) -> tuple[int, int]:
    index, end = read_long(data, at)
    if not 0 <= index < count:
        raise DecodeError(f"byte {at}: {what} index {index}, there are {count}")
    return index, end


def no_boolean(data: bytes, at: int) -> NoReturn:
    raise DecodeError(f"byte {at}: {data[at]} is no boolean")


def too_few(at: int, size: int, end: int) -> NoReturn:
    raise DecodeError(f"byte {at}: {size} bytes are needed, {end - at} are left")


def too_deep(at: int) -> NoReturn:
    raise DecodeError(f"byte {at}: nested more than {MAX_DEPTH} deep")


def no_text(at: int) -> DecodeError:
    return DecodeError(f"byte {at}: a string that is not UTF-8")


def charge(left: list[int], values: int, at: int) -> None:
    left[0] -= values
    if left[0] < 0:
        raise DecodeError(f"byte {at}: more than {MAX_EMPTY_VALUES} values that take no space")


def cut_off(data: bytes) -> DecodeError:
    return DecodeError(f"payload ends in the middle of a value ({len(data)} bytes)")


def ended(data: bytes, at: int) -> NoReturn:
    raise DecodeError(f"{len(data) - at} bytes behind the value, from byte {at}")


def misfit(at: int, stop: int) -> NoReturn:
    raise DecodeError(f"byte {at}: the block's items end here, but its size says byte {stop}")
