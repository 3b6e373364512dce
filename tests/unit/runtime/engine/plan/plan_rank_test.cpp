// A plan against what an engine really allocates, counted while threads train as ranks. What rests in host memory apart
// from PyTorch's allocator (offload) is counted as the storages of the state.
#include "runtime/engine/plan/plan_rank.hpp"

#include <barrier>
#include <catch2/catch.hpp>
#include <mutex>
#include <set>

#include "runtime/engine/step/sharding_choice.hpp"
#include "runtime/sharding/state_layout.hpp"
#include "runtime/telemetry/counting_allocator.hpp"
#include "support/job_files.hpp"
#include "support/job_rank.hpp"
#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine;
using memory_plan::RankMemory;
using memory_plan::Tier;
using memory_plan::Use;
using test::json;

namespace {

// Of all CPU tensors that live.
int64_t live_bytes() {
  return CountingAllocator::install().read().now;
}

int64_t bytes_of_storages(const std::vector<at::Tensor>& tensors) {
  std::set<const void*> seen;
  int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || !seen.insert(tensor.storage().data()).second) continue;
    bytes += static_cast<int64_t>(tensor.storage().nbytes());
  }
  return bytes;
}

// Before the update of a step: what lives, and what the arrays of the state hold.
class Watch final : public step::EngineObserver {
 public:
  explicit Watch(std::barrier<>& ranks) : ranks_(ranks) {}

  void before_update(std::span<const SpanState> state, const step::ApplyUpdate&) override {
    in_files = gradients_in_files = parameters_in_files = 0;
    for (const auto& [span, arrays] : state) {
      if (arrays.stored_parameter) {
        parameters_in_files += span.numel() * static_cast<int64_t>(c10::elementSize(arrays.stored_parameter->dtype));
      }
      if (!arrays.is_offloaded) continue;
      if (arrays.stored) {
        in_files += span.numel() * static_cast<int64_t>(arrays.stored->num_arrays() * sizeof(float));
        gradients_in_files += span.numel() * static_cast<int64_t>(c10::elementSize(arrays.stored_gradient->dtype));
        continue;
      }
      masters.push_back(arrays.master);
      gradients.push_back(arrays.gradient);
      moments.insert(moments.end(), arrays.moments.begin(), arrays.moments.end());
    }
    ranks_.arrive_and_wait();  // the count is of all ranks
    live = live_bytes();
    ranks_.arrive_and_wait();
  }

  int64_t live = 0, in_files = 0, gradients_in_files = 0, parameters_in_files = 0;
  std::vector<at::Tensor> masters, gradients, moments;

 private:
  std::barrier<>& ranks_;
};

// Bytes of all ranks.
struct StepMemory {
  int64_t built = 0;                                // by the engines' construction
  int64_t in_step = 0;                              // beyond that, before the update of the first step
  int64_t masters = 0, gradients = 0, moments = 0;  // offloaded
  int64_t in_files = 0, gradients_in_files = 0, parameters_in_files = 0;
  RankMemory plan;  // of all ranks
};

// Wide enough that the state outweighs the scalars of a step: as the mixed net, with two repeated blocks, a tied
// weight, a frozen weight, and sizes that no number of ranks divides.
torch::jit::Module make_wide_net() {
  const auto block = [](uint64_t seed) {
    return test::compile(
        {"Block",
         "def forward(self, x):\n    return torch.tanh(torch.matmul(x, self.weight) + self.bias) + x\n",
         {{"weight", test::random_weight({75, 75}, seed, 0.1)}, {"bias", test::random_weight({75}, seed + 1, 0.1)}}});
  };
  const at::Tensor tied = test::random_weight({5, 75}, 1, 0.1);
  const auto encode =
      test::compile({"Encode", "def forward(self, x):\n    return torch.matmul(x, self.weight)\n", {{"weight", tied}}});
  const auto decode = test::compile(
      {"Decode", "def forward(self, x):\n    return torch.matmul(x, self.weight.t())\n", {{"weight", tied}}});
  const auto blocks = test::compile({.type = "Blocks",
                                     .source = "def forward(self, x):\n    return x\n",
                                     .children = {{"0", block(10)}, {"1", block(20)}}});
  return test::compile({"WideNet",
                        R"(
    def forward(self, x):
        x = self.encode.forward(x)
        x = getattr(self.blocks, "0").forward(x)
        x = getattr(self.blocks, "1").forward(x)
        x = torch.matmul(x, self.frozen)
        return torch.matmul(self.decode.forward(x), self.head)
  )",
                        {{"frozen", test::random_values({75, 75}, 2, 0.1)}, {"head", test::random_weight({5, 3}, 3)}},
                        {},
                        {{"encode", encode}, {"blocks", blocks}, {"decode", decode}}});
}

plan::PlannedRank planned(const comm::Groups& groups) {
  return {.device = at::kCPU, .rank = groups.world.rank(), .num_data_ranks = groups.mesh.data};
}

