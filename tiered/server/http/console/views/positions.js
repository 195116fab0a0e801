// Where groups stand in one topic. Owns the questions to the broker: a bounded number of groups, the rest are counted.

import { get, part } from "../js/api.js";
import { poll } from "../js/poll.js";

const MAX_GROUPS = 20;

/** Polls the groups that have offsets in `topic`: `data` is { groups: [description], positions, left: count }. */
export function followersOf(topic, changed) {
  return poll(async (signal) => {
    const { groups } = await get("api/v1/groups", { signal });
    const found = groups.filter((each) => each.topics.includes(topic));
    const described = await Promise.allSettled(found.slice(0, MAX_GROUPS).map((each) => get(`api/v1/groups/${part(each.group_id)}`, { signal })));
    const answered = described.filter((each) => each.status === "fulfilled").map((each) => each.value);
    return { groups: answered, positions: byPartition(answered, topic), left: Math.max(0, found.length - MAX_GROUPS) };
  }, { everyMs: 5_000, changed });
}

/** [{ group, offset, lag, atMs, memberId }] of one partition. */
export function positionsIn(followers, partition) {
  return followers?.data?.positions.get(partition) || [];
}

function byPartition(groups, topic) {
  const found = new Map();
  for (const group of groups) {
    for (const each of group.offsets) {
      if (each.topic !== topic || each.committed_offset === null || each.committed_offset < 0) continue;
      if (!found.has(each.partition)) found.set(each.partition, []);
      found.get(each.partition).push({
        group: group.group_id, offset: each.committed_offset, lag: each.lag, atMs: each.committed_at_ms, memberId: each.member_id,
      });
    }
  }
  for (const list of found.values()) list.sort((a, b) => a.offset - b.offset);
  return found;
}
