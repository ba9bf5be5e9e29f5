"""Devices that speak MQTT, as clients that a broker hosts: pure, as the core is."""
