"""What an SSLContext can ask for works as without a loop."""
import socket
import ssl

import pytest
from support.loops import needs_python
from support.net import tcp_pair
from support.protocols import Echo, Recorder
from support.tls import CERTS, TLSPeer, TLSServer, client_context, server_context
from support.waiting import quiet, until

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
version = pytest.mark.parametrize("version", VERSIONS, ids=str)


def limited(context, version):
    context.minimum_version = context.maximum_version = version
    return context


async def talk(transport, protocol, data=b"hello"):
    """Have it echoed."""
    before = len(protocol.received)
    transport.write(data)
    await protocol.until_received(before + len(data))
    assert protocol.received[before:] == data


async def finish(transport, protocol):
    transport.close()
    assert await protocol.until_lost() is None


@version
async def test_message_callback_sees_every_message(loop, version):
    seen = {"client": [], "server": []}

    def watching(context, side):
        context._msg_callback = (
            lambda tls, direction, version, content_type, message_type, data:
            seen[side].append((type(tls), direction, content_type)))
        return limited(context, version)

    async with TLSServer(loop, Echo, watching(server_context(), "server")) as server:
        transport, protocol = await server.connect(context=watching(client_context(), "client"))
        handshake = {side: len(messages) for side, messages in seen.items()}
        await talk(transport, protocol)
        await finish(transport, protocol)
    for side, messages in seen.items():
        assert len(messages) > handshake[side] > 3      # records of data, too, and the goodbye
        assert {kind for kind, _, _ in messages} == {ssl.SSLObject}
        assert {direction for _, direction, _ in messages} == {"read", "write"}


async def test_server_name_callback_may_refuse(loop):
    context = server_context()
    context.sni_callback = lambda tls, name, initial: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    near, far = tcp_pair()
    peer = TLSPeer(far, client_context(), server_hostname="localhost")
    protocol = Recorder()
    accepting = loop.create_task(loop.connect_accepted_socket(lambda: protocol, near, ssl=context))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await peer.handshake()
    with pytest.raises(ssl.SSLError) as failed:
        await accepting
    assert failed.value.reason == "CALLBACK_FAILED"
    assert protocol.calls == []
    peer.close()


@version
async def test_session_is_resumed(loop, version):
    context = limited(client_context(), version)
    async with TLSServer(loop, Echo) as server:
        first = await self_connected(loop, server, context, None)
        session = first.get_extra_info("ssl_object").session
        assert session is not None and not first.get_extra_info("ssl_object").session_reused
        first.abort()
        # The loop's own end is the server: a session is asked for by who connects.
        far = ssl_client(server.port, context, session)
        done = loop.run_in_executor(None, far)
        assert await done
        accepted = server.protocols[-1].transport
        await until(lambda: server.protocols[-1].transport is not None)
        assert accepted.get_extra_info("ssl_object").session_reused


async def self_connected(loop, server, context, session):
    transport, protocol = await server.connect(context=context)
    await talk(transport, protocol)     # TLS 1.3 sends its tickets after the handshake
    return transport


def ssl_client(port, context, session):
    def run():
        with socket.create_connection(("127.0.0.1", port)) as plain, context.wrap_socket(
                plain, server_hostname="localhost", session=session) as tls:
            tls.sendall(b"again")
            assert tls.recv(5) == b"again"
            return tls.session_reused
    return run


@needs_python(3, 13)
@version
async def test_pre_shared_key(loop, version):
    if not ssl.HAS_PSK:
        pytest.skip("this Python's ssl has no PSK")
    key = b"\x2a" * 32
    ours = limited(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), version)
    ours.check_hostname, ours.verify_mode = False, ssl.CERT_NONE
    theirs = limited(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), version)
    for context in (ours, theirs):
        context.set_ciphers("PSK")
    asked = []
    ours.set_psk_client_callback(lambda hint: asked.append("client") or ("me", key))
    theirs.set_psk_server_callback(lambda identity: asked.append(identity) or key)
    async with TLSServer(loop, Echo, theirs) as server:
        transport, protocol = await server.connect(context=ours)
        await talk(transport, protocol)
        assert "client" in asked and "me" in asked
        await finish(transport, protocol)


@version
async def test_exceptions_say_what_blocking_sockets_say(loop, version, unhandled):
    """Class, reason, library and verification code are OpenSSL's."""
    context = limited(ssl.create_default_context(), version)     # knows no authority of ours
    async with TLSServer(loop) as server:
        with pytest.raises(ssl.SSLCertVerificationError) as ours:
            await server.connect(context=context)
        expected = await loop.run_in_executor(None, blocking_failure, server.port, context)
        await quiet()
    unhandled.take()        # the server's view, in debug mode
    for name in ("reason", "library", "verify_code", "verify_message", "errno"):
        assert getattr(ours.value, name) == getattr(expected, name), name


def blocking_failure(port, context):
    with socket.create_connection(("127.0.0.1", port)) as plain:
        with pytest.raises(ssl.SSLCertVerificationError) as failed:
            context.wrap_socket(plain, server_hostname="localhost")
        return failed.value


async def test_no_common_version(loop, unhandled):
    theirs = limited(server_context(), ssl.TLSVersion.TLSv1_3)
    async with TLSServer(loop, context=theirs) as server:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            await server.connect(context=limited(client_context(), ssl.TLSVersion.TLSv1_2))
        await quiet()
        assert all(not protocol.calls for protocol in server.protocols)
    unhandled.take()


@version
async def test_questions_to_the_ssl_object(loop, version):
    context = limited(client_context(certificate="client"), version)
    context.set_alpn_protocols(["eploop"])
    theirs = server_context(client_certificates=True)
    theirs.set_alpn_protocols(["eploop"])
    async with TLSServer(loop, Echo, theirs) as server:
        transport, protocol = await server.connect(context=context)
        await talk(transport, protocol)
        for end in (transport, server.protocols[0].transport):
            tls = end.get_extra_info("ssl_object")
            assert type(tls) is ssl.SSLObject
            assert tls.selected_alpn_protocol() == "eploop"
            assert tls.version() == {VERSIONS[0]: "TLSv1.2", VERSIONS[1]: "TLSv1.3"}[version]
            assert tls.cipher() == end.get_extra_info("cipher")
            assert tls.getpeercert() == end.get_extra_info("peercert")
            assert end.get_extra_info("compression") is None
            assert tls.pending() == 0
            if version is ssl.TLSVersion.TLSv1_2:
                assert len(tls.get_channel_binding("tls-unique")) >= 12
        assert transport.get_extra_info("sslcontext") is context
        await finish(transport, protocol)


async def test_certificate_chain_of_several_keys(loop):
    """A context may be changed between two connections; each has what was set when it began."""
    context = server_context()
    async with TLSServer(loop, Echo, context) as server:
        first, first_protocol = await server.connect()
        context.load_cert_chain(CERTS / "other.pem", CERTS / "other.key")
        await talk(first, first_protocol)
        second, second_protocol = await server.connect(server_hostname="other.test")
        await talk(second, second_protocol)
        await talk(first, first_protocol)
        await finish(first, first_protocol)
        await finish(second, second_protocol)
