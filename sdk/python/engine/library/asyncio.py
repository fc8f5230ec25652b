# Quern: the event loop of a handler.
from quern import _loop as _quern_loop

_quern_loop.install()
