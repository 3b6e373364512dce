#include "runtime/sharding/flat_parameters.hpp"

#include <ATen/ATen.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <mutex>
#include <thread>

#include "base/format.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;

namespace {

// Root with two parameters (one of no elements), a unit with three, one of them never used.
ParameterTable make_table() {
  ParameterTable table;
  const std::vector<std::vector<int64_t>> shapes{{3, 5}, {0}, {7, 11}, {13}, {}};
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t numel = 1;
    for (int64_t size : shapes[i]) numel *= size;
    table.parameters.push_back({fmt::format("p{}", i), shapes[i], numel, at::kFloat, true, i < 2 ? 0 : 1, {}});
  }
  table.units = {{"", {0, 1}}, {"block", {2, 3, 4}}};
  return table;
}

double initial(int parameter, int64_t index) {
  return parameter * 1000.0 + static_cast<double>(index);
}

void read_initial(int parameter, int64_t begin, at::Tensor out) {
  for (int64_t i = 0; i < out.numel(); ++i) out[i].fill_(initial(parameter, begin + i));
}

// The gradient that a rank brings in a micro step: distinct small integers, so that sums are exact.
at::Tensor gradient_of(const ParameterTable& table, int parameter, int rank, int micro) {
  const auto& info = table.parameters[parameter];
  return (at::arange(info.numel, at::kFloat) + static_cast<double>(parameter + 10 * rank + 100 * micro))
      .view(info.shape);
}

struct Outcome {
  std::mutex mutex;
  std::vector<std::vector<double>> sums;  // by parameter, NaN where nobody owns an element
};

void run_up_to_gradients(FlatParameters& parameters, bool is_last) {
  parameters.begin_accumulation_step(is_last);
  parameters.acquire(0, UnitCall::kTraining);
  parameters.acquire(1, UnitCall::kTraining);
  parameters.release(1);
  parameters.release(0);
  parameters.prepare_backward(0);
  parameters.prepare_backward(1);
}

// A micro step that a device began to record, and could not: in the middle of its backward.
void break_off_a_step(const ParameterTable& table, FlatParameters& parameters, StepStreams& streams, int rank) {
  streams.join();
  parameters.begin_capture();
  run_up_to_gradients(parameters, true);
  parameters.take_gradients(1, {gradient_of(table, 2, rank, 7), at::Tensor(), gradient_of(table, 4, rank, 7)});
  streams.discard();
  parameters.abandon_pass();
}

// Writes the first gradient of the block where it is summed, if that is possible. Returns what is left of it.
at::Tensor written(FlatParameters& parameters, const at::Tensor& gradient) {
  CHECK_FALSE(parameters.gradient_destination(0, 0, at::kFloat));
  const auto destination = parameters.gradient_destination(1, 0, at::kFloat);
  if (!destination) return gradient;
  CHECK(destination->sum.sizes() == gradient.sizes());
  at::Tensor sum = destination->sum;
  destination->is_empty ? sum.copy_(gradient) : sum.add_(gradient);
  return {};
}

// Two steps of `num_micro` micro steps on every rank; collects the reduced gradients that the shards own and checks the
// parameters after an update of the masters and a gather.
void run_rank(const ParameterTable& table, ShardingOptions options, comm::Communicator& group, Outcome& outcome,
              int num_micro, bool writes) {
  StepStreams streams(at::kCPU, false);
  FlatParameters parameters(table, options, streams, group, group);
  parameters.load(read_initial);
  for (int step = 0; step < 2; ++step) {  // the second step must not see gradients from before it
    parameters.release_gradients();
    if (step == 1) break_off_a_step(table, parameters, streams, group.rank());
    for (const auto& [span, arrays] : parameters.state()) {  // their memory is given back
      std::lock_guard lock(outcome.mutex);
      CHECK_FALSE(arrays.gradient.defined());
    }
    for (int micro = 0; micro < num_micro; ++micro) {
      run_up_to_gradients(parameters, micro + 1 == num_micro);
      at::Tensor gradient = gradient_of(table, 2, group.rank(), micro);
      if (writes) gradient = written(parameters, gradient);
      parameters.take_gradients(1, {gradient, at::Tensor(), gradient_of(table, 4, group.rank(), micro)});
      parameters.take_gradients(
          0, {gradient_of(table, 0, group.rank(), micro), gradient_of(table, 1, group.rank(), micro)});
      parameters.end_accumulation_step();
    }
    parameters.reduce_gradients();
  }
  for (auto& [span, arrays] : parameters.state()) {
    for (const auto& piece : pieces_in(parameters.groups()[span.flat_group], span.range)) {
      std::lock_guard lock(outcome.mutex);
      for (int64_t i = 0; i < piece.count; ++i) {
        outcome.sums[piece.parameter][piece.begin + i] = arrays.gradient[piece.offset + i].item<double>();
      }
    }
    arrays.master.add_(0.5);
  }
  parameters.gather_parameters();
  parameters.acquire(0, UnitCall::kInference);
  const auto views = parameters.acquire(1, UnitCall::kInference).parameters;
  std::unique_lock lock(outcome.mutex);
  CHECK(views[0].sizes() == at::IntArrayRef({7, 11}));
  CHECK(views[0].reshape({-1})[5].item<double>() == initial(2, 5) + 0.5);
  CHECK(views[2].item<double>() == initial(4, 0) + 0.5);
  CHECK(views[1][12].item<double>() == initial(3, 12) + 0.5);
  lock.unlock();  // what follows the ranks do together
  parameters.release(1);
  parameters.release(0);
}

}  // namespace

