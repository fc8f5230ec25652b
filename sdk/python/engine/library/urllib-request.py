# Quern: HTTP through the host.
class _QuernHandler(AbstractHTTPHandler):
    def http_open(self, request):
        from quern import http as host

        headers = {
            name: value
            for name, value in {**request.headers, **request.unredirected_hdrs}.items()
            if name.lower() not in ("host", "content-length", "connection", "transfer-encoding")
        }
        data = request.data
        if data is not None and not isinstance(data, (bytes, bytearray, memoryview)):
            data = data.read() if hasattr(data, "read") else b"".join(data)
        timeout = request.timeout if isinstance(request.timeout, (int, float)) else None
        try:
            answer = host.request(request.get_method(), request.full_url, headers=headers, data=data, timeout=timeout)
        except host.HostError as error:
            raise URLError(error) from error
        message = http.client.HTTPMessage()
        for name in answer.headers:
            for value in answer.headers.all(name):
                message[name] = value
        response = addinfourl(io.BytesIO(answer.content), message, request.full_url, answer.status)
        response.msg = http.client.responses.get(answer.status, "")
        response.reason = response.msg
        return response

    https_open = http_open
    http_request = https_request = AbstractHTTPHandler.do_request_


HTTPHandler = _QuernHandler
