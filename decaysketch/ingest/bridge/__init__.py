"""A bridge from an MQTT broker to an aggregator (extra ``bridge``).

Mappings (:mod:`decaysketch.ingest`) turn messages into observations. A
:class:`~decaysketch.client.Sensor` for each stream posts them. The bridge guarantees: *it counts
a message that was sent with QoS 1 or 2, and that the broker keeps while the bridge is away, and it
counts it once*. This holds if the bridge dies at any moment, or the aggregator or the network
fails.

The guarantee rests on one order (:mod:`~decaysketch.ingest.bridge.running`): gather, parse,
``Sensor.update``, ``Sensor.sync``, and only then PUBACK. Acknowledged messages are on the disk of
this machine. The broker sends the others again, and a duplicate changes nothing. So the bridge
subscribes with QoS 1 and never 2. With QoS 2 the broker would forget a message (PUBREC) before any
reader has seen it.

- ``config``       the file: server, broker, mappings
- ``translating``  from messages to readings by stream, and the dead messages; no I/O
- ``dead``         dead letters: unreadable messages, stored before they are acknowledged
- ``views``        the derived streams, as the aggregator reports them
- ``opening``      a sensor for each stream and each derived stream
- ``broker``       the connection: sessions, generations, acknowledgements
- ``running``      the loop
- ``metrics``      counts, for Prometheus
- ``replay``       recorded messages and dead letters through the same mappings
- ``tail``         a file that grows, by lines, with the position that was read
"""
