"""A bridge from a broker of MQTT to an aggregator (extra ``bridge``).

Messages become observations by maps (:mod:`decaysketch.ingest`), and go to a
:class:`~decaysketch.client.Sensor` for each stream. What is promised: *a message that was sent with
QoS 1 or 2, and that the broker keeps while the bridge is away, is counted, and is counted once*,
through the death of the bridge at any moment, of the aggregator and of the network.

It rests on one order (:mod:`~decaysketch.bridge.running`): gather, parse, ``Sensor.update``,
``Sensor.sync``, and only then PUBACK. What was acknowledged is on the disk of this machine; what
was not comes again, and a copy changes nothing. So QoS 1 is subscribed to and never 2: with QoS 2
the broker is told to forget a message (PUBREC) before anybody here has seen it.

- ``config``       the file: server, broker, maps
- ``translating``  from messages to readings by stream, and which messages are dead; no I/O
- ``dead``         dead letters: what cannot be read, kept before it is acknowledged
- ``views``        which views the streams have, as the aggregator says
- ``opening``      a sensor for each stream and each view
- ``broker``       the connection: sessions, generations, acknowledgements
- ``running``      the loop
- ``metrics``      counts, for Prometheus
- ``replay``       recorded messages and dead letters through the same maps
- ``tail``         a file that grows, by lines; which of them were taken is kept
"""
