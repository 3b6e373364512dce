#include "runtime/sharding/gradient_sink.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "runtime/sharding/gradient_reduction.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

// Writes down what is delivered: "GROUP SUM [first] [last]".
class RecordingSink final : public GradientSink {
 public:
  void prepare(int group, const at::Tensor& room) override {
    prepared_.insert(group);
    num_rooms_ += room.defined() ? 1 : 0;
  }
  void deliver(int group, const at::Tensor& slice, bool is_first, bool is_last) override {
    CHECK(prepared_.erase(group) == 1);
    delivered_.push_back(slice.storage().getWeakStorageImpl());
    dtypes_.push_back(slice.scalar_type());
    events_.push_back(
        fmt::format("{} {}{}{}", group, slice.sum().item<float>(), is_first ? " first" : "", is_last ? " last" : ""));
  }
  void finish() override {}
  void release() override {}

  std::vector<std::string> take() { return std::exchange(events_, {}); }
  int num_rooms() const { return num_rooms_; }
  std::vector<at::ScalarType> take_dtypes() { return std::exchange(dtypes_, {}); }
  // Deliveries whose memory still lives.
  int64_t count_live() const {
    return std::count_if(delivered_.begin(), delivered_.end(), [](const auto& memory) { return !memory.expired(); });
  }

 private:
  std::set<int> prepared_;
  std::vector<std::string> events_;
  std::vector<at::ScalarType> dtypes_;
  int num_rooms_ = 0;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> delivered_;
};

// A root of one parameter and a block of two, each in a flat group of its own.
struct Example {
  ParameterTable table;
  std::vector<FlatGroup> groups;
  ShardingOptions options;
  test::ThreadCommunicator alone{std::make_shared<test::ThreadGroup>(1), 0};
  StepStreams streams{at::kCPU, false};
  RecordingSink sink;

  explicit Example(int stage, at::ScalarType dtype = at::kFloat) {
    for (int i = 0; i < 3; ++i) table.parameters.push_back({fmt::format("p{}", i), {4}, 4, dtype, true, i > 0, {}});
    table.units = {{"", {0}}, {"block", {1, 2}}};
    options.stage = stage;
    options.compute_dtypes.assign(3, dtype);
    groups = plan_flat_groups(table, {.compute_dtypes = options.compute_dtypes, .max_group_numel = 1});
    REQUIRE(groups.size() == 3);
  }

  std::unique_ptr<GradientReduction> reduction() { return reduction(alone); }
  std::unique_ptr<GradientReduction> reduction(comm::Communicator& ranks) {
    return (options.stage >= 2 ? make_sharded_gradients : make_bucketed_all_reduce)(table, groups, sink, options,
                                                                                    streams, ranks);
  }
};

std::vector<at::Tensor> gradients(int count, float value) {
  return std::vector<at::Tensor>(static_cast<size_t>(count), at::full({4}, value));
}

// An accumulation step with two calls of the block inside one of the root.
void run_step(GradientReduction& reduction, bool is_last, bool others_may_follow = false) {
  reduction.begin_accumulation_step(is_last);
  for (int unit : {0, 1, 1}) reduction.expect(unit);
  reduction.take(1, gradients(2, 1), others_may_follow);
  reduction.take(1, gradients(2, 10), others_may_follow);
  reduction.take(0, gradients(1, 100), others_may_follow);
}

// A GEMM for the i-th parameter of the block, in place of its operator.
bool write(GradientReduction& reduction, size_t parameter, float value, bool is_empty = true) {
  const auto destination = reduction.destination(1, parameter, at::kFloat);
  if (!destination) return false;
  CHECK(destination->is_empty == is_empty);
  at::Tensor sum = destination->sum;
  is_empty ? sum.fill_(value) : sum.add_(value);
  return true;
}

using Events = std::vector<std::string>;

}  // namespace

