"""The live driver: brokers and clients on sockets and disk, around the same core as `sim`."""
