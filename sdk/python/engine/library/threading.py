# Quern: what a handler is told that starts a thread.
def _quern_start(self):
    raise RuntimeError(
        "a handler has no threads: use asyncio, or enqueue a task for each part (quern.enqueue)"
    )


Thread.start = _quern_start