TEST_CASE("stages 2 and 3 fill one bucket while a unit's largest group is reduced from the other",
          "[runtime][gradient_sink]") {
  // Who reads a slice after deliver(), as copies to the host do, keeps its bucket busy.
  class BucketsOfSlices final : public GradientSink {
   public:
    void prepare(int, const at::Tensor&) override {}
    void deliver(int group, const at::Tensor& slice, bool, bool) override {
      order.push_back(group);
      buckets.push_back(slice.const_data_ptr());
    }
    void finish() override {}
    void release() override {}
    std::vector<int> order;
    std::vector<const void*> buckets;
  };
  ParameterTable table;
  for (int i = 0; i < 6; ++i) {
    const int64_t numel = i % 2 == 0 ? 640 : 4;
    table.parameters.push_back({fmt::format("p{}", i), {numel}, numel, at::kFloat, true, i / 2, {}});
  }
  table.units = {{"", {0, 1}}, {"a", {2, 3}}, {"b", {4, 5}}};
  ShardingOptions options;
  options.stage = 2;
  options.compute_dtypes.assign(6, at::kFloat);
  const auto groups = plan_flat_groups(table, {.compute_dtypes = options.compute_dtypes, .max_group_numel = 1});
  test::ThreadCommunicator alone{std::make_shared<test::ThreadGroup>(1), 0};
  StepStreams streams{at::kCPU, false};
  BucketsOfSlices sink;
  const auto reduction = make_sharded_gradients(table, groups, sink, options, streams, alone);
  const bool is_written = GENERATE(true, false);
  reduction->begin_accumulation_step(/*is_last=*/true);
  for (int unit : {2, 1, 0}) {
    reduction->expect(unit);
    if (is_written) REQUIRE(reduction->destination(unit, 0, at::kFloat));
    reduction->take(unit, {is_written ? at::Tensor() : at::ones({640}), at::ones({4})}, /*others_may_follow=*/false);
  }
  CHECK(sink.order == std::vector{5, 4, 3, 2, 1, 0});
  for (size_t large : {3, 5}) CHECK(sink.buckets[large] != sink.buckets[large - 2]);
}

TEST_CASE("stages 0 and 1 deliver each group once, from the last unit to the root", "[runtime][gradient_sink]") {
  Example example(GENERATE(0, 1));
  const auto reduction = example.reduction();
  run_step(*reduction, false);
  run_step(*reduction, true);
  CHECK(example.sink.take().empty());
  reduction->finish();
  CHECK(example.sink.take() == Events{"1 88 first last", "2 88 first last", "0 800 first last"});
  reduction->release();
  run_step(*reduction, true);
  reduction->finish();
  CHECK(example.sink.take() == Events{"1 44 first last", "2 44 first last", "0 400 first last"});
}

TEST_CASE("gradients of a unit's only call in a step are delivered in their dtype, sums in that of sums",
          "[runtime][gradient_sink]") {
  const int stage = GENERATE(0, 1);
  const auto half = at::kBFloat16, sum = at::kFloat;
  const auto dtypes = [stage](double predivide, int num_micro_batches) {
    Example example(stage, at::kBFloat16);
    example.options.predivide = predivide;
    const auto reduction = example.reduction();
    for (int i = 0; i < num_micro_batches; ++i) run_step(*reduction, /*is_last=*/i == num_micro_batches - 1);
    reduction->finish();
    return example.sink.take_dtypes();  // of both groups of the block, which is called twice, and of the root
  };
  CHECK(dtypes(1.0, 1) == std::vector{sum, sum, half});
  CHECK(dtypes(1.0, 2) == std::vector{sum, sum, sum});
  CHECK(dtypes(3.0, 1) == std::vector{sum, sum, sum});  // a quotient would be rounded
}

