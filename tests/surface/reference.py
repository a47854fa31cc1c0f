"""What the rows must cover: asyncio's public methods, and the parameters of each.

The union of all documented versions up to Python 3.14, so that it holds on every Python. Written
`method: parameters`, without `self`.
"""
import re

LOOP = {
    "run_forever": "",
    "run_until_complete": "future",
    "stop": "",
    "is_running": "",
    "is_closed": "",
    "close": "",
    "shutdown_asyncgens": "",
    "shutdown_default_executor": "timeout",
    "call_soon": "callback args context",
    "call_soon_threadsafe": "callback args context",
    "call_later": "delay callback args context",
    "call_at": "when callback args context",
    "time": "",
    "create_future": "",
    "create_task": "coro name context eager_start kwargs",
    "set_task_factory": "factory",
    "get_task_factory": "",
    "run_in_executor": "executor func args",
    "set_default_executor": "executor",
    "getaddrinfo": "host port family type proto flags",
    "getnameinfo": "sockaddr flags",
    "create_connection": (
        "protocol_factory host port ssl family proto flags sock local_addr server_hostname "
        "ssl_handshake_timeout ssl_shutdown_timeout happy_eyeballs_delay interleave all_errors"
    ),
    "create_server": (
        "protocol_factory host port family flags sock backlog ssl reuse_address reuse_port "
        "keep_alive ssl_handshake_timeout ssl_shutdown_timeout start_serving"
    ),
    "connect_accepted_socket": (
        "protocol_factory sock ssl ssl_handshake_timeout ssl_shutdown_timeout"
    ),
    "create_unix_connection": (
        "protocol_factory path ssl sock server_hostname ssl_handshake_timeout "
        "ssl_shutdown_timeout"
    ),
    "create_unix_server": (
        "protocol_factory path sock backlog ssl ssl_handshake_timeout ssl_shutdown_timeout "
        "start_serving cleanup_socket"
    ),
    "create_datagram_endpoint": (
        "protocol_factory local_addr remote_addr family proto flags reuse_port allow_broadcast "
        "sock"
    ),
    "sendfile": "transport file offset count fallback",
    "start_tls": (
        "transport protocol sslcontext server_side server_hostname ssl_handshake_timeout "
        "ssl_shutdown_timeout"
    ),
    "connect_read_pipe": "protocol_factory pipe",
    "connect_write_pipe": "protocol_factory pipe",
    "subprocess_exec": "protocol_factory args stdin stdout stderr kwargs",
    "subprocess_shell": "protocol_factory cmd stdin stdout stderr kwargs",
    "add_reader": "fd callback args",
    "remove_reader": "fd",
    "add_writer": "fd callback args",
    "remove_writer": "fd",
    "sock_recv": "sock nbytes",
    "sock_recv_into": "sock buf",
    "sock_recvfrom": "sock bufsize",
    "sock_recvfrom_into": "sock buf nbytes",
    "sock_sendall": "sock data",
    "sock_sendto": "sock data address",
    "sock_connect": "sock address",
    "sock_accept": "sock",
    "sock_sendfile": "sock file offset count fallback",
    "add_signal_handler": "sig callback args",
    "remove_signal_handler": "sig",
    "set_exception_handler": "handler",
    "get_exception_handler": "",
    "default_exception_handler": "context",
    "call_exception_handler": "context",
    "get_debug": "",
    "set_debug": "enabled",
}
SERVER = dict.fromkeys((
    "close", "close_clients", "abort_clients", "get_loop", "is_serving", "start_serving",
    "serve_forever", "wait_closed",
), "")
BASE = {
    "get_extra_info": "name default",
    "is_closing": "",
    "close": "",
    "set_protocol": "protocol",
    "get_protocol": "",
}
READ = dict.fromkeys(("is_reading", "pause_reading", "resume_reading"), "")
LIMITS = {
    "set_write_buffer_limits": "high low",
    "get_write_buffer_limits": "",
    "get_write_buffer_size": "",
    "abort": "",
}
WRITE = LIMITS | {
    "write": "data",
    "writelines": "list_of_data",
    "write_eof": "",
    "can_write_eof": "",
}
DATAGRAM = LIMITS | {"sendto": "data addr"}
SUBPROCESS = {
    "get_pid": "",
    "get_returncode": "",
    "get_pipe_transport": "fd",
    "send_signal": "signal",
    "terminate": "",
    "kill": "",
}
# The methods, and the start of the subjects and names of the rows that must cover them.
COVERAGE = {
    "loop": (LOOP, ""),
    "Server": (SERVER, "Server: "),
    "TCP stream": (BASE | READ | WRITE, r"[\w ]*streams?[\w ]*: TCP: "),
    "unix stream": (BASE | READ | WRITE, r"[\w ]*streams?[\w ]*: Unix: "),
    "TLS stream": (BASE | READ | WRITE, r"[\w ]*streams?[\w ]*: TLS: "),
    "datagram": (BASE | DATAGRAM, "Datagram transports: "),
    "read pipe": (BASE | READ, "Pipes: read pipe: "),
    "write pipe": (BASE | WRITE, "Pipes: write pipe: "),
    "subprocess": (BASE | SUBPROCESS, "Subprocesses: "),
}
CALL = re.compile(r"(\w+)\(([^)]*)\)")
PARAMETER = re.compile(r"(\w+)=")


def covered(rows, start=""):
    """The (method, parameter) pairs that the rows name; the parameter is "" for the method."""
    found = set()
    for row in rows:
        if re.match(start, str(row), re.I):
            for method, arguments in CALL.findall(row.name):
                found.add((method, ""))
                found.update((method, parameter) for parameter in PARAMETER.findall(arguments))
    return found


def wanted(methods):
    """The same of what must be covered."""
    return {(method, parameter) for method, parameters in methods.items()
            for parameter in ["", *parameters.split()]}
