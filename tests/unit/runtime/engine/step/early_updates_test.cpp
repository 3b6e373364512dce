// Updates of offloaded state in the backward of their own step: the numbers of updates after it, bit by bit, nothing
// that is written before it has been read for the last time, and what is left of a step that goes wrong.
#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string_view>

#include "runtime/engine/run/checkpointing.hpp"
#include "runtime/state/offload_scopes.hpp"
#include "support/expect_error.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/memory_store.hpp"
#include "support/mesh_threads.hpp"
#include "support/mixed_net.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::step;
using test::json;

namespace {

constexpr int kSteps = 4;

// The chunks that updates on the host have been through, of all ranks.
class HostUpdateCount {
 public:
  HostUpdateCount() {
    current_ = this;
    callback_ = at::addGlobalCallback(at::RecordFunctionCallback(nullptr, count).scopes({at::RecordScope::USER_SCOPE}));
  }
  ~HostUpdateCount() {
    at::removeCallback(callback_);
    current_ = nullptr;
  }
  HostUpdateCount(const HostUpdateCount&) = delete;
  HostUpdateCount& operator=(const HostUpdateCount&) = delete;

  int read() {
    const std::lock_guard lock(mutex_);
    return count_;
  }
  // False: they have not come to that.
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= count; });
  }

 private:
  static void count(const at::RecordFunction& call, at::ObserverContext*) {
    HostUpdateCount* self = current_;
    if (self == nullptr || std::string_view(call.name()) != kHostUpdateScope) return;
    {
      const std::lock_guard lock(self->mutex_);
      self->count_ += 1;
    }
    self->changed_.notify_all();
  }

  static inline std::atomic<HostUpdateCount*> current_ = nullptr;
  at::CallbackHandle callback_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// Holds a step up after its backward until what can be early has been.
class AfterBackward final : public EngineObserver {
 public:
  AfterBackward(bool allows_early, std::function<void()> visit)
      : allows_early_(allows_early), visit_(std::move(visit)) {}
  void before_update(std::span<const SpanState>, const ApplyUpdate&) override {
    if (visit_) visit_();
  }
  bool allows_early_updates() const override { return allows_early_; }

 private:
  const bool allows_early_;
  const std::function<void()> visit_;
};

json offloaded(int stage, const json& more = json::object()) {
  const json optimizer{{"device", "cpu"}};
  return {{"zero_optimization",
           test::with({{"stage", stage}, {"stage3_param_persistence_threshold", 0}, {"offload_optimizer", optimizer}},
                      more)}};
}

struct Trained {
  std::vector<double> losses, norms;
  test::States state;
  std::map<std::string, at::Tensor> parameters;  // as forward reads them
  std::vector<int> before, after;                // by step: host updates, of all ranks, before and after its update
};

struct Expected {
  int first = 0, later = 0;  // early ones in the first step, and in a later one
};

// With `early`, waits for so many of them in each step.
Trained train(const std::string& model, const json& config, int ranks, const std::optional<Expected>& early) {
  Trained out;
  HostUpdateCount count;
  std::vector<std::vector<OwnedState>> owned(static_cast<size_t>(ranks));
  test::run_mesh({.data = ranks}, [&](const comm::Groups& groups) {
    const bool is_first = groups.world.rank() == 0;
    int step = 0;
    AfterBackward observer(early.has_value(), [&] {
      const int known = step == 0 ? 0 : out.after.back();
      const bool is_there = !early || count.wait_for(known + (step == 0 ? early->first : early->later));
      groups.world.barrier();  // of the others, too, no update after backward has begun
      if (is_first) out.before.push_back(is_there ? count.read() - known : -1);
      groups.world.barrier();
    });
    test::JobRank rank(model, config, groups);
    rank.engine->observe(observer);
    CHECK(rank.engine->updates_early() == early.has_value());
    for (; step < kSteps; ++step) {
      const auto result = rank.step();
      rank.engine->owned_state();  // waits
      groups.world.barrier();
      if (is_first) {
        out.losses.push_back(result.loss);
        out.norms.push_back(result.grad_norm);
        out.after.push_back(count.read());
      }
      groups.world.barrier();
    }
    owned[static_cast<size_t>(groups.world.rank())] = rank.owned_state();
    auto parameters = rank.read_parameters();
    if (is_first) out.parameters = std::move(parameters);
  });
  out.state = test::join(owned);
  return out;
}

