"""Ciphertext cut, joined, broken and cut short, by a far end that this file steers by the byte."""
import asyncio
import ssl

import pytest
from support.loops import differs_from_asyncio, without_debug
from support.net import tcp_pair
from support.protocols import Recorder, ViewRecorder
from support.tls import TLSPeer, client_context, server_context
from support.waiting import quiet, turns

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
APPLICATION_DATA = 23


class Line:
    """A connection whose far end is a TLSPeer, in either role."""

    def __init__(self, loop, factory=Recorder, *, version=ssl.TLSVersion.TLSv1_3, client=True):
        near, far = tcp_pair()
        self.loop, self.client = loop, client
        self.near = near
        ours, theirs = client_context(), server_context()
        if not client:
            ours, theirs = theirs, ours
        theirs.minimum_version = theirs.maximum_version = version
        self.ours = ours
        self.factory = factory
        self.peer = TLSPeer(far, theirs, server_side=client,
                            server_hostname=None if client else "localhost")

    async def __aenter__(self):
        handshake = self.loop.create_task(self.peer.handshake())
        if self.client:
            opened = self.loop.create_connection(
                self.factory, sock=self.near, ssl=self.ours, server_hostname="localhost")
        else:
            opened = self.loop.connect_accepted_socket(self.factory, self.near, ssl=self.ours)
        self.transport, self.protocol = await opened
        await handshake
        return self

    async def __aexit__(self, *exc_info):
        self.transport.abort()
        self.peer.close()
        await self.protocol.until_lost()
        await quiet()

    def seal(self, data):
        """`data` as ciphertext, not sent."""
        self.peer.tls.write(data)
        return self.peer.outgoing.read()

    async def send_raw(self, data):
        """Put it on the wire as it is."""
        await super(TLSPeer, self.peer).send(data)


both_roles = pytest.mark.parametrize("client", [True, False], ids=["client", "server"])
both_versions = pytest.mark.parametrize("version", VERSIONS, ids=str)


def records_of(ciphertext):
    """(type, bytes) of each record."""
    at = 0
    while at < len(ciphertext):
        size = 5 + int.from_bytes(ciphertext[at + 3:at + 5], "big")
        yield ciphertext[at], ciphertext[at:at + size]
        at += size


@without_debug("a thousand turns")
@both_roles
@both_versions
async def test_byte_by_byte(loop, client, version):
    async with Line(loop, client=client, version=version) as line:
        ciphertext = line.seal(b"first") + line.seal(b"second" * 20)
        for i in range(len(ciphertext)):
            await line.send_raw(ciphertext[i:i + 1])
            await turns(1)
        assert await line.protocol.until_received(125) == b"first" + b"second" * 20


@pytest.mark.parametrize("size", [1, 2, 7, 100, 16384])
async def test_small_buffers_of_a_buffered_protocol(loop, size):
    data = bytes(range(256)) * 8
    async with Line(loop, lambda: ViewRecorder(size)) as line:
        await line.send_raw(b"".join(line.seal(data[i:i + 500]) for i in range(0, 2048, 500)))
        assert await line.protocol.until_received(len(data)) == data


async def test_records_without_data(loop):
    """OpenSSL lets some of them pass; they are nobody's data."""
    async with Line(loop, version=ssl.TLSVersion.TLSv1_2, client=False) as line:
        line.peer.tls.write(b"a")
        await line.send_raw(line.peer.outgoing.read())
        await line.protocol.until_received(1)
        assert ("data_received", b"") not in line.protocol.calls


async def test_more_than_one_read_holds(loop):
    data = b"0123456789abcdef" * 65536
    async with Line(loop) as line:
        sending = asyncio.ensure_future(line.peer.send(data))
        assert await line.protocol.until_received(len(data)) == data
        await sending