TEST_CASE("reduced gradients are the sum over ranks and micro steps, unused parameters zero, at every stage",
          "[runtime][sharding]") {
  const int ranks = GENERATE(1, 2, 3, 4);
  const int stage = GENERATE(0, 1, 2, 3);
  const int num_micro = GENERATE(1, 2);
  const bool fused = GENERATE(true, false), writes = GENERATE(true, false);
  const auto table = make_table();
  ShardingOptions options;
  options.stage = stage;
  options.compute_dtypes.assign(table.parameters.size(), at::kFloat);
  options.max_group_numel = 60;
  options.persistence_threshold = GENERATE(0, 20);
  options.use_reduce_scatter = options.use_all_gather = fused;
  options.optimizer_groups = GENERATE(std::vector<int>{}, std::vector<int>{0, 1, 0, 1, 0});
  Outcome outcome;
  for (const auto& parameter : table.parameters) outcome.sums.emplace_back(parameter.numel, std::nan(""));

  auto shared = std::make_shared<test::ThreadGroup>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator group(shared, rank);
      run_rank(table, options, group, outcome, num_micro, writes);
    });
  }
  for (auto& thread : threads) thread.join();

  for (int parameter = 0; parameter < 5; ++parameter) {
    auto expected = at::zeros(table.parameters[parameter].shape);
    for (int rank = 0; rank < ranks && parameter != 3; ++rank) {
      for (int micro = 0; micro < num_micro; ++micro) expected += gradient_of(table, parameter, rank, micro);
    }
    expected = expected.reshape({-1});
    for (int64_t i = 0; i < expected.numel(); ++i) CHECK(outcome.sums[parameter][i] == expected[i].item<double>());
  }
}

TEST_CASE("a model of one unit writes the gradients of its root where they are summed", "[runtime][sharding]") {
  ParameterTable table;
  table.parameters.push_back({"w", {2, 3}, 6, at::kFloat, true, 0, {}});
  table.units = {{"", {0}}};
  ShardingOptions options;
  options.stage = GENERATE(0, 1, 2, 3);
  options.compute_dtypes = {at::kFloat};
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  StepStreams streams(at::kCPU, false);
  FlatParameters parameters(table, options, streams, alone, alone);
  parameters.load(read_initial);
  parameters.begin_accumulation_step(true);
  parameters.acquire(0, UnitCall::kTraining);
  parameters.release(0);
  parameters.prepare_backward(0);
  const auto destination = parameters.gradient_destination(0, 0, at::kFloat);
  REQUIRE(destination);
  CHECK(destination->is_empty);
  destination->sum.fill_(5);
  parameters.take_gradients(0, {at::Tensor()});
  parameters.end_accumulation_step();
  parameters.reduce_gradients();
  CHECK(at::equal(parameters.state()[0].arrays.gradient.narrow(0, 0, 6), at::full({6}, 5.0F)));
}

