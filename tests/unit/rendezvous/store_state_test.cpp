#include "rendezvous/store_state.hpp"

#include <catch2/catch.hpp>

namespace rdv = dslaunch::rendezvous;
using Catch::Contains;
using rdv::Answer;
using rdv::StoreState;
using Status = rdv::wire::Status;

namespace {

// Remembers the one answer to a wait.
struct Inbox {
  std::optional<Answer> answer;
  StoreState::Answered slot() {
    return [this](const Answer& given) {
      REQUIRE_FALSE(answer);
      answer = given;
    };
  }
  std::string text() const { return answer ? answer->body : "no answer"; }
};

StoreState world_of(int size, int connected) {
  std::vector<std::string> hosts;
  for (int i = 0; i < size; ++i) hosts.push_back("host" + std::to_string(i / 2));
  StoreState state(size, hosts);
  for (int i = 0; i < connected; ++i) state.join(i, "");
  return state;
}

}  // namespace

TEST_CASE("a wait for a key is answered when the key is set", "[rendezvous][store_state]") {
  auto state = world_of(2, 2);
  Inbox first, second;
  CHECK(state.get(0, "k", first.slot()) != 0);
  CHECK(state.get(1, "other", second.slot()) != 0);
  state.set("k", "v");
  REQUIRE(first.answer);
  CHECK(first.answer->status == Status::kOk);
  CHECK(rdv::wire::Reader(first.answer->body).text(10) == "v");
  CHECK_FALSE(second.answer);
}

TEST_CASE("counters add, and refuse text and overflow", "[rendezvous][store_state]") {
  auto state = world_of(1, 1);
  CHECK(rdv::wire::Reader(state.add("n", 5).body).u64() == 5);
  CHECK(static_cast<int64_t>(rdv::wire::Reader(state.add("n", -7).body).u64()) == -2);
  state.set("t", "12x");
  CHECK(state.add("t", 1).status == Status::kRefused);
  state.set("big", "9223372036854775807");
  CHECK(state.add("big", 1).status == Status::kRefused);
  CHECK(rdv::wire::Reader(state.try_get("big").body.substr(1)).text(32) == "9223372036854775807");
}

TEST_CASE("erase removes keys with the prefix and frees their memory", "[rendezvous][store_state]") {
  auto state = world_of(1, 1);
  auto num_erased = [&](const std::string& prefix) { return rdv::wire::Reader(state.erase(prefix).body).u64(); };
  auto is_there = [&](const std::string& key) { return rdv::wire::Reader(state.try_get(key).body).u8() == 1; };
  // Far more than the store holds at once.
  const std::string value(16 << 20, 'v');
  for (int round = 0; round < 100; ++round) {
    REQUIRE(state.set("save/1/a", value).status == Status::kOk);
    REQUIRE(state.set("save/1/b", "x").status == Status::kOk);
    REQUIRE(num_erased("save/1/") == 2);
  }
  state.set("save/10/a", "kept");
  CHECK(num_erased("save/1/") == 0);
  CHECK((is_there("save/10/a") && !is_there("save/1/a")));
  CHECK(state.erase("").status == Status::kRefused);
  CHECK(is_there("save/10/a"));
}

TEST_CASE("compare-and-set returns the value after", "[rendezvous][store_state]") {
  auto state = world_of(1, 1);
  auto value = [](const Answer& answer) { return rdv::wire::Reader(answer.body).text(100); };
  CHECK(value(state.compare_and_set("k", "", "a")) == "a");
  CHECK(value(state.compare_and_set("k", "x", "b")) == "a");
  CHECK(value(state.compare_and_set("k", "a", "b")) == "b");
  CHECK(value(state.compare_and_set("missing", "x", "y")).empty());
}

TEST_CASE("a barrier's name can be reused", "[rendezvous][store_state]") {
  auto state = world_of(3, 3);
  for (int round = 0; round < 3; ++round) {
    Inbox inbox[3];
    state.barrier(2, "b", 3, inbox[2].slot());
    state.barrier(0, "b", 3, inbox[0].slot());
    CHECK_FALSE(inbox[0].answer);
    state.barrier(1, "b", 3, inbox[1].slot());
    for (auto& each : inbox) {
      REQUIRE(each.answer);
      CHECK(each.answer->status == Status::kOk);
    }
  }
}

TEST_CASE("a barrier that times out describes the missing ranks", "[rendezvous][store_state]") {
  auto state = world_of(6, 5);
  state.leave(4);
  StoreState fresh = world_of(6, 5);
  Inbox first, others[2];
  auto ticket = fresh.barrier(0, "start", 6, first.slot());
  fresh.barrier(1, "start", 6, others[0].slot());
  fresh.barrier(3, "start", 6, others[1].slot());
  fresh.expire(ticket, 5.0);
  REQUIRE(first.answer);
  CHECK(first.answer->status == Status::kTimeout);
  CHECK(first.text() ==
        "barrier 'start' was not complete within 5.0 s, 3 of 6 ranks have arrived: ranks 2, 4, 5 have not arrived "
        "(rank 2 "
        "on host1 is connected but has not arrived yet; rank 4 on host2 is connected but has not arrived yet; rank 5 "
        "on host2 never "
        "connected)");
  CHECK_FALSE(others[0].answer);
}