void check_same(const Trained& got, const Trained& want) {
  CHECK(got.losses == want.losses);
  CHECK(got.norms == want.norms);
  CHECK(test::first_difference(got.state, want.state) == "");
  for (const auto& [name, values] : want.parameters) {
    INFO(name);
    CHECK(at::equal(got.parameters.at(name), values));
  }
}

// Two blocks that use their weight twice, of which the first is called twice, and a root that uses one twice. With
// `is_steep`, the first block's gradient is not finite, but the loss is: the square root of 0 has an infinite one.
torch::jit::Module make_shared_net(bool is_steep = false) {
  const auto block = [](uint64_t seed, bool steep) {
    return test::compile({"Block",
                          R"(
    def forward(self, x):
        h = torch.matmul(torch.tanh(torch.matmul(x, self.weight)), self.weight)
        return torch.sqrt(torch.abs(h) * self.slope) + x
  )",
                          {{"weight", test::random_weight({5, 5}, seed)}},
                          {{"slope", at::full({1}, steep ? 0.0F : 1.0F)}}});
  };
  const auto blocks = test::compile({.type = "Blocks",
                                     .source = "def forward(self, x):\n    return x\n",
                                     .children = {{"0", block(10, is_steep)}, {"1", block(20, false)}}});
  return test::compile({"SharedNet",
                        R"(
    def forward(self, x):
        x = torch.matmul(x, self.tied)
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        return torch.matmul(torch.matmul(x, self.tied.t()), self.head)
  )",
                        {{"tied", test::random_weight({5, 5}, 1)}, {"head", test::random_weight({5, 3}, 3)}},
                        {},
                        {{"blocks", blocks}}});
}

}  // namespace

TEST_CASE("early updates change no bit of a run", "[runtime][engine][offload]") {
  const test::JobFiles job(GENERATE(false, true) ? make_shared_net() : test::make_mixed_net());
  const int stage = GENERATE(1, 2, 3), ranks = GENERATE(1, 2);
  const auto [accumulation, bf16] = GENERATE(table<int, bool>({{1, false}, {1, true}, {2, true}}));
  const bool parameters_too = stage == 3 && accumulation == 1;
  INFO("stage " << stage << ", " << ranks << " ranks, " << accumulation << " micro batches, bf16 " << bf16);
  const json places = parameters_too ? json{{"offload_param", {{"device", "cpu"}}}} : json::object();
  const auto config = job.config(offloaded(stage, places),
                                 {{"gradient_accumulation_steps", accumulation}, {"bf16", {{"enabled", bf16}}}});
  const Trained late = train(job.model, config, ranks, std::nullopt);
  const int all = late.after.front();
  REQUIRE(all > 1);
  CHECK(late.before == std::vector<int>(kSteps, 0));
  // At stage 1 several micro batches are reduced after backward, unless that overlaps; in the first micro batch of
  // several ranks it is not known which slice of a group is the last.
  const bool is_reduced_late = stage == 1 && accumulation > 1;
  const bool agree_first = stage >= 2 && ranks > 1 && accumulation == 1;
  const Expected expected{is_reduced_late || agree_first ? 0 : all, is_reduced_late ? 0 : all};
  const Trained early = train(job.model, config, ranks, expected);
  CHECK(early.before.front() == expected.first);
  CHECK(early.before.back() == expected.later);
  check_same(early, late);
}