TEST_CASE("under bf16 the master keeps fp32 values and the parameters are their rounding", "[runtime][sharding]") {
  const auto table = make_table();
  ShardingOptions options;
  options.compute_dtypes.assign(table.parameters.size(), at::kBFloat16);
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  StepStreams streams(at::kCPU, false);
  FlatParameters parameters(table, options, streams, alone, alone);
  parameters.load([](int, int64_t begin, at::Tensor out) {
    for (int64_t i = 0; i < out.numel(); ++i) out[i].fill_(1.0 + 0.001 * static_cast<double>(begin + i));
  });
  for (const auto& [span, arrays] : parameters.state()) {
    CHECK(arrays.master.scalar_type() == at::kFloat);
    REQUIRE_FALSE(arrays.master_is_parameter());
    CHECK(at::equal(arrays.low_precision, arrays.master.to(at::kBFloat16)));
  }
  CHECK(parameters.acquire(0, UnitCall::kInference).parameters[0].scalar_type() == at::kBFloat16);
}

TEST_CASE("an evaluation keeps parameters alone, without a master beside one in bf16", "[runtime][sharding]") {
  const auto table = make_table();
  ShardingOptions options;
  options.for_evaluation = true;
  options.compute_dtypes = {at::kBFloat16, at::kFloat, at::kBFloat16, at::kFloat, at::kBFloat16};
  test::ThreadCommunicator alone(std::make_shared<test::ThreadGroup>(1), 0);
  StepStreams streams(at::kCPU, false);
  FlatParameters parameters(table, options, streams, alone, alone);
  parameters.load(read_initial);
  for (const auto& [span, arrays] : parameters.state()) {
    const bool is_fp32 = arrays.parameter().scalar_type() == at::kFloat;
    CHECK(arrays.master.defined() == is_fp32);
    CHECK(arrays.low_precision.defined() != is_fp32);
  }
  const auto values = parameters.acquire(1, UnitCall::kInference).parameters;
  CHECK(at::equal(values[0].reshape({-1}), (at::arange(77, at::kFloat) + 2000).to(at::kBFloat16)));
  CHECK(at::equal(values[1], at::arange(13, at::kFloat) + 3000));
}

namespace {

// Knows how many collectives it has seen.
class CountingCommunicator : public test::ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override {
    num_collectives += 1;
    ThreadCommunicator::all_gather(in, out);
  }
  int num_collectives = 0;
};

}  // namespace

TEST_CASE("ranks that load meet after their reading and before the first collective", "[runtime][sharding]") {
  const ParameterTable table = make_table();
  for (const int stage : {1, 3}) {
    auto group = std::make_shared<test::ThreadGroup>(2);
    std::vector<std::vector<int>> seen(2);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        CountingCommunicator communicator(group, rank);
        ShardingOptions options;
        options.stage = stage;
        options.compute_dtypes.assign(table.parameters.size(), at::kFloat);
        StepStreams streams(at::kCPU, false);
        FlatParameters parameters(table, options, streams, communicator, communicator);
        int num_reads = 0, reads_then = -1, collectives_then = -1;
        parameters.load(
            [&](int parameter, int64_t begin, at::Tensor out) {
              num_reads += 1;
              read_initial(parameter, begin, std::move(out));
            },
            [&] {
              reads_then = num_reads;
              collectives_then = communicator.num_collectives;
            });
        seen[static_cast<size_t>(rank)] = {num_reads - reads_then, collectives_then};
      });
    }
    for (auto& rank : ranks) rank.join();
    CHECK(seen == std::vector<std::vector<int>>{{0, 0}, {0, 0}});
  }
}

TEST_CASE("a rank reads only the elements of its shards, and all parameters are there afterwards",
          "[runtime][sharding]") {
  const int stage = GENERATE(1, 3);
  const auto table = make_table();
  ShardingOptions options;
  options.stage = stage;
  options.persistence_threshold = 0;
  options.compute_dtypes.assign(table.parameters.size(), at::kBFloat16);
  auto shared = std::make_shared<test::ThreadGroup>(4);
  std::mutex mutex;
  std::vector<std::vector<int>> times_read(5);
  for (int i = 0; i < 5; ++i) times_read[i].assign(table.parameters[i].numel, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator group(shared, rank);
      StepStreams streams(at::kCPU, false);
      FlatParameters parameters(table, options, streams, group, group);
      parameters.load([&](int parameter, int64_t begin, at::Tensor out) {
        read_initial(parameter, begin, out);
        std::lock_guard lock(mutex);
        for (int64_t i = 0; i < out.numel(); ++i) times_read[parameter][begin + i] += 1;
      });
      parameters.acquire(0, UnitCall::kInference);
      const auto views = parameters.acquire(1, UnitCall::kInference).parameters;
      std::unique_lock lock(mutex);
      CHECK(views[1][12].item<float>() == at::tensor(initial(3, 12)).to(at::kBFloat16).item<float>());
      lock.unlock();
      parameters.release(1);
      parameters.release(0);
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& elements : times_read) {
    for (int times : elements) CHECK(times == 1);
  }
}

