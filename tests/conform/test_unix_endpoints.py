"""create_unix_connection and create_unix_server."""
import errno
import os
import socket
import stat
import sys

import pytest
from support.loops import differs_from_asyncio, eploop_only
from support.net import Peer, tcp_pair, unix_pair
from support.protocols import Echo, Recorder
from support.waiting import quiet, turns, until

keeps_the_file = differs_from_asyncio("it leaves the socket file behind", below=(3, 13))


@pytest.fixture
def path(tmp_path):
    # Unix socket paths are limited to about a hundred bytes, pytest's folders can be longer.
    folder = os.open(tmp_path, os.O_PATH | os.O_CLOEXEC)
    yield tmp_path / "sock" if len(str(tmp_path)) < 90 else f"/proc/self/fd/{folder}/sock"
    os.close(folder)


async def exchange(loop, where):
    transport, protocol = await loop.create_unix_connection(Recorder, where)
    transport.write(b"hello")
    assert await protocol.until_received(5) == b"hello"
    info = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    transport.close()
    assert await protocol.until_lost() is None
    await quiet()
    return info


@pytest.mark.parametrize("convert", [str, os.fspath, lambda path: path, os.fsencode],
                         ids=["str", "fspath", "path", "bytes"])
async def test_path_of_any_kind(loop, path, convert):
    server = await loop.create_unix_server(Echo, convert(path))
    peername, _ = await exchange(loop, convert(path))
    assert os.fsencode(peername) == os.fsencode(path)
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("as_bytes", [False, True])
async def test_abstract_name(loop, as_bytes):
    name = f"\0eploop-test-{os.getpid()}"
    name = name.encode() if as_bytes else name
    server = await loop.create_unix_server(Echo, name)
    await exchange(loop, name)
    server.close()
    await server.wait_closed()


async def test_accepted_transport_knows_its_address(loop, path):
    accepted = []

    def factory():
        accepted.append(Recorder())
        return accepted[-1]

    server = await loop.create_unix_server(factory, path)
    transport, protocol = await loop.create_unix_connection(Recorder, path)
    await until(lambda: accepted and accepted[0].transport)
    assert os.fsencode(accepted[0].transport.get_extra_info("sockname")) == os.fsencode(path)
    transport.close()
    await protocol.until_lost()
    await accepted[0].until_lost()
    server.close()
    await server.wait_closed()


async def test_sockets_of_the_server(loop, path):
    server = await loop.create_unix_server(Echo, path)
    assert server.is_serving()
    assert [sock.family for sock in server.sockets] == [socket.AF_UNIX]
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    server.close()
    await server.wait_closed()
    assert server.sockets == ()


