# Quern: what a handler is told that makes a temporary file.
def _get_default_tempdir():
    raise FileNotFoundError(
        _errno.ENOENT,
        "a handler writes no files: use io.BytesIO, tempfile.SpooledTemporaryFile, quern.kv or the task's result",
    )