TEST_CASE("early updates change no bit of recomputed units, small buckets, parts and other optimizers",
          "[runtime][engine][offload]") {
  const test::JobFiles job(make_shared_net());
  const json nothing{{"betas", nullptr}, {"eps", nullptr}};
  const auto [zero, more] = GENERATE_COPY(table<json, json>({
      {json{{"stage", 2}}, json{{"activation_checkpointing", {{"enabled", true}}}}},
      {json{{"stage", 3}}, json{{"activation_checkpointing", {{"enabled", true}, {"number_checkpoints", 1}}}}},
      {json{{"stage", 2}, {"reduce_bucket_size", 20}, {"allgather_bucket_size", 20}}, json::object()},
      {json{{"stage", 2}}, json{{"optimizer", {{"no_decay", {"*head"}}}}}},
      {json{{"stage", 3}, {"stage3_prefetch_bucket_size", 0}, {"stage3_max_live_parameters", 1}}, json::object()},
      {json{{"stage", 3}, {"stage3_max_reuse_distance", 1'000'000}}, json::object()},
      {json{{"stage", 2}}, json{{"optimizer", {{"type", "Lion"}, {"params", {{"eps", nullptr}}}}}}},
      {json{{"stage", 2}},
       json{{"optimizer", {{"type", "SGD"}, {"params", test::with(nothing, {{"momentum", 0.9}})}}}}},
  }));
  INFO(zero.dump() << more.dump());
  const auto config = job.config(offloaded(zero.at("stage"), zero), more);
  const Trained late = train(job.model, config, 1, std::nullopt);
  const int all = late.after.front();
  const Trained early = train(job.model, config, 1, Expected{all, all});
  check_same(early, late);
}

namespace {

// Passes parameters on, watches those that backward still has to read, and gives updates time to write too early.
class LastReads final : public UnitParameters {
 public:
  LastReads(UnitParameters& inner, HostUpdateCount& count) : inner_(inner), count_(count) {}

  UnitValues acquire(int unit, UnitCall call) override {
    auto out = inner_.acquire(unit, call);
    if (call == UnitCall::kTraining) {
      auto& own = units_[unit];
      own.open_calls += 1;
      own.live = out.parameters;
      own.read.clear();
      for (const auto& each : own.live) own.read.push_back(each.clone());
    }
    return out;
  }
  void release(int unit) override { inner_.release(unit); }
  void prepare_backward(int unit) override { inner_.prepare_backward(unit); }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    for (const auto& [index, own] : units_) {
      INFO("unit " << index);
      for (size_t i = 0; own.open_calls > 0 && i < own.live.size(); ++i) CHECK(at::equal(own.live[i], own.read[i]));
    }
    const bool is_last = --units_[unit].open_calls == 0;
    inner_.take_gradients(unit, std::move(gradients));
    if (is_last) REQUIRE(count_.wait_for(++num_expected_));
  }
  // Those of a unit that has been read are written by now.
  bool is_written(int unit) const {
    const auto& own = units_.at(unit);
    return !at::equal(own.live[0], own.read[0]);
  }
  void begin_step() {
    units_.clear();
    num_expected_ = count_.read();
  }

 private:
  struct Unit {
    int open_calls = 0;
    std::vector<at::Tensor> live, read;
  };
  UnitParameters& inner_;
  HostUpdateCount& count_;
  std::map<int, Unit> units_;
  int num_expected_ = 0;
};

}  // namespace

TEST_CASE("parameters are written early, but not before backward has read them for the last time",
          "[runtime][engine][offload]") {
  const test::JobFiles job(make_shared_net());
  const int stage = GENERATE(1, 2);
  const json recomputation{{"activation_checkpointing", {{"enabled", GENERATE(false, true)}}}};
  HostUpdateCount count;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(stage), recomputation), groups);
    LastReads reads(rank.engine->unit_parameters(), count);
    rank.model->runnable->set_unit_parameters(&reads);
    AfterBackward observer(true, [&] {
      for (int unit = 0; unit < 3; ++unit) CHECK(reads.is_written(unit));
    });
    rank.engine->observe(observer);
    for (int step = 0; step < 3; ++step) {
      rank.engine->owned_state();
      reads.begin_step();
      rank.step();
    }
    rank.engine->owned_state();
    CHECK(count.read() == 3 * 3);
  });
}

