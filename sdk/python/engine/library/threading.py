# Quern: what a handler is told that starts a thread.
def _quern_start(self):
    from quern._missing import NO_THREADS

    raise RuntimeError(NO_THREADS)


Thread.start = _quern_start
