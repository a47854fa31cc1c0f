"""What newer Pythons' asyncio offers, for the older ones.

Source: CPython 3.13 asyncio.base_events.BaseEventLoop.
"""

import asyncio
import contextvars
import socket
import threading
import warnings

# The errors of all the addresses that one create_connection(all_errors=True) tried.
_all_errors = contextvars.ContextVar("eploop_all_errors")


def make_task(loop, factory, coro, *, name=None, context=None, **options):
    """A task from the loop's task factory, to which further keyword arguments are handed on.

    Factories written for these Pythons know no argument but `context`, so the name is set later.
    """
    if context is not None:
        options["context"] = context
    task = factory(loop, coro, **options)
    if name is not None:
        task.set_name(name)
    return task


async def create_connection(stock_create_connection, *args, all_errors=False, **options):
    """asyncio's create_connection, raising an ExceptionGroup of every error if `all_errors`."""
    if not all_errors:
        return await stock_create_connection(*args, **options)
    found = []
    token = _all_errors.set(found)
    try:
        return await stock_create_connection(*args, **options)
    except OSError as exc:
        raise ExceptionGroup("create_connection failed", found or [exc]) from None
    finally:
        _all_errors.reset(token)


async def connect_sock(stock_connect_sock, errors, *args):
    """asyncio's _connect_sock; what it adds to `errors` is kept for the group."""
    try:
        return await stock_connect_sock(errors, *args)
    except OSError as exc:
        found = _all_errors.get(None)
        if found is not None:
            found.append(exc)
        raise


async def shutdown_default_executor(loop, timeout):
    """Join the executor's threads, for `timeout` seconds at most if it is given."""
    loop._executor_shutdown_called = True
    if loop._default_executor is None:
        return
    joined = loop.create_future()
    thread = threading.Thread(target=loop._do_shutdown, args=(joined,))
    thread.start()
    try:
        async with asyncio.timeout(timeout):
            await asyncio.shield(joined)    # the thread will set it, even if this gives up
    except TimeoutError:
        warnings.warn(
            f"The executor did not finish joining its threads within {timeout} seconds.",
            RuntimeWarning, stacklevel=3)
        loop._default_executor.shutdown(wait=False)
    else:
        thread.join()


def is_packet_socket(sock):
    """True for a socket of which these Pythons' create_datagram_endpoint wants to know nothing."""
    return sock is not None and sock.type not in (socket.SOCK_STREAM, socket.SOCK_DGRAM)


async def packet_endpoint(loop, protocol_factory, sock):
    """create_datagram_endpoint over a raw or seqpacket socket."""
    sock.setblocking(False)
    protocol = protocol_factory()
    waiter = loop.create_future()
    transport = loop._make_datagram_transport(sock, protocol, None, waiter)
    try:
        await waiter
    except BaseException:
        transport.close()
        raise
    return transport, protocol
