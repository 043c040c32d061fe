"""Where a webhook may go: never to the internal network, unless the settings allow it.

The address that was checked is the one that is connected to: a name that resolves to something else a moment
later changes nothing (gotempsh/temps#332).
"""

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import httpx

from offsetzero.errors import OffsetzeroError

MAX_URL = 2048
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_HINT = (
    "where that is meant, in development, set OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS=true for the API and the "
    "notifier: it allows http:// and private addresses"
)
# Not the six threads that an event loop has for everybody: a name server that does not answer holds each that asks for
# half a minute, whatever the time-out, and then nothing else that needs a thread went on, connections to the database
# among it. What a tenant may ask of it is limited where webhooks are tried.
_RESOLVERS = ThreadPoolExecutor(32, thread_name_prefix="resolve-webhook")
# Prefixes that carry an IPv4 address in an IPv6 one: NAT64 and its local-use range.
_EMBEDDING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
# Python calls a few addresses in here global; none of them is a receiver of webhooks (RFC 6890).
_PROTOCOL_ASSIGNMENTS = ipaddress.IPv4Network("192.0.0.0/24")


class TargetRefused(OffsetzeroError):
    """A URL that no webhook may go to.

    Args:
        said: a sentence for the tenant.
        hint: what the operator may do about it, who alone knows the settings.
    """

    def __init__(self, said: str, hint: str = "") -> None:
        super().__init__(said)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Target:
    """A URL and the address that its host had when it was checked."""

    url: httpx.URL
    address: _Address

    @property
    def pinned(self) -> httpx.URL:
        """The URL with the address in place of the name."""
        return self.url.copy_with(host=str(self.address))

    @property
    def name(self) -> str:
        """The host as TLS names it, internationalised names in ASCII."""
        return self.url.raw_host.decode("ascii")

    @property
    def host_header(self) -> str:
        """The header `Host`: the name, with a port that is not the default one."""
        return self.url.netloc.decode("ascii")


def check_url(url: str, *, allow_private: bool) -> httpx.URL:
    """Check what can be told without resolving the name.

    Args:
        allow_private: also `http://` and private addresses.

    Raises:
        TargetRefused: it is none.
    """
    if len(url) > MAX_URL:
        raise TargetRefused(f"the URL is longer than {MAX_URL} characters")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise TargetRefused(f"not a URL: {error}") from error
    if parsed.scheme not in (("https", "http") if allow_private else ("https",)) or not parsed.host:
        hint = _HINT if parsed.scheme == "http" and parsed.host else ""
        raise TargetRefused("the URL must start with https:// and name a host", hint)
    if parsed.port is not None and not 1 <= parsed.port <= 65535:
        raise TargetRefused("the URL's port must be one from 1 to 65535")
    if parsed.userinfo:
        raise TargetRefused("the URL must not contain a user or a password")
    if parsed.fragment:
        raise TargetRefused("the URL must not contain a fragment (#…)")
    try:
        address = ipaddress.ip_address(parsed.host)
    except ValueError:
        return parsed
    if not allow_private and not is_public(address):
        raise TargetRefused(f"{parsed.host} is not a public address", _HINT)
    return parsed


async def resolve(url: str, *, allow_private: bool) -> Target:
    """Check a URL and resolve its host; refused when any of its addresses is not public.

    Raises:
        TargetRefused: it leads to where no webhook may go.
        OSError: the name cannot be resolved.
    """
    parsed = check_url(url, allow_private=allow_private)
    ask = partial(
        socket.getaddrinfo,
        parsed.raw_host.decode("ascii"),
        parsed.port or (443 if parsed.scheme == "https" else 80),
        type=socket.SOCK_STREAM,
    )
    found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, ask)
    addresses = [ipaddress.ip_address(str(item[4][0]).split("%")[0]) for item in found]
    if not addresses:
        raise OSError(f"{parsed.host} has no address")
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                # Without the address: tenants see this, and the internal network's names are not theirs to resolve.
                raise TargetRefused(f"{parsed.host} has an address that is not public", _HINT)
    # IPv4 first where there is both: a receiver without working IPv6 is more common than the reverse.
    return Target(parsed, min(addresses, key=lambda address: address.version))


def is_public(address: _Address) -> bool:
    """Whether an address is one of the public internet, also when it carries another one inside."""
    inside: _Address | None = None
    if isinstance(address, ipaddress.IPv6Address):
        inside = address.ipv4_mapped or address.sixtofour
        if inside is None and address.teredo is not None:
            return False
        if inside is None and any(address in network for network in _EMBEDDING):
            inside = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inside is not None:
            return is_public(inside)
        if address.is_site_local:  # deprecated, and still the inside of somebody's network (RFC 3879)
            return False
    if address in _PROTOCOL_ASSIGNMENTS:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved
