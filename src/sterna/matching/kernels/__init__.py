"""The compiled part of the matching index: tiles of bitmaps, and the records behind them.

A *row* is one conjunction of tests, each on one attribute, written down in a *record*. Up to 64
rows with similar tests share a *tile*. An attribute's values are divided into *cells*; for an
attribute that several of its rows test, a tile has a *block*: one word for each group of cells,
with a bit set for each row that no value there can satisfy. An event selects one word per block;
rows that none of them rules out survive, and only those are tested exactly, from their records. The
*summary* has for each cell the tiles that it rules out entirely, so that most are never visited.
docs/concepts/matching.md has the pictures.

All kernels work on `Arrays`, which `SubscriptionTiles` owns and enlarges; none of them allocates
memory. They import nothing of Sterna but each other: what numba has compiled is kept on disk until
a file in this folder changes, and a change elsewhere would go unnoticed.
"""
