"""MQTT 3.1.1 and 5.0 as records and bytes: no sockets, no clock, no session."""