void add(RankMemory& sum, const RankMemory& memory) {
  for (size_t tier = 0; tier < memory_plan::kNumTiers; ++tier) {
    for (size_t use = 0; use < memory_plan::kNumUses; ++use) {
      const auto t = static_cast<Tier>(tier);
      const auto u = static_cast<Use>(use);
      sum.add(t, u, memory.of(t, u));
    }
  }
}

StepMemory train_two_steps(const std::string& model, const json& config, int ranks) {
  StepMemory out;
  std::mutex mutex;
  std::barrier all(ranks);
  const int64_t before = live_bytes();
  test::run_mesh({.data = ranks}, [&](const comm::Groups& groups) {
    test::JobRank rank(model, config, groups);
    all.arrive_and_wait();
    const int64_t built = live_bytes();
    all.arrive_and_wait();
    Watch watch(all);
    rank.engine->observe(watch);
    for (int step = 0; step < 2; ++step) rank.step();  // some memory is taken after the first update
    const auto plan = plan::plan_rank(plan::planned_model(*rank.model), rank.config, planned(groups));
    const std::lock_guard lock(mutex);
    out.built = built - before;
    out.in_step = watch.live - built;
    out.in_files += watch.in_files;
    out.gradients_in_files += watch.gradients_in_files;
    out.parameters_in_files += watch.parameters_in_files;
    out.masters += bytes_of_storages(watch.masters);
    out.gradients += bytes_of_storages(watch.gradients);
    out.moments += bytes_of_storages(watch.moments);
    add(out.plan, plan);
  });
  return out;
}

// `allocated` is `planned` and the scalars of the engines, or of a step: counters, rates, losses, samples.
void check_close(const char* what, int64_t allocated, int64_t planned, int64_t scalars) {
  INFO(what << ": planned " << planned << ", allocated " << allocated);
  CHECK(allocated >= planned);
  CHECK(allocated <= planned + scalars);
}

void check_steps(const json& config, int ranks, const json& changes = json::object()) {
  INFO(ranks << " ranks, " << config.dump() << changes.dump());
  const test::JobFiles job(make_wide_net());
  const StepMemory allocated = train_two_steps(job.model, job.config(config, changes), ranks);
  const RankMemory& plan = allocated.plan;
  const auto on_device = [&](Use use) { return plan.of(Tier::kDevice, use); };
  const int64_t built = plan.total(Tier::kDevice) - on_device(Use::kGradients) - on_device(Use::kBackwardBuckets);
  check_close("parameters and state", allocated.built, built, 2048 * ranks);
  check_close("gradients", allocated.in_step, on_device(Use::kGradients), 4096 * ranks);
  CHECK(allocated.in_files == plan.of(Tier::kFile, Use::kMasters) + plan.of(Tier::kFile, Use::kMoments));
  CHECK(allocated.gradients_in_files == plan.of(Tier::kFile, Use::kGradients));
  CHECK(allocated.masters == plan.of(Tier::kHost, Use::kMasters));
  CHECK(allocated.moments == plan.of(Tier::kHost, Use::kMoments));
  CHECK(allocated.gradients == plan.of(Tier::kHost, Use::kGradients));
}

json zero(int stage, const json& more = json::object()) {
  json section{{"stage", stage}, {"stage3_param_persistence_threshold", 100}};
  return {{"zero_optimization", test::with(section, more)}};
}

const json& precision_of(const std::string& name) {
  static const json all{
      {"fp32", json::object()}, {"bf16", {{"bf16", {{"enabled", true}}}}}, {"fp16", {{"fp16", {{"enabled", true}}}}}};
  return all.at(name);
}

}  // namespace

TEST_CASE("an engine allocates what the plan says", "[runtime][engine][plan]") {
  const int stage = GENERATE(0, 1, 2, 3), ranks = GENERATE(1, 3);
  const auto precision = GENERATE(as<std::string>(), "fp32", "bf16", "fp16");
  const int accumulation = GENERATE(1, 2);
  check_steps(
      test::with(test::with(zero(stage), precision_of(precision)), {{"gradient_accumulation_steps", accumulation}}),
      ranks);
}

TEST_CASE("a plan follows the optimizer and the types of gradients", "[runtime][engine][plan]") {
  const json changes = GENERATE(
      json{{"optimizer", {{"type", "SGD"}, {"params", {{"momentum", 0.9}, {"betas", nullptr}, {"eps", nullptr}}}}}},
      json{{"optimizer", {{"type", "SGD"}, {"params", {{"betas", nullptr}, {"eps", nullptr}}}}}},
      json{{"optimizer", {{"params", {{"amsgrad", true}}}}}},
      json{{"optimizer",
            {{"type", "RMSprop"}, {"params", {{"betas", nullptr}, {"momentum", 0.5}, {"centered", true}}}}}},
      json{{"optimizer", {{"type", "AdamW8bit"}, {"params", {{"min_8bit_size", 1000}}}}}},
      json{{"optimizer", {{"type", "Adafactor"}, {"params", {{"betas", nullptr}, {"eps", nullptr}}}}}},
      json{{"data_types", {{"grad_accum_dtype", "bf16"}}}, {"bf16", {{"enabled", true}}}},
      json{{"zero_optimization", {{"reduce_bucket_size", 2000}, {"stage3_prefetch_bucket_size", 0}}}},
      json{{"communication_data_type", "fp32"}, {"bf16", {{"enabled", true}}}});
  const int stage = GENERATE(0, 1, 2, 3), ranks = GENERATE(1, 2);
  check_steps(zero(stage), ranks, changes);
}