TEST_CASE("sums that would round what ranks add up are not its room", "[runtime][gradient_sink]") {
  const auto num_rooms = [](at::ScalarType dtype, at::ScalarType accumulation_dtype) {
    const auto ranks = std::make_shared<test::ThreadGroup>(2);
    std::array<int, 2> rooms{};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        test::ThreadCommunicator data_group(ranks, rank);
        Example example(0, dtype);
        example.options.accumulation_dtype = accumulation_dtype;
        const auto reduction = example.reduction(data_group);
        run_step(*reduction, true);
        reduction->finish();
        CHECK(example.sink.take_dtypes() == std::vector(3, dtype));
        rooms[static_cast<size_t>(rank)] = example.sink.num_rooms();
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(rooms[0] == rooms[1]);
    return rooms[0];
  };
  CHECK(num_rooms(at::kFloat, at::kBFloat16) == 0);
  CHECK(num_rooms(at::kFloat, at::kFloat) == 3);
  CHECK(num_rooms(at::kBFloat16, at::kBFloat16) == 3);
}

TEST_CASE("at stage 1 the only micro batch of a step is delivered unit by unit, and no buffer stays",
          "[runtime][gradient_sink]") {
  Example example(1);
  const auto reduction = example.reduction();
  for (int step = 0; step < 2; ++step) {
    reduction->begin_accumulation_step(/*is_last=*/true);
    for (int unit : {0, 1, 1}) reduction->expect(unit);
    reduction->take(1, gradients(2, 1), false);
    CHECK(example.sink.take().empty());
    reduction->take(1, gradients(2, 10), false);
    CHECK(example.sink.take() == Events{"1 44 first last", "2 44 first last"});
    CHECK(example.sink.count_live() == 0);
    reduction->take(0, gradients(1, 100), false);
    CHECK(example.sink.take() == Events{"0 400 first last"});
    reduction->finish();
    CHECK(example.sink.take().empty());
    CHECK(example.sink.count_live() == 0);
    reduction->release();
  }
  run_step(*reduction, false);
  run_step(*reduction, true);
  reduction->finish();
  CHECK(example.sink.take() == Events{"1 88 first last", "2 88 first last", "0 800 first last"});
  CHECK(example.sink.count_live() == 3);
  reduction->release();
  CHECK(example.sink.count_live() == 0);
}

TEST_CASE("at stage 1 a unit that this rank has not called is reduced with the next one", "[runtime][gradient_sink]") {
  Example example(1);
  const auto reduction = example.reduction();
  reduction->begin_accumulation_step(/*is_last=*/true);
  reduction->expect(0);
  reduction->take(0, gradients(1, 100), false);
  CHECK(example.sink.take() == Events{"1 0 first last", "2 0 first last", "0 400 first last"});
  CHECK_THROWS_WITH(reduction->take(1, gradients(2, 1), false), Catch::Contains("arrive before it is reduced"));
}

