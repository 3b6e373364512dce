#include "runtime/sharding/gathered_parameters.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/sharding/quantized_codec.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

constexpr UnitEvent forward(int unit) {
  return {UnitEvent::Kind::kForward, unit};
}

std::shared_ptr<test::ThreadGroup> ranks(int count) {
  return std::make_shared<test::ThreadGroup>(count);
}

// Counts gathers.
class CountingCommunicator : public test::ThreadCommunicator {
 public:
  using test::ThreadCommunicator::ThreadCommunicator;
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override {
    num_gathers += 1;
    test::ThreadCommunicator::all_gather(in, out);
  }
  int num_gathers = 0;
};

// What a unit's flat buffer holds: its first element says which unit is there.
at::Tensor values_of(int unit, int64_t begin, int64_t end) {
  return at::arange(begin, end, at::kFloat) * 100 + unit;
}

// A root and `num_units` units of one parameter with 100 elements each; one rank unless told.
struct Bench {
  Bench(int num_units, int64_t prefetch_numel, int64_t max_live_numel,
        std::shared_ptr<test::ThreadGroup> world = ranks(1), int rank = 0, comm::Communicator* host = nullptr,
        int64_t max_reuse_numel = 0)
      : communicator(world, rank) {
    table.units.push_back({"", {}});
    for (int i = 0; i < num_units; ++i) {
      table.parameters.push_back({fmt::format("p{}", i), {100}, 100, at::kFloat, true, i + 1, {}});
      table.units.push_back({fmt::format("u{}", i + 1), {i}});
    }
    PartitionOptions partition;
    partition.compute_dtypes.assign(table.parameters.size(), at::kFloat);
    partition.num_shards = world->size;
    partition.gathers = true;
    partition.persistence_threshold = 0;
    groups = plan_flat_groups(table, partition);
    for (size_t i = 0; i < groups.size(); ++i) {
      const Range own = shard_range(groups[i], rank, world->size);
      at_rest.push_back(values_of(groups[i].unit, own.begin, own.end));
    }
    options.stage = 3;
    options.prefetch_numel = prefetch_numel;
    options.max_live_numel = max_live_numel;
    options.max_reuse_numel = max_reuse_numel;
    options.secondary_group = host;
    gathered = std::make_unique<GatheredParameters>(table, groups, GatheredParameters::AtRest{at_rest}, options,
                                                    streams, communicator);
  }
  void unshard(int unit, std::vector<UnitEvent> ahead = {}) { gathered->unshard(unit, ahead); }
  double value(int unit) { return gathered->full_parameters(unit - 1)[0].item<double>(); }
  const void* address(int unit) { return gathered->full_parameters(unit - 1).const_data_ptr(); }
  bool is_whole(int unit) {
    return at::equal(gathered->full_parameters(unit - 1), values_of(unit, 0, groups[unit - 1].padded_numel));
  }

  ParameterTable table;
  std::vector<FlatGroup> groups;
  std::vector<at::Tensor> at_rest;
  ShardingOptions options;
  StepStreams streams{at::kCPU, false};
  CountingCommunicator communicator;
  std::unique_ptr<GatheredParameters> gathered;
};

}  // namespace

TEST_CASE("a unit comes back to the address where autograd saved it", "[runtime][sharding][gathered]") {
  Bench bench(7, 0, 1'000'000);
  std::vector<const void*> addresses(8);
  for (int unit = 1; unit <= 7; ++unit) {
    bench.unshard(unit);
    bench.gathered->hold(unit);
    bench.gathered->expect_backward(unit);
    addresses[unit] = bench.address(unit);
    CHECK(bench.value(unit) == unit);
    bench.gathered->release(unit);
  }
  for (int unit = 7; unit >= 1; --unit) {
    bench.unshard(unit);
    bench.gathered->hold(unit);
    CHECK(bench.address(unit) == addresses[unit]);
    CHECK(bench.value(unit) == unit);
    bench.gathered->backward_done(unit);
  }
}

TEST_CASE("units ahead are gathered before their use, as far as the prefetch goes and slots are free",
          "[runtime][sharding][gathered]") {
  Bench bench(6, 200, 1'000'000);
  CHECK(bench.gathered->num_slots() == 4);
  bench.unshard(1, {forward(2), forward(3), forward(4)});
  CHECK(bench.communicator.num_gathers == 3);  // 1, and two times 128 padded elements reach 200
  bench.unshard(2, {forward(3), forward(4)});
  bench.unshard(3, {forward(4)});
  CHECK(bench.communicator.num_gathers == 4);
}

