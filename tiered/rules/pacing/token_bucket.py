"""A limit on a rate, and how long a client that exceeds it must rest.

Owns the count of one bucket. Must never read a clock: time is an argument, in milliseconds that only grow.

Kafka measures bytes over `quota.window.num` windows of `quota.window.size.seconds` and lets a quiet client take a whole
measure at once. A bucket as large as that measure allows the same, costs two numbers, and forgets no debt at the edge
of a window: a client that keeps to its rests gets the rate itself. What is owed never exceeds one measure, so that no
rest is longer than it.
"""


class TokenBucketState:
    """A bucket that begins full. `rate_per_s` is what flows in; it holds what comes in `window_ms`."""

    __slots__ = ("_at_ms", "_tokens", "_window_ms", "rate_per_s")

    def __init__(self, rate_per_s: float, *, window_ms: float, now_ms: float) -> None:
        self.rate_per_s = rate_per_s
        self._window_ms = window_ms
        self._tokens = self.capacity
        self._at_ms = now_ms

    @property
    def capacity(self) -> float:
        """The most that may be taken at once after a rest."""
        return self.rate_per_s * self._window_ms / 1000.0

    def take(self, amount: float, now_ms: float) -> float:
        """Takes it, whether it is there or not; how many milliseconds to rest until nothing is owed."""
        self._fill(now_ms)
        self._tokens = max(self._tokens - amount, -self.capacity)
        return self._rest_ms()

    def rest_ms(self, now_ms: float) -> float:
        """How long until nothing is owed; 0 when something may be taken now."""
        self._fill(now_ms)
        return self._rest_ms()

    def try_take(self, amount: float, now_ms: float) -> float:
        """Takes it and returns 0, or takes nothing where something is owed and returns how long to rest.

        The last one may take more than there is (KIP-599): or a request above the capacity could never be made.
        """
        self._fill(now_ms)
        if self._tokens <= 0.0:
            return max(self._rest_ms(), 1.0)
        self._tokens = max(self._tokens - amount, -self.capacity)
        return 0.0

    def is_full(self, now_ms: float) -> bool:
        """Whether it is as if it had never been used."""
        self._fill(now_ms)
        return self._tokens >= self.capacity

    def change_rate(self, rate_per_s: float, now_ms: float) -> None:
        """From now on at another rate; the rests that were given stay as long as they were."""
        self._fill(now_ms)
        share = self._tokens / self.capacity
        self.rate_per_s = rate_per_s
        self._tokens = share * self.capacity

    def _fill(self, now_ms: float) -> None:
        passed_ms = now_ms - self._at_ms
        if passed_ms > 0.0:
            self._tokens = min(self.capacity, self._tokens + self.rate_per_s * passed_ms / 1000.0)
            self._at_ms = now_ms

    def _rest_ms(self) -> float:
        return max(0.0, -self._tokens * 1000.0 / self.rate_per_s)
