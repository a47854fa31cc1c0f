"""What an SSLContext is set to, seen through the loop; and TLS inside TLS."""
import asyncio
import ssl

from support.protocols import Recorder
from support.tls import client_context, server_context
from support.waiting import quiet, soon

from surface.checks import equal, kind_of, refused
from surface.ends import gone, port_of, serving
from surface.rows import subject
from surface.rows_tls import fails, talking

row = subject("TLS contexts")


@row("get_extra_info(): ssl_object, cipher, compression, peercert, sslcontext")
async def extra_info(loop):
    context = client_context()
    async with talking(loop, context) as (near, far):
        info = near.transport.get_extra_info
        kind_of(info("ssl_object"), ssl.SSLObject)
        equal(info("ssl_object").version(), "TLSv1.3")
        equal(info("cipher"), info("ssl_object").cipher())
        equal(info("compression"), None)
        assert info("sslcontext") is context, "another context"
        assert "subject" in info("peercert"), info("peercert")
        equal(far.transport.get_extra_info("peercert"), None)


@row("ALPN")
async def alpn(loop):
    ours, theirs = client_context(), server_context()
    ours.set_alpn_protocols(["h2", "http/1.1"])
    theirs.set_alpn_protocols(["http/1.1"])
    async with talking(loop, ours, theirs) as (near, far):
        for end in (near, far):
            found = end.transport.get_extra_info("ssl_object").selected_alpn_protocol()
            equal(found, "http/1.1")


@row("sni_callback")
async def sni_callback(loop):
    asked = []
    context = server_context()
    context.sni_callback = lambda tls, name, context: asked.append(name)
    async with talking(loop, server=context):
        equal(asked, ["localhost"])


@row("client certificates")
async def client_certificates(loop):
    context = server_context(client_certificates=True)
    async with talking(loop, client_context(certificate="client"), context) as (_, far):
        subject = far.transport.get_extra_info("peercert")["subject"]
        equal(subject, ((("commonName", "eploop test client"),),))


@row("minimum and maximum version, ciphers")
async def versions(loop):
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES256-GCM-SHA384")
    async with talking(loop, context) as (near, _):
        name, version, _ = near.transport.get_extra_info("cipher")
        assert version == "TLSv1.2" and name.endswith("AES256-GCM-SHA384"), (name, version)
    strict = server_context()
    strict.minimum_version = ssl.TLSVersion.TLSv1_3
    loop.set_exception_handler(lambda loop, context: None)
    async with serving(loop, ssl=strict) as (server, _):
        await refused(soon(loop.create_connection(
            Recorder, "localhost", port_of(server), ssl=context)), OSError)
        await quiet()


@row("keylog_filename")
async def keylog(loop, folder):
    context = client_context()
    context.keylog_filename = folder / "keys"
    async with talking(loop, context):
        pass
    assert "CLIENT" in (folder / "keys").read_text(), "nothing is logged"


@row("CERT_REQUIRED without a certificate is refused")
async def certificate_missing(loop):
    loop.set_exception_handler(lambda loop, context: None)
    async with serving(loop, ssl=server_context(client_certificates=True)) as (server, clients):
        try:
            transport, protocol = await soon(loop.create_connection(
                Recorder, "localhost", port_of(server), ssl=client_context()))
        except (ssl.SSLError, ConnectionError):
            return
        # TLS 1.3: the client learns of it after its handshake.
        await protocol.until_lost()
        equal([bytes(client.received) for client in clients.protocols if client.transport], [])
        await gone(transport, protocol)


@row("an untrusted certificate has verify_code and verify_message")
async def verify_code(loop):
    exc = await fails(loop, ssl.SSLCertVerificationError, context=ssl.create_default_context())
    assert exc.verify_code and exc.verify_message, exc


@row("TLS inside TLS: start_tls() of a TLS transport")
async def nested(loop):
    async with talking(loop) as (near, far):
        client, server = await soon(asyncio.gather(
            loop.start_tls(near.transport, near, client_context(), server_hostname="localhost"),
            loop.start_tls(far.transport, far, server_context(), server_side=True)))
        client.write(b"secret")
        equal(await far.until_received(7), b"xsecret")
        server.write(b"answer")
        equal(await near.until_received(6), b"answer")
        await gone(client, near)
        await gone(server, far)
