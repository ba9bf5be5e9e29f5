"""What `tests.data.make_release_0_1` is made of; for the sources of release 0.1 only."""
