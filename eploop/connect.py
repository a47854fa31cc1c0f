"""Client connections: what create_connection and create_unix_connection share."""


class OwnSocketFactory:
    """A protocol factory for a socket that the loop made, which is closed if the factory fails.

    asyncio leaves that socket to the garbage collector. One that the caller passed as `sock` stays
    the caller's until a transport has taken it over.
    """

    def __init__(self, protocol_factory):
        self._protocol_factory = protocol_factory
        self._sock = None

    def begin(self, sock):
        """The socket is connected; the protocol is asked for next."""
        self._sock = sock

    def __call__(self):
        try:
            return self._protocol_factory()
        except BaseException:
            self._sock.close()
            raise
