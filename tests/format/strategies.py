"""Hypothesis strategies: images, and files of the generator and the mutator of tests/fuzz.

Choices that explain a failure are drawn; bulk numbers come from a drawn seed.
"""

from __future__ import annotations

from typing import Any

import engines
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Samples = NDArray[Any]

SEEDS = st.integers(0, 2**32 - 1)
CHOICES = st.binary(min_size=64, max_size=64)  # each shrinks to 0, the simplest
# One pixel, a tile and its neighbours, primes.
SIDES = st.sampled_from([1, 2, 7, 8, 9, 13, 31, 32, 33, 63, 64, 65, 97])

MADE = st.builds(engines.make_file, CHOICES, SEEDS)  # nearly always valid, seldom our encoder's
STREAMS = MADE.map(lambda made: made.data)
DAMAGED = st.builds(engines.mutate_file, STREAMS, CHOICES, SEEDS)


@st.composite
def images(draw: st.DrawFn, most_channels: int = 14) -> Samples:
    """An image of shape (height, width, channels) and of one of the kinds that occur."""
    rng = np.random.default_rng(draw(SEEDS))
    dtype = np.dtype(draw(st.sampled_from(engines.SAMPLE_TYPES)))
    sample_bits = 8 * dtype.itemsize
    h, w = draw(SIDES), draw(SIDES)
    c = draw(st.integers(1, 4) | st.integers(1, most_channels))  # few as often as many
    limit = 1 << sample_bits
    y, x, channel = np.ogrid[:h, :w, :c]
    content = draw(
        st.sampled_from(
            ["noise", "constant", "ramp", "texture", "labels", "few values", "shifted", "small"]
        )
    )
    if content == "noise":
        image = rng.integers(0, limit, (h, w, c))
    elif content == "constant":
        image = np.broadcast_to(rng.integers(0, limit, c), (h, w, c))
    elif content == "ramp":
        image = x * 3 + y * 5 + channel * 17
    elif content == "texture":
        image = limit // 2 + x * 2 - y + rng.normal(0, limit / 64, (h, w, c)).astype(int)
    elif content == "labels":
        image = (x // 11 + y // 7 * 3) % 19 + 0 * channel
    elif content == "few values":
        image = rng.choice(rng.integers(0, limit, draw(st.integers(1, 40))), (h, w, c))
    elif content == "small":  # on both sides of zero
        least = -1 << draw(st.integers(0, sample_bits - 2))
        image = rng.integers(least, -least, (h, w, c)) * (1 << draw(st.integers(0, 1)))
    else:
        image = rng.integers(0, limit, (h, w, c)) >> (s := draw(st.integers(1, 7))) << s
    return np.ascontiguousarray(image % limit).astype(f"u{dtype.itemsize}").view(dtype)