TEST_CASE("a plan knows what an optimizer of one bit keeps", "[runtime][engine][plan]") {
  const char* type = GENERATE("OneBitAdam", "OneBitLamb", "ZeroOneAdam");
  const int ranks = GENERATE(1, 3);
  check_steps(zero(0), ranks, {{"optimizer", {{"type", type}}}});
}

TEST_CASE("a plan knows which parameters are in files", "[runtime][engine][plan]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const int ranks = GENERATE(1, 2);
  const int64_t kept = GENERATE(0, 6000);
  const auto precision = GENERATE(as<std::string>(), "fp32", "bf16");
  const bool offloads_state = GENERATE(false, true);
  json section{{"offload_param", {{"device", "nvme"}, {"nvme_path", swap.path()}, {"max_in_cpu", kept}}}};
  if (offloads_state) section["offload_optimizer"] = {{"device", "nvme"}, {"nvme_path", swap.path()}};
  const auto config = job.config(zero(3, section), precision_of(precision));
  const StepMemory allocated = train_two_steps(job.model, config, ranks);
  INFO(config.dump() << ranks << " ranks");
  const int64_t element = precision == "fp32" ? 4 : 2;
  const int64_t in_files = allocated.parameters_in_files + 75 * 75 * element;  // with the frozen ones
  CHECK(allocated.plan.of(Tier::kFile, Use::kParameters) >= in_files);
  CHECK(allocated.plan.of(Tier::kFile, Use::kParameters) <= in_files + 64);  // padding of shards
  CHECK(allocated.plan.of(Tier::kHost, Use::kParameters) <= kept * element * ranks);
  CHECK((allocated.plan.of(Tier::kHost, Use::kParameters) > 0) == (kept > 0));
}

TEST_CASE("the memory check asks for what the plan says", "[runtime][engine][plan]") {
  const test::JobFiles job(make_wide_net());
  const test::TempDir swap;
  const json nvme{{"device", "nvme"}, {"nvme_path", swap.path()}};
  const std::vector<json> sections{
      {{"offload_param", test::with(nvme, {{"max_in_cpu", 0}})}},
      {{"offload_param", test::with(nvme, {{"max_in_cpu", 6000}, {"buffer_size", 3000}})}},
      {{"offload_param", nvme}, {"offload_optimizer", nvme}},
      {{"offload_optimizer", test::with(nvme, {{"delayed_update", true}})}},
      {{"offload_optimizer", {{"device", "cpu"}, {"delayed_update", true}}}},
      {{"offload_param", {{"device", "cpu"}}}, {"offload_optimizer", {{"device", "cpu"}}}},
  };
  const json& section = sections[GENERATE(range(size_t{0}, size_t{6}))];
  const auto config = job.config(zero(3, section), {{"bf16", {{"enabled", true}}}});
  INFO(config.dump());
  test::run_mesh({.data = 1}, [&](const comm::Groups& groups) {
    const test::JobRank rank(job.model, config, groups);
    const auto& table = rank.model->facts.table;
    step::EngineOptions options;
    options.dtypes = rank.dtypes;
    const auto optimizer_groups = optim::plan_optimizer_groups(rank.config.optimizer, table);
    const int64_t num_moments = step::count_offloaded_moments(table, rank.config, optimizer_groups, false);
    auto sharding = step::choose_sharding(table, rank.config, options, 1, num_moments);
    sharding.optimizer_groups = optimizer_groups.of_parameter;
    const auto layout = plan_state_layout(table, sharding, 1);
    const auto plan = plan::plan_rank(plan::planned_model(*rank.model), rank.config, planned(groups));
    CHECK(offloaded_bytes(layout, sharding, 1, 0) == plan.total(Tier::kHost) + plan.total(Tier::kPageLocked));
  });
}

TEST_CASE("a plan knows what rests on the host and in files", "[runtime][engine][plan]") {
  const int stage = GENERATE(1, 2, 3), ranks = GENERATE(1, 2);
  const bool offloads_parameters = GENERATE(false, true);
  if (offloads_parameters && stage < 3) return;
  const auto precision = GENERATE(as<std::string>(), "fp32", "bf16");
  const int accumulation = GENERATE(1, 2);
  json offload =
      GENERATE(json{{"device", "cpu"}}, json{{"device", "cpu"}, {"delayed_update", true}}, json{{"device", "nvme"}});
  const test::TempDir swap;
  offload["nvme_path"] = swap.path();
  json section{{"offload_optimizer", offload}};
  if (offloads_parameters) section["offload_param"] = {{"device", "cpu"}};
  check_steps(test::with(test::with(zero(stage, section), precision_of(precision)),
                         {{"gradient_accumulation_steps", accumulation}}),
              ranks);
}