namespace {

// Under the block: a trained matrix, a frozen one and a small frozen one; a second block that is frozen as a whole.
ParameterTable partly_frozen_table() {
  ParameterTable table;
  const std::vector<std::vector<int64_t>> shapes{{3, 5}, {40, 50}, {4}, {30, 30}};
  const std::vector<int> units{1, 1, 1, 2};
  for (size_t i = 0; i < shapes.size(); ++i) {
    int64_t numel = 1;
    for (int64_t size : shapes[i]) numel *= size;
    table.parameters.push_back({fmt::format("p{}", i), shapes[i], numel, at::kFloat, i == 0, units[i], {}});
  }
  table.units = {{"", {}}, {"block", {0}, {1, 2}}, {"frozen", {}, {3}}};
  return table;
}

void on_ranks(int count, const std::function<void(comm::Communicator&)>& body) {
  auto shared = std::make_shared<test::ThreadGroup>(count);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator group(shared, rank);
      body(group);
    });
  }
  for (auto& thread : threads) thread.join();
}

at::Tensor initial_values(const ParameterTable& table, int parameter) {
  at::Tensor out = at::empty({table.parameters[parameter].numel});
  read_initial(parameter, 0, out);
  return out.view(table.parameters[parameter].shape);
}

}  // namespace

TEST_CASE("at stage 3 frozen parameters are sharded: a rank holds and reads its part, a unit gets them whole",
          "[runtime][sharding][frozen]") {
  const int count = GENERATE(2, 3);
  const auto table = partly_frozen_table();
  ShardingOptions options;
  options.stage = 3;
  options.persistence_threshold = 20;
  options.compute_dtypes.assign(table.parameters.size(), at::kFloat);
  std::mutex mutex;
  std::vector<int64_t> num_read(table.parameters.size()), num_held(static_cast<size_t>(count));
  on_ranks(count, [&](comm::Communicator& group) {
    StepStreams streams(at::kCPU, false);
    FlatParameters parameters(table, options, streams, group, group);
    parameters.load([&](int parameter, int64_t begin, at::Tensor out) {
      read_initial(parameter, begin, out);
      std::lock_guard lock(mutex);
      num_read[parameter] += out.numel();
    });
    std::unique_lock lock(mutex);
    for (const auto& shard : parameters.frozen_shards()) num_held[group.rank()] += shard.at_rest.numel();
    CHECK(parameters.state().size() == 1);  // the optimizer sees the trained one only
    CHECK((parameters.shards_frozen(1) && parameters.shards_frozen(3)));
    CHECK_FALSE((parameters.shards_frozen(0) || parameters.shards_frozen(2)));  // small ones rest in the model
    lock.unlock();
    parameters.begin_accumulation_step(true);
    parameters.acquire(0, UnitCall::kTraining);
    for (int unit : {1, 2}) {
      const auto values = parameters.acquire(unit, UnitCall::kTraining);
      lock.lock();
      CHECK(values.parameters.size() == (unit == 1 ? 1U : 0U));
      CHECK(at::equal(values.frozen[0], initial_values(table, unit == 1 ? 1 : 3)));
      if (unit == 1) CHECK_FALSE(values.frozen[1].defined());
      lock.unlock();
      parameters.release(unit);
    }
    parameters.release(0);
    parameters.prepare_backward(0);
    parameters.prepare_backward(2);
    parameters.take_gradients(2, {});
    parameters.prepare_backward(1);
    parameters.take_gradients(1, {at::ones({3, 5})});
    parameters.end_accumulation_step();
    parameters.reduce_gradients();
    lock.lock();
    CHECK(parameters.state()[0].arrays.gradient.max().item<float>() <= static_cast<float>(count));
  });
  CHECK(num_read == std::vector<int64_t>{15, 2000, 0, 900});
  for (int64_t held : num_held) CHECK(held < (2000 + 900 + 2 * 64 * count) / count + 1);
}

