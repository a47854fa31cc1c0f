"""What the tests share: the loops under test, guards, protocols and sockets."""
