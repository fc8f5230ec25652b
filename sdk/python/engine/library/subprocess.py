# Quern: what a handler is told that starts a process.
def _quern_start(self, *args, **kwargs):
    from quern._missing import NO_PROCESSES

    raise OSError(errno.ENOTSUP, NO_PROCESSES)


Popen.__init__ = _quern_start
Popen.__del__ = lambda self, *args: None