TEST_CASE("the limit of live elements bounds the slots, and one unit always fits", "[runtime][sharding][gathered]") {
  CHECK(Bench(6, 1'000'000, 1'000'000).gathered->num_slots() == 6);
  CHECK(Bench(6, 1'000'000, 300).gathered->num_slots() == 2);
  CHECK(Bench(6, 1'000'000, 1).gathered->num_slots() == 1);
}

namespace {

// Gathers of a forward and a backward over six units of 128 padded elements, without prefetch: a ring of two slots.
// Between forward and backward of the i-th from the end, 2 * 128 * i elements are gathered.
int count_gathers(int64_t max_reuse_numel, int64_t max_live_numel = 1'000'000) {
  Bench bench(6, 0, max_live_numel, ranks(1), 0, nullptr, max_reuse_numel);
  std::vector<const void*> addresses(7);
  for (int pass = 0; pass < 2; ++pass) {  // the second one gathers as much: its shards are others
    for (int unit = 1; unit <= 6; ++unit) {
      bench.unshard(unit);
      bench.gathered->hold(unit);
      bench.gathered->expect_backward(unit);
      addresses[unit] = bench.address(unit);
      bench.gathered->release(unit);
    }
    for (int unit = 6; unit >= 1; --unit) {
      bench.unshard(unit);
      bench.gathered->hold(unit);
      CHECK(bench.address(unit) == addresses[unit]);
      CHECK(bench.is_whole(unit));
      bench.gathered->backward_done(unit);
    }
    bench.gathered->end_pass();
    bench.gathered->shards_changed();
  }
  CHECK(bench.communicator.num_gathers % 2 == 0);
  return bench.communicator.num_gathers / 2;
}

}  // namespace

TEST_CASE("the last units stay gathered from forward to backward, as far as the reuse distance goes",
          "[runtime][sharding][gathered]") {
  CHECK(count_gathers(0) == 10);       // the ring alone holds the last two
  CHECK(count_gathers(1) == 9);        // the last one, and the ring two more
  CHECK(count_gathers(2 * 128) == 9);  // as much as this is too far
  CHECK(count_gathers(2 * 128 + 1) == 8);
  CHECK(count_gathers(2 * 256 + 1) == 7);
  CHECK(count_gathers(1'000'000) == 6);  // each once
}

TEST_CASE("units that stay gathered are within the limit of live elements", "[runtime][sharding][gathered]") {
  CHECK(count_gathers(1'000'000, 2 * 128) == 10);
  CHECK(count_gathers(1'000'000, 3 * 128) == 9);
  CHECK(count_gathers(1'000'000, 5 * 128) == 7);
  CHECK(count_gathers(1'000'000, 6 * 128) == 6);
}

TEST_CASE("an evaluation, which has no backward, keeps no unit gathered", "[runtime][sharding][gathered]") {
  Bench bench(6, 0, 1'000'000, ranks(1), 0, nullptr, 1'000'000);
  CHECK(bench.gathered->num_slots() == 8);  // two of the ring, which are empty
  bench.options.for_evaluation = true;
  CHECK(plan_slots(bench.table.units.size(), bench.groups, bench.options).slot_bytes.size() == 3);
}

TEST_CASE("a unit that still runs keeps its values when another one needs its slot", "[runtime][sharding][gathered]") {
  Bench bench(3, 0, 1);  // one slot
  bench.unshard(1);
  bench.gathered->hold(1);
  bench.unshard(2);
  bench.gathered->hold(2);
  CHECK(bench.value(1) == 1);
  CHECK(bench.value(2) == 2);
  CHECK(bench.address(1) != bench.address(2));
}

TEST_CASE("backward through a unit that was not asked for is an error that names it", "[runtime][sharding][gathered]") {
  Bench bench(2, 0, 1);
  bench.unshard(1);
  bench.gathered->hold(1);
  bench.gathered->expect_backward(1);
  bench.gathered->release(1);
  try {
    bench.gathered->backward_done(1);
    FAIL("no error");
  } catch (const UserError& error) {
    CHECK(std::string(error.what()).find("unit 'u1'") != std::string::npos);
  }
}

TEST_CASE("a unit that is needed where another one still runs is refused instead of overwritten",
          "[runtime][sharding][gathered]") {
  Bench bench(2, 0, 1);
  bench.unshard(1);
  bench.gathered->hold(1);
  bench.gathered->expect_backward(1);
  bench.gathered->release(1);
  bench.unshard(2);
  bench.gathered->hold(2);
  CHECK_THROWS_AS(bench.unshard(1), UserError);
}

