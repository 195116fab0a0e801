"""A worker process of Spark acknowledges its next task at once, whatever it sent before."""

import socket

from pyspark_tiered.worker import acknowledge_at_once


def acknowledges_at_once(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


def test_a_socket_that_answered_lets_no_acknowledgement_wait_for_the_next_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as worker:
        spark, _ = server.accept()
        with spark:
            for _ in range(10):
                spark.sendall(b"a task")
                assert worker.recv(100) == b"a task"
                worker.sendall(b"its rows")
                assert spark.recv(100) == b"its rows"
            assert not acknowledges_at_once(worker)
            assert acknowledge_at_once() >= 1
            assert acknowledges_at_once(worker)
