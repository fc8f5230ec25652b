# Quern: what a handler is told that makes a temporary file.
def _get_default_tempdir():
    from quern._missing import NO_FILES

    raise FileNotFoundError(_errno.ENOENT, NO_FILES)