TEST_CASE("a rank that times out does not break the barrier for other ranks", "[rendezvous][store_state]") {
  auto state = world_of(2, 2);
  Inbox early, again, other;
  state.expire(state.barrier(0, "b", 2, early.slot()), 1.0);
  CHECK(early.answer->status == Status::kTimeout);
  state.barrier(1, "b", 2, other.slot());
  CHECK_FALSE(other.answer);
  state.barrier(0, "b", 2, again.slot());
  CHECK(other.answer->status == Status::kOk);
  CHECK(again.answer->status == Status::kOk);
}

TEST_CASE("a key that nobody sets names the ranks that never came", "[rendezvous][store_state]") {
  auto state = world_of(4, 3);
  Inbox inbox;
  state.expire(state.get(0, "id", inbox.slot()), 2.5);
  CHECK_THAT(inbox.text(), Contains("key 'id' was not set within 2.5 s: rank 3 has not arrived (rank 3 on host1 never "
                                    "connected)"));
  auto full = world_of(2, 2);
  Inbox second;
  full.expire(full.get(0, "id", second.slot()), 1);
  CHECK_THAT(second.text(), Contains("all 2 ranks are connected"));
}

TEST_CASE("many missing ranks do not make an endless message", "[rendezvous][store_state]") {
  auto state = world_of(1000, 1);
  Inbox inbox;
  state.expire(state.barrier(0, "b", 1000, inbox.slot()), 1);
  CHECK_THAT(inbox.text(), Contains("and 991 more"));
  CHECK(inbox.text().size() < 1500);
}

TEST_CASE("a lost rank ends all present and later waits, and keys stay readable", "[rendezvous][store_state]") {
  auto state = world_of(4, 4);
  state.set("there", "v");
  Inbox key, meeting, late_key, late_meeting, present;
  state.get(0, "k", key.slot());
  state.barrier(1, "b", 4, meeting.slot());
  auto news = state.lose(2, "connection closed");
  REQUIRE(news);
  CHECK(news->rank == 2);
  CHECK(news->host == "host1");
  CHECK_FALSE(state.lose(2, "again"));
  CHECK(state.get(3, "late", late_key.slot()) == 0);
  CHECK(state.barrier(3, "late", 2, late_meeting.slot()) == 0);
  for (auto* inbox : {&key, &meeting, &late_key, &late_meeting}) {
    REQUIRE(inbox->answer);
    CHECK(inbox->answer->status == Status::kPeerLost);
    auto lost = rdv::decode_lost_rank(inbox->answer->body);
    CHECK(lost.rank == 2);
    CHECK(lost.reason == "connection closed");
  }
  state.get(0, "there", present.slot());
  CHECK(present.answer->status == Status::kOk);
}

TEST_CASE("a rank that left is not lost, but full barriers fail", "[rendezvous][store_state]") {
  auto state = world_of(3, 3);
  Inbox waiting, late, group;
  state.barrier(0, "b", 3, waiting.slot());
  state.leave(2);
  CHECK_FALSE(state.lose(2, "connection closed"));
  CHECK(waiting.answer->status == Status::kPeerLost);
  state.barrier(1, "b", 3, late.slot());
  CHECK(late.answer->status == Status::kPeerLost);
  CHECK_THAT(rdv::decode_lost_rank(late.answer->body).reason, Contains("left"));
  state.barrier(1, "pair", 2, group.slot());
  CHECK_FALSE(group.answer);
}

TEST_CASE("a rank that comes back after its loss counts again", "[rendezvous][store_state]") {
  auto state = world_of(2, 2);
  state.lose(1, "connection closed");
  state.join(1, "");
  Inbox first, second;
  state.barrier(0, "b", 2, first.slot());
  state.barrier(1, "b", 2, second.slot());
  CHECK(first.answer->status == Status::kOk);
}

TEST_CASE("ranks that disagree about a barrier get an error", "[rendezvous][store_state]") {
  auto state = world_of(3, 3);
  Inbox first, other_count, twice, too_many;
  state.barrier(0, "b", 3, first.slot());
  state.barrier(1, "b", 2, other_count.slot());
  CHECK_THAT(other_count.text(), Contains("rank 1 expects 2 ranks, rank 0 expected 3"));
  state.barrier(0, "b", 3, twice.slot());
  CHECK_THAT(twice.text(), Contains("rank 0 is already waiting at barrier 'b'"));
  state.barrier(0, "c", 4, too_many.slot());
  CHECK(too_many.answer->status == Status::kRefused);
}
