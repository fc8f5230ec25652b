# Quern: what a handler is told that starts a process.
def _quern_start(self, *args, **kwargs):
    raise OSError(errno.ENOTSUP, "a handler starts no processes: enqueue a task (quern.enqueue)")


Popen.__init__ = _quern_start
Popen.__del__ = lambda self, *args: None