TEST_CASE("updates are not early where something after backward decides about them", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir swap;
  const auto is_early = [&](const json& zero, const json& more = json::object()) {
    bool out = false;
    test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
      out = test::JobRank(job.model, job.config(zero, more), groups).engine->updates_early();
    });
    return out;
  };
  const json files{{"device", "nvme"}, {"nvme_path", swap.path()}};
  CHECK(is_early(offloaded(2)));
  CHECK(is_early(offloaded(2), {{"bf16", {{"enabled", true}}}}));
  CHECK(is_early(offloaded(3, {{"offload_optimizer", {{"ratio", 0.5}}}})));
  CHECK_FALSE(is_early(offloaded(2), {{"gradient_clipping", 1.0}}));
  CHECK_FALSE(is_early(offloaded(2), {{"fp16", {{"enabled", true}}}}));
  CHECK_FALSE(is_early(offloaded(2), {{"loss_average", "tokens"}}));
  CHECK_FALSE(is_early(offloaded(2, {{"offload_optimizer", {{"delayed_update", true}}}})));
  CHECK_FALSE(is_early(offloaded(2, {{"offload_optimizer", files}})));
  CHECK_FALSE(is_early(offloaded(3, {{"offload_param", test::with(files, {{"max_in_cpu", 0}})}})));
  CHECK_FALSE(is_early({{"zero_optimization", {{"stage", 2}}}}));
}

TEST_CASE("an observer that has not said otherwise sees the state before its update", "[runtime][engine][offload]") {
  class Watch final : public EngineObserver {
   public:
    void before_update(std::span<const SpanState>, const ApplyUpdate&) override {}
  } watch;
  const test::JobFiles job(test::make_mixed_net());
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(2)), groups);
    CHECK(rank.engine->updates_early());
    rank.engine->observe(watch);
    CHECK_FALSE(rank.engine->updates_early());
  });
}

TEST_CASE("the update after a save in the background is not early: the save reads the state",
          "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir run;
  test::MemoryStore store;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(2)), groups);
    const auto checkpoints = rank.checkpoints(job.model, run.path(), groups, store);
    rank.step();
    CHECK(rank.engine->updates_early());
    const auto saved = rank.owned_state();
    checkpoints->save({}, /*wait=*/false);
    CHECK_FALSE(rank.engine->updates_early());
    rank.step();
    CHECK(rank.engine->updates_early());
    rank.step();
    checkpoints->finish();
    checkpoints->resume("auto");
    CHECK(test::first_difference(test::join({rank.owned_state()}), test::join({saved})) == "");
  });
}

TEST_CASE("what is not finite in backward stops the updates there, for good", "[runtime][engine][offload]") {
  const test::JobFiles job(make_shared_net(/*is_steep=*/true));
  const int stage = GENERATE(1, 2, 3);
  const bool early = GENERATE(false, true);
  HostUpdateCount count;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(stage)), groups);
    AfterBackward observer(early, [&] {
      if (early) REQUIRE(count.wait_for(1));
    });
    rank.engine->observe(observer);
    const auto before = test::join({rank.owned_state()});
    const auto result = rank.step();
    CHECK(std::isfinite(result.loss));
    CHECK_FALSE(std::isfinite(result.grad_norm));
    const auto after = test::join({rank.owned_state()});
    for (const auto& [key, values] : before) {
      INFO(key.second << " of " << key.first);
      CHECK(values.equal(after.at(key)) == !(early && key.first == "blocks.1.weight"));
    }
    rank.step();
    CHECK(test::first_difference(test::join({rank.owned_state()}), after) == "");
    CHECK(count.read() == (early ? 1 : 0));
  });
}