async def test_given_sockets(loop, path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(os.fspath(path))
    server = await loop.create_unix_server(Echo, sock=sock)
    await exchange(loop, path)
    server.close()
    await server.wait_closed()
    near, far = unix_pair()
    transport, protocol = await loop.create_unix_connection(Recorder, sock=near)
    far.send(b"x")
    await protocol.until_received(1)
    transport.close()
    await protocol.until_lost()
    far.close()


async def test_stale_socket_file_is_replaced(loop, path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.fspath(path))
    server = await loop.create_unix_server(Echo, path)
    await exchange(loop, path)
    server.close()
    await server.wait_closed()


async def test_other_files_are_not_replaced(loop, tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    with pytest.raises(OSError, match="already in use") as caught:
        await loop.create_unix_server(Echo, path)
    assert caught.value.errno == errno.EADDRINUSE
    assert path.read_text() == "precious"


async def test_folder_that_does_not_exist(loop, tmp_path):
    with pytest.raises(FileNotFoundError):
        await loop.create_unix_server(Echo, tmp_path / "no" / "sock")
    with pytest.raises(FileNotFoundError):
        await loop.create_unix_connection(Recorder, tmp_path / "no" / "sock")


async def test_refused(loop, path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(path))      # nobody listens
        with pytest.raises(ConnectionRefusedError):
            await loop.create_unix_connection(Recorder, path)


async def test_missing_path_is_refused(loop):
    with pytest.raises(ValueError, match="path was not specified"):
        await loop.create_unix_server(Echo)
    with pytest.raises(ValueError, match="no path and sock"):
        await loop.create_unix_connection(Recorder)


async def test_path_together_with_a_socket_is_refused(loop, path):
    with socket.socket(socket.AF_UNIX) as sock:
        with pytest.raises(ValueError, match="path and sock"):
            await loop.create_unix_server(Echo, path, sock=sock)
        with pytest.raises(ValueError, match="path and sock"):
            await loop.create_unix_connection(Recorder, path, sock=sock)


async def test_socket_of_another_family_is_refused(loop):
    for sock in (socket.socket(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)):
        with sock:
            with pytest.raises(ValueError, match="UNIX Domain Stream Socket was expected"):
                await loop.create_unix_server(Echo, sock=sock)
            with pytest.raises(ValueError, match="UNIX Domain Stream Socket was expected"):
                await loop.create_unix_connection(Recorder, sock=sock)


async def test_boolean_ssl_is_refused(loop, path):
    with pytest.raises(TypeError, match="ssl"):
        await loop.create_unix_server(Echo, path, ssl=True)


async def test_ssl_options_without_ssl_are_refused(loop, path):
    for name, value in (("server_hostname", "x"), ("ssl_handshake_timeout", 1.0),
                        ("ssl_shutdown_timeout", 1.0)):
        with pytest.raises(ValueError, match=name):
            await loop.create_unix_connection(Recorder, path, **{name: value})


@keeps_the_file
async def test_socket_file_is_removed_on_close(loop, path):
    server = await loop.create_unix_server(Echo, path, cleanup_socket=True)
    assert os.path.exists(path)
    server.close()
    await server.wait_closed()
    assert not os.path.exists(path)


async def test_by_default_the_file_is_removed_where_asyncio_removes_it(loop, path):
    """Programs written for an older one remove it themselves, and fail if it is gone."""
    server = await loop.create_unix_server(Echo, path)
    server.close()
    await server.wait_closed()
    assert os.path.exists(path) == (sys.version_info < (3, 13))


@differs_from_asyncio("it does not know the argument", below=(3, 13))
async def test_socket_file_can_be_kept(loop, path):
    server = await loop.create_unix_server(Echo, path, cleanup_socket=False)
    server.close()
    await server.wait_closed()
    assert os.path.exists(path)


@keeps_the_file
async def test_file_of_a_given_socket_is_removed_too(loop, path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(os.fspath(path))
    server = await loop.create_unix_server(Echo, sock=sock, cleanup_socket=True)
    server.close()
    await server.wait_closed()
    assert not os.path.exists(path)


@keeps_the_file
async def test_file_of_somebody_else_is_not_removed(loop, path):
    """Another server has taken the path over in the meantime."""
    server = await loop.create_unix_server(Echo, path, cleanup_socket=True)
    os.unlink(path)
    other = await loop.create_unix_server(Echo, path, cleanup_socket=True)
    server.close()
    await server.wait_closed()
    assert os.path.exists(path)
    await exchange(loop, path)
    other.close()
    await other.wait_closed()
    assert not os.path.exists(path)


async def test_file_that_is_gone_already_does_no_harm(loop, path):
    server = await loop.create_unix_server(Echo, path)
    os.unlink(path)
    server.close()
    await server.wait_closed()


async def test_start_serving_later(loop, path):
    server = await loop.create_unix_server(Echo, path, start_serving=False)
    with pytest.raises(ConnectionRefusedError):
        await loop.create_unix_connection(Recorder, path)
    await server.start_serving()
    await exchange(loop, path)
    server.close()
    await server.wait_closed()


@differs_from_asyncio("it does not have that yet", below=(3, 13))
async def test_clients_can_be_sent_away(loop, path):
    server = await loop.create_unix_server(Echo, path)
    transport, protocol = await loop.create_unix_connection(Recorder, path)
    transport.write(b"x")
    await protocol.until_received(1)
    server.close()
    server.close_clients()
    assert await protocol.until_lost() is None
    await server.wait_closed()
    transport.close()


async def test_burst_of_connections(loop, path):
    server = await loop.create_unix_server(Echo, path, backlog=200)
    socks = []
    for _ in range(200):
        sock = socket.socket(socket.AF_UNIX)
        sock.setblocking(False)
        sock.connect(os.fspath(path))
        sock.send(b"x")
        socks.append(sock)
    for sock in socks:
        assert await Peer(sock).recv_exactly(1) == b"x"
        sock.close()
    await quiet()
    server.close()
    await server.wait_closed()


async def test_data_sent_before_the_accept(loop, path):
    server = await loop.create_unix_server(Echo, path)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(os.fspath(path))
        sock.send(b"early")
        assert await Peer(sock).recv_exactly(5) == b"early"
    await quiet()
    server.close()
    await server.wait_closed()


async def test_tcp_socket_in_create_connection_and_unix_in_unix(loop):
    near, far = tcp_pair()
    with pytest.raises(ValueError, match="UNIX Domain Stream Socket was expected"):
        await loop.create_unix_connection(Recorder, sock=near)
    near.close()
    far.close()


async def test_unix_socket_is_accepted_by_create_connection(loop):
    near, far = unix_pair()
    transport, protocol = await loop.create_connection(Recorder, sock=near)
    far.send(b"x")
    await protocol.until_received(1)
    transport.close()
    await protocol.until_lost()
    await turns()
    far.close()


@eploop_only("tools that look for blocking calls know asyncio's places by name")
async def test_calls_that_such_tools_replace_are_not_met(loop, path, monkeypatch):
    def blocks(*args, **kwargs):
        raise AssertionError("a blocking call")

    with monkeypatch.context() as patches:
        for name in ("stat", "remove", "unlink"):
            patches.setattr(os, name, blocks)
        server = await loop.create_unix_server(Echo, path, cleanup_socket=True)
        server.close()
        await server.wait_closed()
    assert not path.exists()
