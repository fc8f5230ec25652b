# Quern: HTTP through the host.
class _QuernHandler(AbstractHTTPHandler):
    def http_open(self, request):
        from quern import _urllib

        return _urllib.send(request)

    https_open = http_open
    http_request = https_request = AbstractHTTPHandler.do_request_


HTTPHandler = _QuernHandler
