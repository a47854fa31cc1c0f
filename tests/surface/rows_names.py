"""Name resolution."""
import asyncio
import itertools
import socket
import threading

from support.net import LOOPBACK, has_ipv6
from support.waiting import soon

from surface.checks import equal, raises
from surface.rows import Unavailable, subject

row = subject("Name resolution")


@row("getaddrinfo(host=, port=)")
async def getaddrinfo(loop):
    found = await soon(loop.getaddrinfo("localhost", 80))
    equal(sorted(found), sorted(socket.getaddrinfo("localhost", 80)))


@row("getaddrinfo(family=)")
async def family(loop):
    found = await soon(loop.getaddrinfo("localhost", 80, family=socket.AF_INET))
    equal({entry[0] for entry in found}, {socket.AF_INET})
    with raises(socket.gaierror):
        await loop.getaddrinfo("::1", 80, family=socket.AF_INET)


@row("getaddrinfo(type=)")
async def type_(loop):
    found = await soon(loop.getaddrinfo(LOOPBACK, 80, type=socket.SOCK_DGRAM))
    equal({entry[1] for entry in found}, {socket.SOCK_DGRAM})


@row("getaddrinfo(proto=)")
async def proto(loop):
    found = await soon(loop.getaddrinfo(LOOPBACK, 80, proto=socket.IPPROTO_UDP))
    equal({entry[2] for entry in found}, {socket.IPPROTO_UDP})


@row("getaddrinfo(flags=)")
async def flags(loop):
    with raises(socket.gaierror):
        await loop.getaddrinfo("localhost", 80, flags=socket.AI_NUMERICHOST)
    found = await soon(loop.getaddrinfo(None, 80, flags=socket.AI_PASSIVE, family=socket.AF_INET))
    equal({entry[4] for entry in found}, {("0.0.0.0", 80)})


@row("getaddrinfo() answers as socket.getaddrinfo(), 288 questions")
async def same_answers(loop):
    async def answer(function, *args, **options):
        try:
            found = function(*args, **options)
            return await found if asyncio.iscoroutine(found) else found
        except (OSError, UnicodeError) as exc:
            return type(exc)

    for host, port, family, type_, flags in itertools.product(
        ("127.0.0.1", "::1", None, b"127.0.0.1", "fe80::1%lo", "localhost"),
        (80, "80", None, "http"),
        (0, socket.AF_INET, socket.AF_INET6),
        (0, socket.SOCK_STREAM),
        (0, socket.AI_PASSIVE),
    ):
        options = {"family": family, "type": type_, "flags": flags}
        wanted = await answer(socket.getaddrinfo, host, port, **options)
        found = await answer(loop.getaddrinfo, host, port, **options)
        equal(found, wanted, f"{host!r}, {port!r}, {options}")


@row("getaddrinfo() of a scoped address keeps its zone")
async def zone(loop):
    if not has_ipv6():
        raise Unavailable("no IPv6")
    found = await soon(loop.getaddrinfo("fe80::1%lo", 80))
    equal({entry[4][3] for entry in found}, {socket.if_nametoindex("lo")})


@row("getaddrinfo() of an address needs no thread")
async def no_thread(loop):
    await loop.getaddrinfo(LOOPBACK, 80)
    await loop.getaddrinfo("::1", 80)
    equal([thread.name for thread in threading.enumerate()
           if thread is not threading.current_thread()], [], "threads")


@row("getaddrinfo() of an unknown name is a gaierror")
async def unknown(loop):
    with raises(socket.gaierror):
        await soon(loop.getaddrinfo("no such name", 80))


@row("getnameinfo(sockaddr=)")
async def getnameinfo(loop):
    equal(await soon(loop.getnameinfo((LOOPBACK, 80))), socket.getnameinfo((LOOPBACK, 80), 0))


@row("getnameinfo(flags=)")
async def getnameinfo_flags(loop):
    numeric = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV
    equal(await soon(loop.getnameinfo((LOOPBACK, 80), numeric)), (LOOPBACK, "80"))
    equal(await soon(loop.getnameinfo(("::1", 80), numeric)), ("::1", "80"))
