"""HTTP: what stands between a connection and a route, and what a refusal is there.

- ``head_timeout``, ``middleware``, ``head_requests``, ``decompression``: before the routes
- ``guard``, ``asker``, ``pages``: who asks, and by what page or proxy
- ``json_body``, ``reading``: bodies and URLs as requests
- ``request_id``: the name of a request in the log
- ``openapi``: the description
"""