@differs_from_asyncio("what came before the broken record in the same segment is lost")
@both_roles
async def test_broken_record_ends_the_connection_after_what_came_before(loop, client):
    async with Line(loop, client=client) as line:
        good, bad = line.seal(b"good"), bytearray(line.seal(b"never seen"))
        bad[-1] ^= 1
        await line.send_raw(good + bad)
        exc = await line.protocol.until_lost()
        assert isinstance(exc, ssl.SSLError)
        assert (exc.library, exc.reason) == ("SSL", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC")
        assert line.protocol.received == b"good"
        assert line.protocol.count("eof_received") == 0


@differs_from_asyncio("the alert is not sent, so the peer finds only a reset connection")
async def test_peer_hears_why(loop):
    async with Line(loop) as line:
        bad = bytearray(line.seal(b"never seen"))
        bad[-1] ^= 1
        await line.send_raw(bad)
        with pytest.raises(ssl.SSLError) as told:
            await line.peer.recv()
        assert told.value.reason == "SSLV3_ALERT_BAD_RECORD_MAC"
        assert isinstance(await line.protocol.until_lost(), ssl.SSLError)


async def test_something_that_is_no_record(loop):
    async with Line(loop) as line:
        await line.send_raw(b"GET / HTTP/1.1\r\n\r\n")
        exc = await line.protocol.until_lost()
        assert isinstance(exc, ssl.SSLError)
        assert exc.reason == "WRONG_VERSION_NUMBER"
        assert line.protocol.received == b""


@both_versions
async def test_cut_short_within_a_record(loop, version):
    """The part of a record is not delivered; the rest is an end of stream, as in asyncio."""
    async with Line(loop, version=version) as line:
        whole, part = line.seal(b"whole"), line.seal(b"part")
        await line.send_raw(whole + part[:-3])
        line.peer.close()
        assert await line.protocol.until_lost() is None
        assert line.protocol.received == b"whole"
        assert line.protocol.names[-2:] == ["eof_received", "connection_lost"]


@both_roles
@both_versions
async def test_goodbye_with_data_before_it(loop, client, version):
    async with Line(loop, client=client, version=version) as line:
        ciphertext = line.seal(b"last words")
        with pytest.raises(ssl.SSLWantReadError):
            line.peer.tls.unwrap()
        await line.send_raw(ciphertext + line.peer.outgoing.read())
        assert await line.protocol.until_lost() is None
        assert line.protocol.received == b"last words"
        assert line.protocol.names == [
            "connection_made", "data_received", "eof_received", "connection_lost"]
        await line.peer.unwrap()        # it was answered


async def test_what_eof_received_writes_is_sent(loop):
    class Answering(Recorder):
        def eof_received(self):
            super().eof_received()
            self.transport.write(b"bye")

    async with Line(loop, Answering, client=False) as line:
        with pytest.raises(ssl.SSLWantReadError):
            line.peer.tls.unwrap()
        await line.send_raw(line.peer.outgoing.read())
        assert await line.protocol.until_lost() is None
        raw = await line.peer.recv_all_raw()
        line.peer.incoming.write(raw)
        assert line.peer.tls.read(10) == b"bye"


async def test_goodbye_behind_which_bytes_come(loop):
    """Nothing counts after a close_notify (RFC 8446, 6.1)."""
    async with Line(loop) as line:
        later = line.seal(b"later")
        with pytest.raises(ssl.SSLWantReadError):
            line.peer.tls.unwrap()
        await line.send_raw(line.peer.outgoing.read() + later)
        await line.protocol.until_lost()
        assert line.protocol.received == b""


async def test_one_write_becomes_full_records(loop):
    async with Line(loop) as line:
        line.transport.write(b"x" * 50_000)
        raw = bytearray()
        while sum(len(record) - 22 for _, record in records_of(raw)) < 50_000:
            raw += await super(TLSPeer, line.peer).recv()
        sizes = [len(record) for kind, record in records_of(raw) if kind == APPLICATION_DATA]
        assert len(sizes) == 4


@differs_from_asyncio("each item becomes a record")
async def test_small_parts_of_writelines_share_a_record(loop):
    async with Line(loop) as line:
        line.transport.writelines([b"head", b"er", bytearray(b"body")])
        raw = await super(TLSPeer, line.peer).recv()
        assert len(list(records_of(raw))) == 1
        line.peer.incoming.write(raw)
        assert line.peer.tls.read(100) == b"headerbody"
