"""HTTP: the layers between a connection and a route, and the form of rejections.

- ``head_timeout``, ``middleware``, ``head_requests``, ``decompression``: before the routes
- ``guard``, ``asker``, ``pages``: the caller, and the web page or proxy behind a request
- ``json_body``, ``reading``: requests from bodies and URLs
- ``problems``, ``refusals``: every rejection as a problem, and rejections by HTTP itself
- ``request_id``, ``request_log``: the id of a request, and its line in the log
- ``openapi``: the description
"""