// bf16 has 8 bits: 256 + 1 is 256, 256 + 2 is not.
TEST_CASE("at stage 1 calls are added up in the accumulation dtype, a single one in that of the wire",
          "[runtime][gradient_sink]") {
  const auto shared = std::make_shared<test::ThreadGroup>(2);
  std::vector<Events> events(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator both(shared, rank);
      Example example(1);
      example.options.compute_dtypes.assign(3, at::kBFloat16);
      example.groups = plan_flat_groups(
          example.table, {.compute_dtypes = example.options.compute_dtypes, .num_shards = 2, .max_group_numel = 1});
      const auto reduction =
          make_bucketed_all_reduce(example.table, example.groups, example.sink, example.options, example.streams, both);
      const auto of_call = [](double value) { return std::vector<at::Tensor>(2, at::full({4}, value, at::kBFloat16)); };
      for (int num_calls : {3, 1}) {
        reduction->begin_accumulation_step(/*is_last=*/true);
        for (int call = 0; call < num_calls; ++call) reduction->expect(1);
        for (int call = 0; call < num_calls; ++call) reduction->take(1, of_call(call == 0 ? 256 : 1), false);
        reduction->finish();
        reduction->release();
      }
      events[static_cast<size_t>(rank)] = example.sink.take();
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string sum = fmt::format("{}", 4 * 2 * 258), of_one = fmt::format("{}", 4 * 2 * 256);
  CHECK(events[0] == Events{"1 " + sum + " first last", "2 " + sum + " first last", "0 0 first last",
                            "1 " + of_one + " first last", "2 " + of_one + " first last", "0 0 first last"});
}

TEST_CASE("stages 2 and 3 deliver every call, and tell the first and the last of a step", "[runtime][gradient_sink]") {
  Example example(GENERATE(2, 3));
  const auto reduction = example.reduction();
  run_step(*reduction, false);
  CHECK(example.sink.take() == Events{"1 4 first", "2 4 first", "1 40", "2 40", "0 400 first"});
  run_step(*reduction, true);
  CHECK(example.sink.take() == Events{"1 4", "2 4", "1 40 last", "2 40 last", "0 400 last"});
  reduction->finish();
  reduction->release();
  run_step(*reduction, true);
  CHECK(example.sink.take() == Events{"1 4 first", "2 4 first", "1 40 last", "2 40 last", "0 400 first last"});
}

TEST_CASE("stages 0 and 1 take what GEMMs wrote into an empty buffer, and add what comes with their call",
          "[runtime][gradient_sink]") {
  Example example(GENERATE(0, 1));
  const auto reduction = example.reduction();
  for (int step = 0; step < 2; ++step) {
    reduction->begin_accumulation_step(true);
    for (int unit : {0, 1, 1}) reduction->expect(unit);
    CHECK_FALSE(reduction->destination(1, 0, at::kBFloat16));
    CHECK(write(*reduction, 0, 1));
    CHECK(write(*reduction, 0, 2, /*is_empty=*/false));
    CHECK(write(*reduction, 1, 10));
    reduction->take(1, {at::full({4}, 20.0F), at::Tensor()}, false);
    CHECK_FALSE(reduction->destination(1, 0, at::kFloat));  // on the CPU
    reduction->take(1, gradients(2, 100), false);
    reduction->finish();
    CHECK(example.sink.take() == Events{"1 492 first last", "2 440 first last", "0 0 first last"});
    reduction->release();
  }
}

TEST_CASE("stages 2 and 3 take what GEMMs wrote into a bucket, whatever is reduced meanwhile",
          "[runtime][gradient_sink]") {
  Example example(GENERATE(2, 3));
  const auto reduction = example.reduction();
  for (int step = 0; step < 2; ++step) {
    reduction->begin_accumulation_step(true);
    for (int unit : {0, 0, 1}) reduction->expect(unit);
    CHECK_FALSE(reduction->destination(1, 0, at::kBFloat16));
    CHECK(write(*reduction, 0, 1));
    CHECK_FALSE(reduction->destination(1, 1, at::kFloat));  // in another group
    reduction->take(0, gradients(1, 100), false);
    CHECK(write(*reduction, 0, 2, /*is_empty=*/false));
    reduction->take(0, gradients(1, 200), false);
    reduction->take(1, {at::full({4}, 20.0F), at::full({4}, 10.0F)}, false);
    CHECK(example.sink.take() == Events{"0 400 first", "0 800 last", "1 92 first last", "2 40 first last"});
    CHECK_FALSE(reduction->destination(1, 0, at::kFloat));  // a later call, on the CPU
    reduction->release();
  }
}

TEST_CASE("on the CPU GEMMs are written only where sums over calls have their type", "[runtime][gradient_sink]") {
  Example example(GENERATE(0, 2));
  example.options.accumulation_dtype = at::kBFloat16;
  const auto reduction = example.reduction();
  reduction->begin_accumulation_step(true);
  CHECK_FALSE(reduction->destination(1, 0, at::kFloat));
}

TEST_CASE("what a GEMM wrote goes along when another rank's call comes between, and is dropped with a pass",
          "[runtime][gradient_sink]") {
  Example example(2);
  const auto reduction = example.reduction();
  reduction->begin_accumulation_step(true);
  reduction->expect(1);
  CHECK(write(*reduction, 0, 1));
  reduction->participate(1, true);
  reduction->take(1, gradients(2, 10), false);
  CHECK(example.sink.take() == Events{"1 4 first", "2 0 first", "1 40 last", "2 40 last"});
  reduction->release();
  CHECK(write(*reduction, 0, 3));
  reduction->begin_accumulation_step(true);
  reduction->expect(1);
  reduction->take(1, gradients(2, 10), false);
  CHECK(example.sink.take() == Events{"1 40 first last", "2 40 first last"});
}

TEST_CASE("a slice is not the last while other ranks may follow", "[runtime][gradient_sink]") {
  Example example(2);
  const auto reduction = example.reduction();
  run_step(*reduction, true, /*others_may_follow=*/true);
  CHECK(example.sink.take() == Events{"1 4 first", "2 4 first", "1 40", "2 40", "0 400 first"});
  reduction->participate(1, /*others_may_follow=*/false);
  CHECK(example.sink.take() == Events{"1 0 last", "2 0 last"});
}

TEST_CASE("the device's sums are the gradients of the spans, zero without a slice", "[runtime][gradient_sink]") {
  std::vector<SpanState> state{{{0, 0, {4, 6}}, {}}, {{0, 1, {6, 8}}, {}}, {{1, 0, {0, 2}}, {}}};
  const auto sink = make_device_gradients({{{4, 8}, {0, 2}}, {at::kFloat, at::kFloat}, at::kFloat, at::kCPU}, state);
  const at::Tensor slice = at::arange(4, at::kFloat);
  for (int step = 0; step < 2; ++step) {  // the second step must not see the first one's sums
    sink->prepare(0, {});
    sink->deliver(0, slice, true, false);
    sink->prepare(0, {});
    sink->deliver(0, slice, false, true);
    CHECK_FALSE(state[0].arrays.gradient.defined());
    sink->finish();
    CHECK(at::equal(state[0].arrays.gradient, at::tensor({0.0F, 2.0F})));
    CHECK(at::equal(state[1].arrays.gradient, at::tensor({4.0F, 6.0F})));
    CHECK(at::equal(state[2].arrays.gradient, at::zeros({2})));
    sink->release();
    CHECK_FALSE(state[0].arrays.gradient.defined());
  }
}

TEST_CASE("a step's only slice stays in its dtype on the device, and sums are in theirs", "[runtime][gradient_sink]") {
  std::vector<SpanState> state{{{0, 0, {0, 4}}, {}}, {{1, 0, {0, 4}}, {}}};
  const auto sink =
      make_device_gradients({{{0, 4}, {0, 4}}, {at::kBFloat16, at::kBFloat16}, at::kFloat, at::kCPU}, state);
  const at::Tensor first = at::arange(4).mul(0.37).to(at::kBFloat16);
  const at::Tensor second = at::arange(4).mul(0.37).add(100.5).to(at::kBFloat16);
  for (int step = 0; step < 2; ++step) {
    for (const int group : {0, 1}) {
      sink->prepare(group, {});
      sink->deliver(group, first, /*is_first=*/true, /*is_last=*/group == 0);
    }
    for (int call = 0; call < 2; ++call) {
      sink->prepare(1, {});
      sink->deliver(1, second, /*is_first=*/false, /*is_last=*/call == 1);
    }
    sink->finish();
    CHECK(state[0].arrays.gradient.scalar_type() == at::kBFloat16);
    CHECK(at::equal(state[0].arrays.gradient, first));
    CHECK(at::equal(state[1].arrays.gradient, first.to(at::kFloat) + second + second));
    sink->release();
  }
}

TEST_CASE("a slice that was added up in the room is not copied", "[runtime][gradient_sink]") {
  std::vector<SpanState> state{{{0, 0, {0, 4}}, {}}};
  const auto sink = make_device_gradients({{{0, 4}}, {at::kFloat}, at::kFloat, at::kCPU}, state);
  const at::Tensor room = at::ones({4});
  sink->prepare(0, room);
  sink->deliver(0, room, true, true);
  sink->finish();
  CHECK(state[0].arrays.gradient.data_ptr() == room.data_ptr());
  sink->release();
  sink->prepare(0, room);
  sink->deliver(0, at::full({4}, 3, at::kHalf), true, true);  // as it was sent
  sink->finish();
  CHECK(at::equal(room, at::full({4}, 3.0F)));
}
