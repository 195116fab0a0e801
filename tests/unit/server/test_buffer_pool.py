"""The pool of receive buffers keeps little of what a burst of large requests took."""

from tiered.server.kafka.transport.buffers import MOST_POOLED_BYTES, SMALLEST_BYTES, BufferPool


def test_what_waits_to_be_lent_again_has_a_bound_for_all_sizes_together() -> None:
    """The pool kept eight buffers of every size, 168 MiB together, until the process ended."""
    pool = BufferPool()
    lent = [pool.borrow(size) for size in (SMALLEST_BYTES, 1 << 20, 4 << 20, 8 << 20) for _ in range(8)]
    for buffer in lent:
        pool.give_back(buffer)
    assert 0 < pool.free_bytes <= MOST_POOLED_BYTES
    assert pool.lent_bytes == 0


def test_a_buffer_that_was_given_back_is_lent_again() -> None:
    pool = BufferPool()
    buffer = pool.borrow(1 << 20)
    pool.give_back(buffer)
    assert pool.borrow(1 << 20) is buffer
    assert pool.free_bytes == 0
    pool.give_back(buffer)
    pool.clear()
    assert pool.free_bytes == 0
    assert pool.borrow(1 << 20) is not buffer, "the system has it"