TEST_CASE("frozen parameters that rest as 8-bit integers come back within half a step of their block",
          "[runtime][sharding][frozen]") {
  const auto table = partly_frozen_table();
  ShardingOptions options;
  options.stage = 3;
  options.persistence_threshold = 0;
  options.quantized_frozen = true;
  options.compute_dtypes.assign(table.parameters.size(), at::kBFloat16);
  std::mutex mutex;
  on_ranks(2, [&](comm::Communicator& group) {
    StepStreams streams(at::kCPU, false);
    FlatParameters parameters(table, options, streams, group, group);
    parameters.load([&](int parameter, int64_t begin, at::Tensor out) {
      out.copy_((at::arange(begin, begin + out.numel(), at::kFloat) * 0.37 + parameter).sin());
    });
    parameters.acquire(0, UnitCall::kInference);
    const auto values = parameters.acquire(2, UnitCall::kInference);
    std::unique_lock lock(mutex);
    const at::Tensor exact = (at::arange(0, 900, at::kFloat) * 0.37 + 3).sin().view({30, 30}).to(at::kBFloat16);
    const double error = (values.frozen[0].to(at::kFloat) - exact.to(at::kFloat)).abs().max().item<double>();
    CHECK(error <= 0.5 / 127 + 1.0 / 256);  // half a step of the largest magnitude, and bf16's rounding
    CHECK(error > 0);
    // One byte an element and four for a block of 256.
    for (const auto& shard : parameters.frozen_shards()) {
      CHECK(shard.at_rest.nbytes() <= static_cast<size_t>(shard.range.size() + 4 * (shard.range.size() / 256 + 1)));
    }
    lock.unlock();
    parameters.release(2);
    parameters.release(0);
  });
}

namespace {

// A root and two units of one parameter with 100 elements each, under stage 3 in one slot; on two ranks.
void run_in_one_slot(const std::function<void(FlatParameters&)>& body) {
  ParameterTable table;
  table.units = {{"", {}}, {"one", {0}}, {"two", {1}}};
  for (int i = 0; i < 2; ++i)
    table.parameters.push_back({fmt::format("p{}", i), {100}, 100, at::kFloat, true, i + 1, {}});
  ShardingOptions options;
  options.stage = 3;
  options.compute_dtypes.assign(2, at::kFloat);
  options.persistence_threshold = options.prefetch_numel = 0;
  options.max_live_numel = 1;
  const auto shared = std::make_shared<test::ThreadGroup>(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      test::ThreadCommunicator group(shared, rank);
      StepStreams streams(at::kCPU, false);
      FlatParameters parameters(table, options, streams, group, group);
      parameters.load(read_initial);
      parameters.begin_accumulation_step(true);
      parameters.acquire(0, UnitCall::kTraining);
      body(parameters);
    });
  }
  for (auto& thread : threads) thread.join();
}

bool holds(const at::Tensor& values, int parameter) {
  return values[0].item<double>() == initial(parameter, 0) && values[99].item<double>() == initial(parameter, 99);
}

}  // namespace

TEST_CASE("a unit's values follow it to the memory where it is gathered", "[runtime][sharding]") {
  std::atomic<int> num_whole = 0;
  run_in_one_slot([&](FlatParameters& parameters) {
    const auto one = parameters.acquire(1, UnitCall::kTraining).parameters[0];
    num_whole += holds(one, 0);
    const auto beside = parameters.acquire(2, UnitCall::kTraining).parameters[0];  // the slot is in use
    num_whole += holds(beside, 1);
    parameters.release(2);
    parameters.release(1);
    num_whole += holds(one, 0);
    parameters.abandon_pass();
    for (const auto& old : {one, beside}) old.variable_data().fill_(NAN);
    parameters.begin_accumulation_step(true);
    num_whole += holds(parameters.acquire(2, UnitCall::kTraining).parameters[0], 1);  // in the slot now
    num_whole += holds(one, 1);
  });
  CHECK(num_whole == 2 * 5);
}

TEST_CASE("what autograd saved of a unit is valid again in its backward, wherever the unit was",
          "[runtime][sharding]") {
  std::atomic<int> num_whole = 0;
  run_in_one_slot([&](FlatParameters& parameters) {
    parameters.acquire(1, UnitCall::kTraining);
    const auto saved = parameters.acquire(2, UnitCall::kTraining).parameters[0];  // not in the slot
    parameters.release(2);
    parameters.release(1);
    parameters.acquire(1, UnitCall::kTraining);
    parameters.release(1);
    saved.variable_data().fill_(NAN);
    parameters.prepare_backward(2);
    num_whole += holds(saved, 1);
  });
  CHECK(num_whole == 2);
}
