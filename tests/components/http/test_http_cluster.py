"""HTTP in a cluster of three: every route answers at any broker, whoever leads, coordinates or holds what it is about.

One cluster for all tests of this file; each begins with all three in service.
"""

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.broker_process import BrokerProcess
from tests.clients.http_api import Answer, ask
from tests.components.brokers import Brokers
from tests.components.http.http_brokers import PARTITIONS, brokers, cluster, create, scattered, value_of, wait_at
from tests.components.rights_table import KNOWN
from tests.support.http_routes import body_of, path_of
from tiered.server.http.routes import ROUTES

__all__ = ["brokers", "cluster"]

pytest_plugins = ["tests.postgres"]

FORWARDED: dict[str, Any] = {"X-Tiered-Forwarded-By": "9"}


def send(
    broker: BrokerProcess, path: str, *, method: str = "GET", body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    """(status, body) of a request with these headers; `X_Y` is the header X-Y."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(broker.http + path, method=method, data=body, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def v3(broker: BrokerProcess, path: str, *, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any]:
    """(status, JSON) under the cluster."""
    cluster_id = broker.get("/v3/clusters")["data"][0]["cluster_id"]
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    status, content = send(broker, f"/v3/clusters/{cluster_id}{path}", method=method, body=data, **headers)
    return status, json.loads(content) if content else None


def commit(brokers: Brokers, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": group})
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


# What is led elsewhere


def test_the_newest_records_are_the_same_at_every_broker(brokers: Brokers) -> None:
    values = scattered(brokers, "newest")
    answers = [ask(broker, "GET", "/topics/newest/newest").body for broker in brokers.by_id.values()]
    assert answers[0] == answers[1] == answers[2]
    assert sorted(map(value_of, answers[0]["records"])) == sorted(value for some in values.values() for value in some)
    times = [record["timestamp_ms"] for record in answers[0]["records"]]
    assert times == sorted(times)
    assert answers[0]["last_event_id"] == ",".join(f"{number}:{len(some)}" for number, some in values.items())


def test_every_broker_tells_the_same_of_every_partition_as_its_leader_knows_it(brokers: Brokers) -> None:
    scattered(brokers, "told")
    rows = brokers.rows("told")
    for broker in brokers.by_id.values():
        found = broker.get("/api/v1/topics/told")
        assert [each["leader"] for each in found["partitions"]] == [row.leader for row in rows]
        assert [each["told_by"] for each in found["partitions"]] == [row.leader for row in rows]
        assert [each["high_watermark"] for each in found["partitions"]] == [10] * PARTITIONS
        assert [each["replicas"] for each in found["partitions"]] == [list(row.replicas) for row in rows]
        assert found["record_count"] == 10 * PARTITIONS
        listed = {each["topic"]: each for each in broker.get("/api/v1/topics")["topics"]}
        assert listed["told"]["record_count"] == 10 * PARTITIONS
        assert listed["told"]["local_bytes"] == found["local_bytes"] > 0
        assert listed["told"]["records_in_per_s"] > 0
        assert listed["told"]["last_write_ms"] == found["last_write_ms"]
        assert listed["told"]["bytes_out_per_s"] is not None, "each leader was asked: no replica is here"


def test_a_replica_in_sync_tells_what_comes_in_and_not_what_goes_out(brokers: Brokers) -> None:
    scattered(brokers, "flowing", replication_factor=3)
    for broker in brokers.by_id.values():
        shown = broker.get("/api/v1/topics/flowing")
        assert shown["records_in_per_s"] > 0
        assert shown["bytes_out_per_s"] == 0, "the leaders were asked, and nobody has read"
        alone = json.loads(send(broker, "/api/v1/topics", **FORWARDED)[1])["topics"]
        listed = next(topic for topic in alone if topic["topic"] == "flowing")
        assert listed["records_in_per_s"] > 0
        assert listed["bytes_out_per_s"] is None, "others lead, too"
        assert abs(listed["last_write_ms"] - shown["last_write_ms"]) < 10_000


def test_pages_of_records_and_segments_come_from_the_leader_whoever_is_asked(brokers: Brokers) -> None:
    written = scattered(brokers, "pages")
    for broker in brokers.by_id.values():
        for number, values in written.items():
            page = broker.get(f"/api/v1/topics/pages/records?partition={number}&offset=-4")
            assert list(map(value_of, page["records"])) == values[-4:]
            assert broker.segments("pages", number)["high_watermark"] == len(values)
            assert ask(broker, "GET", f"/topics/pages/records?partition={number}&offset=999").status == 416
    assert ask(brokers.by_id[1], "GET", f"/topics/pages/records?partition={PARTITIONS}").status == 404


def test_silent_connections_at_a_leader_shut_no_other_broker_out(brokers: Brokers) -> None:
    """From an address of their own, and from the one that the brokers come from."""
    scattered(brokers, "crowded")
    leader = brokers.rows("crowded")[0].leader
    port = brokers.by_id[leader].http_port
    silent = [socket.create_connection(("127.0.0.1", port), 30, (f"127.0.0.{n % 2 + 1}", 0)) for n in range(600)]
    try:
        others = [broker for number, broker in brokers.by_id.items() if number != leader]
        path = "/api/v1/topics/crowded/records?partition=0&offset=-1"
        with ThreadPoolExecutor(20) as threads:  # More at once than one connection that is kept alive can carry.
            statuses = list(threads.map(lambda broker: send(broker, path)[0], others * 20))
        assert statuses == [200] * len(statuses)
    finally:
        for sock in silent:
            sock.close()


def test_records_are_deleted_at_their_leader_whoever_is_asked(brokers: Brokers) -> None:
    scattered(brokers, "shorter")
    for number in range(PARTITIONS):
        path = f"/topics/shorter/partitions/{number}/delete-records"
        assert ask(brokers.by_id[1], "POST", path, {"before_offset": 4}).body["log_start_offset"] == 4


def test_request_that_was_passed_on_is_answered_here_or_refused_and_never_passed_on_again(brokers: Brokers) -> None:
    scattered(brokers, "hops")
    for row in brokers.rows("hops"):
        for number, broker in brokers.by_id.items():
            path = f"/api/v1/topics/hops/records?partition={row.partition}"
            status, content = send(broker, path, **FORWARDED)
            assert status == (200 if number == row.leader else 503), content


def test_no_route_passes_on_a_request_that_was_passed_on(brokers: Brokers) -> None:
    """Or two brokers could pass one crafted request to each other for ever."""
    scattered(brokers, KNOWN)
    commit(brokers, "circling", KNOWN, {0: 1})
    cluster_id = brokers.by_id[1].get("/v3/clusters")["data"][0]["cluster_id"]
    routes = [f"{route.method} {route.path}" for route in ROUTES if not route.path.endswith("/tail")]
    routes.sort(key=lambda route: not route.startswith("GET "))
    for number, broker in brokers.by_id.items():
        before = passed_on(broker)
        for route in routes:
            method, template = route.split(" ", 1)
            path = path_of(cluster_id, template, KNOWN).replace(f"groups/{KNOWN}", "groups/circling")
            path = path.replace("brokers/1", f"brokers/{number % 3 + 1}")
            body = body_of(route)
            content = None if body is None else json.dumps(body).encode()
            # Its leader is asked by the broker that resets, which is no further hop; and topics stay.
            if "offsets/reset" in path or (method == "DELETE" and path.endswith(f"topics/{KNOWN}")):
                continue
            send(broker, path, method=method, body=content, Content_Type="application/json", **FORWARDED)
            assert passed_on(broker) == before, route


def passed_on(broker: BrokerProcess) -> list[str]:
    """How many requests this broker has sent to others, by their outcomes."""
    lines = send(broker, "/metrics")[1].decode().splitlines()
    return [line for line in lines if line.startswith("tiered_http_forwarded_total")]


def test_browser_is_checked_where_it_comes_in_and_served_by_whoever_leads(brokers: Brokers) -> None:
    scattered(brokers, "browsed")
    commit(brokers, "browsing", "browsed", {0: 3})
    for broker in brokers.by_id.values():
        own: dict[str, Any] = {"Origin": broker.http, "Sec_Fetch_Site": "same-origin"}
        for number in range(PARTITIONS):
            path = f"/api/v1/topics/browsed/records?partition={number}"
            assert send(broker, path, **own)[0] == 200
            assert send(broker, path, Origin="http://evil.example", Sec_Fetch_Site="cross-site")[0] == 403
            assert send(broker, path, Host="evil.example")[0] == 403
        path = "/api/v1/groups/browsing/offsets/reset"
        body = json.dumps({"topic": "browsed", "to": "latest"}).encode()
        assert send(broker, path, method="POST", body=body, **own)[0] == 403, "it has no token"
        token = json.loads(send(broker, "/api/v1/session")[1])["csrf_token"]
        status, content = send(broker, path, method="POST", body=body, X_Tiered_CSRF=token, **own)
        assert status == 200, content


# Producing


def test_records_produced_at_any_broker_reach_every_leader_and_each_is_answered_in_its_place(brokers: Brokers) -> None:
    create(brokers, "produced", PARTITIONS, 3, min_insync_replicas=2)
    sent: list[bytes] = []
    for at, broker in brokers.by_id.items():
        values = [f"{at}.{each}0" for each in range(60)]  # A broker that passes them on keeps the last digit too.
        lines = [
            f'{{"key": {{"type": "STRING", "data": "{value}"}}, "value": {{"type": "JSON", "data": {value}}}}}'
            for value in values
        ]
        lines.insert(30, '{"value": {"type": "NOTHING", "data": ""}}')
        lines.insert(40, f'{{"partition_id": {PARTITIONS}, "value": {{"type": "STRING", "data": "nowhere"}}}}')
        body = "\n".join(lines).encode()
        cluster_id = broker.get("/v3/clusters")["data"][0]["cluster_id"]
        status, content = send(broker, f"/v3/clusters/{cluster_id}/topics/produced/records", method="POST", body=body)
        assert status == 200
        answers = [json.loads(line) for line in content.splitlines()]
        assert [each["error_code"] for each in answers] == [200] * 30 + [40002] + [200] * 9 + [40403] + [200] * 21
        assert {each["partition_id"] for each in answers if each["error_code"] == 200} == set(range(PARTITIONS))
        sent += [value.encode() for value in values]
    found = [value for number in range(PARTITIONS) for value in brokers.read("produced", partition=number)]
    assert sorted(found) == sorted(sent)


def test_one_record_alone_has_the_status_of_its_outcome_whoever_leads(brokers: Brokers) -> None:
    create(brokers, "alone", PARTITIONS, 1, max_message_bytes=2_000)
    for broker in brokers.by_id.values():
        for number in range(PARTITIONS):
            record: dict[str, Any] = {"partition_id": number, "value": {"type": "STRING", "data": "x"}}
            status, found = v3(broker, "/topics/alone/records", method="POST", body=record)
            assert (status, found["partition_id"]) == (200, number)
            record["value"] = {"type": "STRING", "data": "x" * 3_000}
            status, found = v3(broker, "/topics/alone/records", method="POST", body=record)
            assert (status, found["error_code"]) == (413, 413), found
        status, found = v3(
            broker, "/topics/alone/records", method="POST", body={"value": {"type": "STRING", "data": ""}}
        )
        assert status == 200


# Groups


def test_every_broker_tells_of_every_group_and_its_lag(brokers: Brokers) -> None:
    scattered(brokers, "grouped")
    names = [f"group-{number}" for number in range(9)]
    for name in names:
        commit(brokers, name, "grouped", {0: 3, 4: 6})
    coordinators = set()
    for broker in brokers.by_id.values():
        listed = broker.get("/api/v1/groups")
        assert listed["silent_brokers"] == []
        assert set(names) <= {each["group_id"] for each in listed["groups"]}
        _, found = v3(broker, "/consumer-groups")
        assert set(names) <= {each["consumer_group_id"] for each in found["data"]}
        for name in names:
            group = broker.get(f"/api/v1/groups/{name}")
            coordinators.add(group["coordinator"])
            assert [(each["partition"], each["committed_offset"]) for each in group["offsets"]] == [(0, 3), (4, 6)]
            assert v3(broker, f"/consumer-groups/{name}")[0] == 200
        wait_at(
            brokers,
            broker,
            lambda broker: broker.get("/api/v1/groups/group-0")["lag"] == 11,
            "leaders have reported their ends",
        )
        status, found = v3(broker, "/consumer-groups/group-0/lag-summary")
        assert (status, found["total_lag"]) == (200, 11)
    assert len(coordinators) > 1, "a broker that was killed before gets its slots back one by one"


def test_offsets_are_reset_at_any_broker_by_what_the_leaders_know(brokers: Brokers) -> None:
    scattered(brokers, "reset")
    commit(brokers, "resetting", "reset", dict.fromkeys(range(PARTITIONS), 5))

    def after(broker: BrokerProcess, to: object) -> list[int]:
        answer: Answer = ask(
            broker, "POST", "/groups/resetting/offsets/reset", {"topic": "reset", "to": to, "dry_run": True}
        )
        assert answer.status == 200, answer.body
        return [each["after"] for each in answer.body["offsets"]]

    for broker in brokers.by_id.values():
        assert after(broker, "latest") == [10] * PARTITIONS
        assert after(broker, "earliest") == [0] * PARTITIONS
        assert after(broker, {"timestamp_ms": 0}) == [0] * PARTITIONS
        assert after(broker, {"timestamp_ms": 1 << 50}) == [10] * PARTITIONS
    answer = ask(brokers.by_id[3], "POST", "/groups/resetting/offsets/reset", {"topic": "reset", "to": {"offset": 7}})
    assert answer.status == 200, answer.body
    for broker in brokers.by_id.values():
        found = broker.get("/api/v1/groups/resetting")["offsets"]
        assert [each["committed_offset"] for each in found] == [7] * PARTITIONS
    assert ask(brokers.by_id[1], "DELETE", "/groups/resetting").status == 204
    assert ask(brokers.by_id[2], "GET", "/groups/resetting").status == 404


# The cluster as a whole


def test_confluents_listings_are_the_same_at_every_broker_but_for_the_host_in_their_links(brokers: Brokers) -> None:
    create(brokers, "listed", 3, 2)
    rows = brokers.rows("listed")

    def seen(broker: BrokerProcess) -> dict[str, Any]:
        found = {}
        for path in ("/brokers", "/topics/listed", "/topics/listed/partitions", "/topics/listed/partitions/1/replicas"):
            found[path] = v3(broker, path)
        for number in brokers.by_id:
            found[f"replicas {number}"] = v3(broker, f"/brokers/{number}/partition-replicas")
        text = json.dumps(found)
        assert broker.http in text
        return dict(json.loads(text.replace(broker.http, "http://here")))

    answers = [seen(broker) for broker in brokers.by_id.values()]
    assert answers[0] == answers[1] == answers[2]
    _, replicas = answers[0]["/topics/listed/partitions/1/replicas"]
    assert [each["broker_id"] for each in replicas["data"]] == list(rows[1].replicas)
    assert [each["broker_id"] for each in replicas["data"] if each["is_leader"]] == [rows[1].leader]
    assert all(each["is_in_sync"] for each in replicas["data"])
    assert [each["broker_id"] for each in answers[0]["/brokers"][1]["data"]] == [1, 2, 3]


def test_configs_of_a_broker_are_told_and_set_at_any_other(brokers: Brokers) -> None:
    path = "/brokers/3/configs/tiered.metrics.max.series"
    for broker in brokers.by_id.values():
        status, found = v3(broker, path)
        assert (status, found["source"]) == (200, "DEFAULT_CONFIG")
        assert broker.http in found["metadata"]["self"], "links name the broker that was asked"
        found = v3(broker, "/brokers/3/configs/broker.rack")[1]
        assert found["value"] == "rack-3"
    assert v3(brokers.by_id[1], path, method="PUT", body={"value": "77"})[0] == 204
    brokers.wait(lambda: v3(brokers.by_id[2], path)[1]["value"] == "77", "broker 3 has the new value")
    assert v3(brokers.by_id[2], path, method="DELETE")[0] == 204
    assert v3(brokers.by_id[2], "/brokers/4/configs")[0] == 404


def test_topic_made_at_one_broker_is_configured_at_another_and_deleted_at_a_third(brokers: Brokers) -> None:
    one, two, three = brokers.by_id.values()
    made = ask(one, "POST", "/topics", {"name": "passed-around", "partitions": 3, "replication_factor": 3})
    assert (made.status, made.body["replication_factor"]) == (201, 3)
    brokers.wait_whole("passed-around")
    brokers.wait(lambda: ask(two, "GET", "/topics/passed-around").status == 200, "broker 2 knows it")
    changed = ask(two, "PATCH", "/topics/passed-around/configs", {"set": {"retention.ms": 1000}})
    assert changed.status == 200
    brokers.wait(lambda: ask(three, "GET", "/topics/passed-around").status == 200, "broker 3 knows it")
    assert ask(three, "DELETE", "/topics/passed-around").status == 204
    brokers.wait(lambda: ask(one, "GET", "/topics/passed-around").status == 404, "broker 1 knows that it is gone")


def test_overview_has_every_broker_with_its_state_and_what_it_leads(brokers: Brokers) -> None:
    scattered(brokers, "overview", replication_factor=3)
    for number, broker in brokers.by_id.items():
        found = broker.get("/api/v1/cluster")
        assert found["answered_by"] == number
        assert [each["broker_id"] for each in found["brokers"]] == [1, 2, 3]
        assert [each["state"] for each in found["brokers"]] == ["live"] * 3
        assert [each["rack"] for each in found["brokers"]] == ["rack-1", "rack-2", "rack-3"]
        assert [each["is_controller"] for each in found["brokers"]].count(True) == 1
        assert {each["http_port"] for each in found["brokers"]} == {each.http_port for each in brokers.by_id.values()}
        assert sum(each["leader_count"] for each in found["brokers"]) == found["totals"]["partitions"]
        assert found["totals"]["local_bytes"] == sum(each["totals"]["local_bytes"] for each in found["brokers"])


def test_every_broker_shows_each_of_them_as_it_knows_itself(brokers: Brokers) -> None:
    scattered(brokers, "shown", replication_factor=2)
    for broker in brokers.by_id.values():
        for number, subject in brokers.by_id.items():
            shown = broker.get(f"/api/v1/brokers/{number}")
            assert (shown["broker_id"], shown["state"], shown["rack"]) == (number, "live", f"rack-{number}")
            assert (shown["port"], shown["http_port"]) == (subject.kafka_port, subject.http_port)
            assert [listener["port"] for listener in shown["listeners"]] == [subject.kafka_port]
            activity = shown["activity"]
            assert activity["produced_bytes"] == subject.metric("tiered_produced_bytes_total") > 0
            assert activity["replicated_in_bytes"] > 0
            assert 0 < activity["cpu_s"] < activity["uptime_ms"]
            assert activity["disk_free_bytes"] < activity["disk_total_bytes"]
            assert activity["requests"] > 0
            assert activity["http_requests"] > 0
            assert (shown["health"]["broker"], shown["health"]["sql_away"]) == (number, False)
            assert shown["heartbeat_is_late"] is False
            if broker is not subject:
                assert 0 <= shown["heartbeat_age_ms"] < 3_000
    assert ask(brokers.by_id[1], "GET", "/brokers/4").status == 404


def test_partitions_of_a_broker_come_a_page_at_a_time_and_by_role(brokers: Brokers) -> None:
    scattered(brokers, "paged", replication_factor=2)
    create(brokers, "paged-more", PARTITIONS, 3)

    def listed(query: str, limit: int = 1_000) -> list[tuple[str, int]]:
        names: list[tuple[str, int]] = []
        after = ""
        while True:
            answer = brokers.by_id[1].get(f"/api/v1/brokers/2/partitions?limit={limit}{query}{after}")
            assert len(answer["partitions"]) <= limit
            names += [(row["topic"], row["partition"]) for row in answer["partitions"]]
            if answer["is_end"]:
                return names
            after = f"&after_topic={names[-1][0]}&after_partition={names[-1][1]}"

    rows = {(topic, row.partition): row for topic in ("paged", "paged-more") for row in brokers.rows(topic)}
    mine = [name for name, row in rows.items() if 2 in row.replicas]
    led = [name for name, row in rows.items() if row.leader == 2]
    assert [name for name in listed("") if name in rows] == sorted(mine)
    assert [name for name in listed("", limit=2) if name in rows] == sorted(mine)
    assert [name for name in listed("&role=leader") if name in rows] == sorted(led)
    assert [name for name in listed("&role=follower") if name in rows] == sorted(set(mine) - set(led))
    assert [name for name in listed("&in_sync=true") if name in rows] == sorted(mine)
    assert listed("&in_sync=false") == []


def test_broker_that_is_paused_holds_nobody_up_and_is_told_of_as_silent(brokers: Brokers) -> None:
    scattered(brokers, "paused", replication_factor=3)
    paused = brokers.by_id[3]
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        shown = brokers.by_id[1].get("/api/v1/brokers/3")
        assert shown["state"] == "fenced" or (shown["state"], shown["heartbeat_is_late"]) == ("silent", True)
        assert shown["activity"] is None
        assert shown["heartbeat_age_ms"] > 1_000
        for path in ("/api/v1/cluster", "/api/v1/groups", "/api/v1/topics/paused", "/api/v1/topics"):
            began = time.monotonic()
            brokers.by_id[1].get(path)
            assert time.monotonic() - began < 20, path
        found = brokers.by_id[1].get("/api/v1/cluster")["brokers"][2]
        assert found["state"] in ("silent", "fenced")
        assert found["totals"] is None
        failures = next(line for line in passed_on(brokers.by_id[1]) if 'outcome="failed"' in line)
        assert float(failures.split()[-1]) > 0
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    brokers.wait_whole("paused")


def test_dead_leader_without_a_follower_is_a_clear_retriable_error_and_is_seen_everywhere(brokers: Brokers) -> None:
    scattered(brokers, "single")
    create(brokers, "double", 3, 3)
    row = next(row for row in brokers.rows("single") if row.leader == 2)
    brokers.by_id[2].kill()
    rest = [brokers.by_id[1], brokers.by_id[3]]
    path = f"/topics/single/records?partition={row.partition}"
    # At once nobody answers there, later nobody leads: both may be tried again.
    for broker in rest:
        assert ask(broker, "GET", path).status == 503
    for broker in rest:
        wait_at(
            brokers,
            broker,
            lambda broker: broker.get("/api/v1/cluster")["brokers"][1]["state"] == "fenced",
            "broker 2 is fenced",
        )
        answer = ask(broker, "GET", path)
        assert answer.status == 503
        assert "try again" in answer.message
        found = broker.get("/api/v1/topics/single")
        assert found["partitions"][row.partition]["leader"] == -1
        assert found["partitions"][row.partition]["told_by"] is None
        assert found["offline"] == 2
        health = broker.get("/readyz")
        assert (health["serving"], health["fenced_brokers"]) == (True, [2])
        assert f"single-{row.partition}" in health["offline"]
        assert {f"double-{number}" for number in range(3)} <= set(health["under_replicated"])
        assert broker.metric("tiered_offline_partitions") >= 2
        assert broker.metric("tiered_fenced_brokers") == 1
        assert [each["isr"].count(2) for each in broker.get("/api/v1/topics/double")["partitions"]] == [0, 0, 0]
        status, answer_v3 = v3(broker, f"/topics/single/partitions/{row.partition}")
        assert status == 200
        assert "leader" not in answer_v3
        body = {"partition_id": row.partition, "value": {"type": "STRING", "data": "x"}}
        status, refused = v3(broker, "/topics/single/records", method="POST", body=body)
        assert (status, refused["error_code"]) == (503, 50003)
    assert sum(each.metric("tiered_under_replicated_partitions") for each in rest) >= 3
    assert sum(each.metric("tiered_is_controller") for each in rest) == 1
    brokers.start()
    brokers.wait_whole("single")
    for broker in rest:
        wait_at(brokers, broker, lambda broker: ask(broker, "GET", path).status == 200, "it is back")
