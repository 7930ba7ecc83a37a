"""HTTP: what stands between a connection and a route, and what a refusal is there.

- ``head_timeout``, ``middleware``, ``head_requests``, ``decompression``: before the routes
- ``guard``, ``asker``, ``pages``: who asks, and by what page or proxy
- ``json_body``, ``reading``: bodies and URLs as requests
- ``problems``, ``refusals``: every refusal as a problem, and what HTTP itself refuses
- ``request_id``, ``request_log``: the name of a request, and its line in the log
- ``openapi``: the description
"""
