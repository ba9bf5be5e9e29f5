"""Rows under values: lists of nodes, one for each value that few rows ask for."""

import numpy as np

from sterna.matching.kernels.compiling import kernel
from sterna.matching.kernels.conditions import among, next_test
from sterna.matching.kernels.layout import FILED, FREE_NODE, NODES, POINTS, Arrays


@kernel
def file(t: Arrays, row: int, value: int) -> None:
    """File a row under a value."""
    node = t.counts[FREE_NODE]
    if node:
        t.counts[FREE_NODE] = t.node_next[node]
    else:
        node = t.counts[NODES]
        t.counts[NODES] += 1
    t.node_record[node] = t.row_record[row]
    t.node_next[node] = t.first_node[value]
    t.first_node[value] = node
    t.value_filed[value] += 1
    t.row_slot[row] = FILED - value


@kernel
def _unfile(t: Arrays, record: int, value: int) -> None:
    before = 0
    node = np.int64(t.first_node[value])
    while t.node_record[node] != record:
        before = node
        node = np.int64(t.node_next[node])
    if before:
        t.node_next[before] = t.node_next[node]
    else:
        t.first_node[value] = t.node_next[node]
    t.node_next[node] = t.counts[FREE_NODE]
    t.counts[FREE_NODE] = node
    t.value_filed[value] -= 1


@kernel
def unfile_row(t: Arrays, row: int) -> None:
    """Take a row from under the values of one test, or from under a part of a string."""
    record = np.int64(t.row_record[row])
    value = FILED - np.int64(t.row_slot[row])
    start, end = values_filed_under(t, record, value)
    if start == end:
        _unfile(t, record, value)
    for i in range(start, end):
        _unfile(t, record, t.records[i])


@kernel
def values_filed_under(t: Arrays, record: int, value: int) -> tuple[int, int]:
    """Where the record lists the values that its row is filed under, if they are several."""
    test = record + 1
    for _ in range(t.records[record] & 0xFFFF):
        end = next_test(t, test)
        if t.records[test] & 255 == POINTS and among(t, value, test + 1, end):
            return test + 1, end
        test = end
    return record, record
