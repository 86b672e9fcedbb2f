"""Limits of length that GroupNorm and BatchNorm in training share. The figures are an H200's."""

from __future__ import annotations

BLOCK_LENGTH = 53248
"""Elements that a block keeps, at most: 52 for each of 1024 threads, whose registers hold them in float32 too to sum
them. Reading them twice is faster beyond: 61440 in two bytes take 12.0 us against 15.6 for 4 x 1920 x 1024 in 32
groups, 57344 take 258 against 512 for 4096 x 1024 x 14; but 51968 take 22.5 against 11.2 for 64 x 128 x 812."""

ALONE_BYTES = 65536
"""Bytes that a block alone is faster with than a team, which takes 5 us to meet: 2.5 us against 5.0 for 3 channels of
36864 bytes, 4.5 against 6.6 for 16 groups of 32776; but 7.2 against 6.6 for 16 groups of 65552, of odd planes."""

CHANNEL_BYTES = 98304
"""The same of a channel of BatchNorm: 3.5 us against 4.8 for 3 channels of 73728 bytes; channels of 131072 bytes take a
block each 5.2, and of 147456 with teams 5.5. Between the two the limit is a guess."""
