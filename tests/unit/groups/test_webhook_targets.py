"""A webhook never opens the internal network."""

import asyncio
import ipaddress
import socket
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsetzero.consumers.groups.webhooks import targets
from offsetzero.consumers.groups.webhooks.targets import TargetRefused


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # metadata of clouds
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "fec0::1",
        "192.0.0.8",
    ],
)
def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not targets.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "64:ff9b::101:101", "::ffff:8.8.8.8"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert targets.is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://example.com/",
        "https://",
        "https:///path",
        "example.com",
        "https://user:password@example.com/",
        "https://example.com/#part",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://example.com/\x00",
        "https://example.com/" + "x" * 2048,
        "https://[not-an-address]/",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:99999999999999999999/",
    ],
)
def test_bad_urls_are_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(TargetRefused) as caught:
        targets.check_url(url, allow_private=False)
    assert str(caught.value)


@pytest.mark.parametrize("url", ["http://receiver.test/", "https://127.0.0.1/", "https://10.0.0.8:8080/hook"])
def test_the_operator_is_told_the_setting_that_would_allow_it_and_the_tenant_is_not(url: str) -> None:
    with pytest.raises(TargetRefused) as caught:
        targets.check_url(url, allow_private=False)
    assert "OFFSETZERO_WEBHOOKS__ALLOW_PRIVATE_TARGETS=true" in caught.value.hint
    assert "OFFSETZERO" not in str(caught.value)


@pytest.mark.parametrize("url", ["ftp://receiver.test/", "https:///path", "http://"])
def test_what_no_setting_allows_gets_no_such_hint(url: str) -> None:
    with pytest.raises(TargetRefused) as caught:
        targets.check_url(url, allow_private=False)
    assert caught.value.hint == ""


def test_development_may_use_http_and_loopback() -> None:
    assert targets.check_url("http://127.0.0.1:8000/hook", allow_private=True).port == 8000


@given(st.text(max_size=60))
def test_any_text_is_checked_without_another_error(text: str) -> None:
    for url in (text, "https://" + text):
        try:
            targets.check_url(url, allow_private=False)
        except TargetRefused:
            continue


def _resolver(*answers: list[str]) -> Any:
    left = list(answers)

    def getaddrinfo(host: str, port: int, *_rest: object, **_options: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in left.pop(0)]

    return getaddrinfo


def _resolve(url: str) -> targets.Target:
    return asyncio.run(targets.resolve(url, allow_private=False))


def test_one_private_address_among_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _resolver(["1.1.1.1", "10.0.0.1"]))
    with pytest.raises(TargetRefused, match="has an address that is not public") as caught:
        _resolve("https://receiver.test/")
    assert "10.0.0.1" not in str(caught.value), "tenants see it, and may not look up names of the internal network"


def test_a_name_server_that_does_not_answer_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def getaddrinfo(*_arguments: object, **_options: object) -> list[Any]:
        asked.wait(60)
        raise OSError("no answer")

    async def other_work() -> None:
        asking = [asyncio.create_task(targets.resolve("https://slow.test/", allow_private=False)) for _ in range(32)]
        await asyncio.sleep(0)  # each has asked
        try:
            async with asyncio.timeout(20):
                await asyncio.to_thread(int)
        finally:
            asked.set()
            await asyncio.gather(*asking, return_exceptions=True)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    asyncio.run(other_work())


def test_the_checked_address_is_the_one_that_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """gotempsh/temps#332: the name led elsewhere a moment after the check."""
    monkeypatch.setattr(socket, "getaddrinfo", _resolver(["1.1.1.1"], ["127.0.0.1"]))
    target = _resolve("https://receiver.test:8443/hook?a=1")
    assert str(target.pinned) == "https://1.1.1.1:8443/hook?a=1"
    assert (target.host_header, target.name) == ("receiver.test:8443", "receiver.test")


def test_an_ipv6_address_is_written_with_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _resolver(["2606:4700:4700::1111"]))
    assert str(_resolve("https://receiver.test/").pinned) == "https://[2606:4700:4700::1111]/"


def test_international_names_are_resolved_in_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", _resolver(["1.1.1.1"]))
    assert _resolve("https://bücher.example/").name == "xn--bcher-kva.example"