TEST_CASE("a loss that is not finite stops the updates before the first one", "[runtime][engine][offload]") {
  test::JobFiles job(test::make_mixed_net());
  test::write_samples(job.folder / "data.safetensors", {{"x", at::full({60, 5}, std::nan(""))}, {"y", job.y}});
  HostUpdateCount count;
  test::run_mesh({.data = 2}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(1)), groups);
    const auto before = test::join({rank.owned_state()});
    CHECK_FALSE(std::isfinite(rank.step().loss));
    rank.step();
    const auto after = test::join({rank.owned_state()});
    for (const auto& [key, values] : before) CHECK(values.equal(after.at(key)));
  });
  CHECK(count.read() == 0);
}

namespace {

// Fails in the backward of a unit, when updates have begun.
class FailingBackward final : public UnitParameters {
 public:
  FailingBackward(UnitParameters& inner, HostUpdateCount& count) : inner_(inner), count_(count) {}
  UnitValues acquire(int unit, UnitCall call) override { return inner_.acquire(unit, call); }
  void release(int unit) override { inner_.release(unit); }
  void prepare_backward(int unit) override { inner_.prepare_backward(unit); }
  void take_gradients(int unit, std::vector<at::Tensor> gradients) override {
    if (unit == 1 && fails) {
      REQUIRE(count_.wait_for(num_begun + 1));
      throw UserError(ExitCode::kBadInput, "the backward of this test fails");
    }
    inner_.take_gradients(unit, std::move(gradients));
  }
  std::atomic<bool> fails = false;
  std::atomic<int> num_begun = 0;

 private:
  UnitParameters& inner_;
  HostUpdateCount& count_;
};

}  // namespace

TEST_CASE("a step that fails in its backward after updates of it ends the run, and nothing of it is saved",
          "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  const test::TempDir run;
  test::MemoryStore store;
  HostUpdateCount count;
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(2)), groups);
    FailingBackward failing(rank.engine->unit_parameters(), count);
    rank.model->runnable->set_unit_parameters(&failing);
    const auto checkpoints = rank.checkpoints(job.model, run.path(), groups, store);
    rank.step();
    checkpoints->save({}, /*wait=*/true);
    const auto saved = test::join({rank.owned_state()});
    rank.step();
    rank.owned_state();
    failing.num_begun = count.read();
    failing.fails = true;
    test::expect_error(ExitCode::kBadInput, {"the backward of this test fails"}, [&] { rank.step(); });
    const std::vector<std::string> words{"a step has ended in its backward"};
    test::expect_error(ExitCode::kInternal, words, [&] { rank.owned_state(); });
    test::expect_error(ExitCode::kInternal, words, [&] { checkpoints->save({}, /*wait=*/true); });
    failing.fails = false;
    test::expect_error(ExitCode::kInternal, words, [&] { rank.step(); });
    test::JobRank again(job.model, job.config(offloaded(2)), groups);
    again.resume(checkpoints->last_saved(), groups, store);
    CHECK(again.engine->steps_done() == 1);
    CHECK(test::first_difference(test::join({again.owned_state()}), saved) == "");
  });
}

TEST_CASE("ranks whose peer is lost in backward end with its updates", "[runtime][engine][offload]") {
  const test::JobFiles job(test::make_mixed_net());
  HostUpdateCount count;
  const auto ends = test::end_mesh({.data = 2}, [&](const comm::Groups& groups) {
    test::JobRank rank(job.model, job.config(offloaded(2)), groups);
    FailingBackward failing(rank.engine->unit_parameters(), count);
    rank.model->runnable->set_unit_parameters(&failing);
    rank.step();
    rank.owned_state();
    groups.world.barrier();
    failing.num_begun = count.read();
    groups.world.barrier();
    failing.fails = groups.world.rank() == 1;
    rank.step();
  });
  for (const auto& end : ends) CHECK(end != nullptr);
}