TEST_CASE("the root's backward, which begins in the middle of a unit's, prefetches nothing into that unit's slot",
          "[runtime][sharding][gathered]") {
  Bench bench(2, 100, 1);
  for (int unit : {1, 2}) {
    bench.unshard(unit);
    bench.gathered->hold(unit);
    bench.gathered->expect_backward(unit);
    bench.gathered->release(unit);
  }
  bench.unshard(2);
  bench.gathered->hold(2);
  bench.unshard(0, {{UnitEvent::Kind::kReduce, 2}, {UnitEvent::Kind::kBackward, 1}});
  CHECK(bench.value(2) == 2);
  bench.gathered->backward_done(2);
  bench.unshard(1);
  CHECK(bench.value(1) == 1);
}

TEST_CASE("with hpZ the first gather of a step is over all ranks, later ones stay inside a host",
          "[runtime][sharding][gathered]") {
  const auto world = ranks(4);
  const std::shared_ptr<test::ThreadGroup> hosts[] = {ranks(2), ranks(2)};
  struct Seen {
    bool whole = true;
    int among_all = 0, inside_host = 0, among_all_after_step = 0;
  };
  std::vector<Seen> seen(4);
  auto be_rank = [&](int rank) {
    CountingCommunicator host(hosts[rank / 2], rank % 2);
    Bench bench(2, 0, 1, world, rank, &host);  // one slot
    Seen& own = seen[rank];
    for (int unit : {1, 2, 1, 2}) {
      bench.unshard(unit);
      own.whole = own.whole && bench.is_whole(unit);
    }
    own.among_all = bench.communicator.num_gathers;
    own.inside_host = host.num_gathers;
    bench.gathered->end_pass();
    bench.gathered->shards_changed();
    bench.unshard(1);
    own.among_all_after_step = bench.communicator.num_gathers - own.among_all;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back(be_rank, rank);
  for (auto& thread : threads) thread.join();
  for (const Seen& own : seen) {
    CHECK(own.whole);
    CHECK(own.among_all == 2);
    CHECK(own.inside_host == 2);
    CHECK(own.among_all_after_step == 1);
  }
}

TEST_CASE("a unit that was not held cannot be released", "[runtime][sharding][gathered]") {
  Bench bench(1, 0, 1);
  bench.unshard(1);
  CHECK_THROWS_WITH(bench.gathered->release(1), Catch::Contains("unit 'u1' was not held"));
  bench.gathered->release(0);  // the root has nothing to gather here
}

TEST_CASE("a unit that is held twice keeps its place until both have released it", "[runtime][sharding][gathered]") {
  Bench bench(2, 0, 1);  // one slot
  bench.unshard(1);
  bench.gathered->hold(1);
  bench.gathered->hold(1);
  bench.gathered->release(1);
  bench.unshard(2);
  CHECK(bench.is_whole(1));
  CHECK(bench.is_whole(2));
  bench.gathered->release(1);
}

TEST_CASE("a unit that is still in its slot is not gathered again, after the pass it is",
          "[runtime][sharding][gathered]") {
  Bench bench(2, 0, 1'000'000);
  bench.unshard(1);
  bench.gathered->hold(1);
  bench.gathered->release(1);
  bench.unshard(1);
  CHECK(bench.communicator.num_gathers == 1);
  bench.gathered->end_pass();
  CHECK(bench.gathered->address(1) == nullptr);
  bench.unshard(1);
  CHECK(bench.communicator.num_gathers == 2);
}

TEST_CASE("a gather reads the slices as they are now", "[runtime][sharding][gathered]") {
  Bench bench(1, 0, 1);
  bench.unshard(1);
  bench.gathered->end_pass();
  bench.at_rest[0].add_(1000);
  bench.gathered->shards_changed();
  bench.unshard(1);
  CHECK(bench.value(1) == 1001);
}

TEST_CASE("a prefetch ends where the next unit needs the slot of one before it", "[runtime][sharding][gathered]") {
  Bench bench(4, 1'000'000, 300);  // two slots
  REQUIRE(bench.gathered->num_slots() == 2);
  bench.unshard(1, {forward(2), forward(3), forward(4)});
  CHECK(bench.communicator.num_gathers == 2);
  CHECK(bench.is_whole(1));
  CHECK(bench.is_whole(2));
  bench.unshard(2, {forward(3), forward(4)});
  CHECK(bench.communicator.num_gathers == 3);  // 3 takes the place of 1; 2 is there
  CHECK(bench.is_whole(2));
  CHECK(bench.is_whole(3));
}

namespace {

// One unit with a parameter of each dtype, and its values whole on a rank after a gather.
std::vector<at::Tensor> gathered_whole(int ranks_of_world, const ShardingOptions& given, bool frozen) {
  ParameterTable table;
  table.units = {{"", {}}, {"u", frozen ? std::vector<int>{} : std::vector<int>{0, 1}}};
  if (frozen) table.units[1].frozen = {0, 1};
  table.parameters.push_back({"wide", {300}, 300, at::kFloat, !frozen, 1, {}});
  table.parameters.push_back({"half", {100}, 100, at::kBFloat16, !frozen, 1, {}});
  PartitionOptions partition;
  partition.compute_dtypes = {at::kFloat, at::kBFloat16};
  partition.num_shards = ranks_of_world;
  partition.gathers = true;
  partition.persistence_threshold = 0;
  const auto groups = plan_flat_groups(table, partition);
  const auto world = ranks(ranks_of_world);
  std::vector<std::vector<at::Tensor>> found(static_cast<size_t>(ranks_of_world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks_of_world; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator communicator(world, rank);
      std::vector<at::Tensor> at_rest;
      for (const auto& group : groups) {
        const Range own = shard_range(group, rank, ranks_of_world);
        const auto values = (at::arange(own.begin, own.end, at::kFloat) / 64).to(group.dtype);
        at_rest.push_back(frozen && given.quantized_frozen ? quantize(values, kWeightWire) : values);
      }
      ShardingOptions options = given;
      options.stage = 3;
      StepStreams streams(at::kCPU, false);
      GatheredParameters gathered(table, groups, {at_rest}, options, streams, communicator);
      gathered.unshard(1, {});
      gathered.hold(1);
      for (size_t i = 0; i < groups.size(); ++i) {
        found[static_cast<size_t>(rank)].push_back(gathered.full_parameters(static_cast<int>(i)).to(at::kFloat));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& of_rank : found) {
    REQUIRE(of_rank.size() == groups.size());
    for (size_t i = 0; i < groups.size(); ++i) CHECK(at::equal(of_rank[i], found[0][i]));
  }
  return found[0];
}

void check_close(const std::vector<at::Tensor>& found, double tolerance) {
  REQUIRE(found.size() == 2);
  for (const auto& whole : found) {
    const auto expected = at::arange(whole.numel(), at::kFloat) / 64;
    CHECK((whole - expected).abs().max().item<double>() <= tolerance);
  }
}

}  // namespace

TEST_CASE("a unit of several dtypes is whole on every rank, however it is gathered", "[runtime][sharding][gathered]") {
  for (const int ranks_of_world : {1, 2, 3}) {
    for (const bool fused : {true, false}) {
      ShardingOptions options;
      options.use_all_gather = fused;
      check_close(gathered_whole(ranks_of_world, options, false), 1.0 / 128);  // bf16 rounds the larger ones
      check_close(gathered_whole(ranks_of_world, options, true), 1.0 / 128);
    }
  }
}

TEST_CASE("a gather in 8 bits is within half a step of a block", "[runtime][sharding][gathered]") {
  ShardingOptions weights, frozen;
  weights.quantized_weights = true;
  frozen.quantized_frozen = true;
  for (const int ranks_of_world : {1, 2}) {
    const double tolerance = 384.0 / 64 / 127;  // of the largest value
    check_close(gathered_whole(ranks_of_world, weights, false), tolerance);
    check_close(gathered_whole(ranks_of_world, frozen, true), tolerance);
  }
}

TEST_CASE("secondary parts that were forgotten are gathered from all ranks again", "[runtime][sharding][gathered]") {
  const auto world = ranks(1);
  CountingCommunicator host(ranks(1), 0);
  Bench bench(1, 0, 1, world, 0, &host);
  bench.unshard(1);
  bench.gathered->end_pass();
  bench.unshard(1);
  CHECK(host.num_gathers == 1);
  bench.gathered->end_pass();
  bench.gathered->forget_secondary();
  bench.unshard(1);
  CHECK(host.num_gathers == 1);
  CHECK(bench.communicator.num_gathers == 2);
  CHECK(bench.is_whole(1));
}
