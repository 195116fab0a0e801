"""Which client began with a transactional id at this coordinator, so that the log can name it.

Owns the memory of them, which is bounded. Never decides anything: after a move or a restart the client is unknown.
"""

from tiered.rules.transactions.transaction_state import Transaction

MAX_CLIENTS = 10_000


class ProducerClients:
    """Clients by transactional id; those that were not heard of for longest are forgotten."""

    def __init__(self) -> None:
        self._clients: dict[str, str] = {}

    def remember(self, transactional_id: str, client: str) -> None:
        """The client has the transactional id from now on."""
        self._clients.pop(transactional_id, None)
        self._clients[transactional_id] = client
        if len(self._clients) > MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]

    def timed_out(self, transaction: Transaction, now_ms: int) -> str:
        """The line about a transaction that is aborted because it was open for too long."""
        name, producer = transaction.transactional_id, transaction.producer_id
        client = self._clients.get(name, "unknown: it began with another coordinator")
        count = len(transaction.partitions)
        open_ms = now_ms - (now_ms if transaction.started_at_ms is None else transaction.started_at_ms)
        return (
            f"the transaction of {name} (producer {producer}, epoch {transaction.producer_epoch}, client {client}) is "
            f"aborted and its producer fenced: it was open for {open_ms} ms on {count} partitions, and "
            f"transaction.timeout.ms of the producer is {transaction.timeout_ms}"
        )
