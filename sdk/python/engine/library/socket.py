# Quern: what a handler is told that opens a socket.
def _quern_no_sockets(*args, **kwargs):
    from quern._missing import NO_SOCKETS

    raise OSError(_quern_errno.ENOTSUP, NO_SOCKETS)


import errno as _quern_errno

socket.__init__ = _quern_no_sockets
socket.__del__ = lambda self: None
create_connection = create_server = getaddrinfo = gethostbyname = fromfd = socketpair = _quern_no_sockets
