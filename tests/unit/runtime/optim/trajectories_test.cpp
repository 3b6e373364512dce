// 200 steps of every optimizer over a small model, on 1, 2 and 3 ranks, against numbers of DeepSpeed and PyTorch
// (tests/data/optimizers/optimizers.json, made by tests/oracle/optimizer_numbers.py, which says which is which).
#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/optim/learning_rate.hpp"
#include "runtime/optim/moments.hpp"
#include "support/checkout.hpp"
#include "support/thread_communicator.hpp"
#include "unit/runtime/optim/numbered_model.hpp"

namespace {

using namespace dslaunch;
using namespace dslaunch::runtime;
using nlohmann::json;
using test::gradient_value;
using test::load_section;
using test::start_value;
using test::worst_difference;
using Model = test::NumberedModel;

constexpr int64_t kSteps = 200;

json numbers() {
  std::ifstream in(test::source_file("tests/data/optimizers/optimizers.json"));
  return json::parse(in);
}

struct Job {
  const Model& model;
  const config::JobConfig config;
  const optim::OptimizerGroups groups;
  const std::vector<FlatGroup> layout;
  const int ranks;
  std::map<int64_t, at::Tensor> values;         // by step, all parameters one behind the other; written by all ranks
  std::map<int64_t, at::Tensor> low_precision;  // likewise, bf16
};

// Fills `whole` with what the runs of one rank hold.
template <class Take>
void collect(const Job& job, const std::vector<SpanState>& runs, at::Tensor& whole, const Take& take) {
  for (const auto& run : runs) {
    for (const auto& piece : pieces_in(job.layout[static_cast<size_t>(run.span.flat_group)], run.span.range)) {
      whole.narrow(0, job.model.first[static_cast<size_t>(piece.parameter)] + piece.begin, piece.count)
          .copy_(take(run).narrow(0, piece.offset, piece.count));
    }
  }
}

template <class Value>
void fill(const Job& job, int flat_group, const Range& range, const at::Tensor& out, const Value& value) {
  for (const auto& piece : pieces_in(job.layout[static_cast<size_t>(flat_group)], range)) {
    float* data = out.data_ptr<float>() + piece.offset;
    const int64_t first = job.model.first[static_cast<size_t>(piece.parameter)] + piece.begin;
    for (int64_t k = 0; k < piece.count; ++k) data[k] = value(first + k);
  }
}

void run_rank(Job& job, comm::Communicator& communicator) {
  const auto optimizer =
      optim::make_flat_optimizer(job.groups, {&job.model.table, &job.layout, job.ranks > 1 ? &communicator : nullptr});
  std::vector<SpanState> runs;
  for (size_t g = 0; g < job.layout.size(); ++g) {
    const Range own = shard_range(job.layout[g], communicator.rank(), job.ranks);
    StateArrays arrays;
    arrays.master = at::zeros({own.size()});
    arrays.gradient = at::zeros({own.size()});
    arrays.low_precision = at::zeros({own.size()}, at::kBFloat16);
    fill(job, static_cast<int>(g), own, arrays.master, start_value);
    for (const auto& span : plan_spans(job.layout[g], static_cast<int>(g), own, job.groups.of_parameter)) {
      runs.push_back({span, narrow(arrays, span.range.begin - own.begin, span.numel())});
      optim::allocate_moments(*optimizer, runs.back());
    }
  }
  optimizer->allocate_own_state(runs);
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (const auto& run : runs) {
      fill(job, run.span.flat_group, run.span.range, run.arrays.gradient,
           [&](int64_t i) { return gradient_value(i, step); });
    }
    optimizer->step(runs, {.rates = {optim::step_rates(job.config.scheduler, job.groups, kSteps, step - 1)}});
    if (auto found = job.values.find(step); found != job.values.end()) {
      collect(job, runs, found->second, [](const SpanState& run) { return run.arrays.master; });
      collect(job, runs, job.low_precision.at(step), [](const SpanState& run) { return run.arrays.low_precision; });
    }
  }
}

Job run_job(const Model& model, const json& section, int ranks) {
  const auto config = load_section(section);
  const auto groups = optim::plan_optimizer_groups(config.optimizer, model.table);
  const std::vector<at::ScalarType> dtypes(model.table.parameters.size(), at::kFloat);
  const auto layout = plan_flat_groups(
      model.table, {.compute_dtypes = dtypes, .num_shards = ranks, .optimizer_groups = groups.of_parameter});
  Job job{model, config, groups, layout, ranks, {}, {}};
  for (const int64_t step : {1, 20, 200}) {
    job.values[step] = at::zeros({model.numel});
    job.low_precision[step] = at::zeros({model.numel}, at::kBFloat16);
  }
  auto meeting = std::make_shared<test::ThreadGroup>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&job, meeting, rank] {
      test::ThreadCommunicator communicator(meeting, rank);
      run_rank(job, communicator);
    });
  }
  for (auto& thread : threads) thread.join();
  return job;
}

// A step rounds each weight a few times by half a unit in the last place: 2^-24 of its size. Over n steps these
// errors add up like a random walk; 4 sqrt(n) 2^-24 was never reached. Muon iterates in bf16, and how a processor adds
// up a product of bf16 matrices is its own affair: a result may differ by a unit in the last place of bf16, 2^-8 of an
// update, which is at most about lr of the weight's size here.
double bound(const std::string& name, int64_t step) {
  const auto steps = static_cast<double>(step);
  if (name == "Muon") return 0.01 * steps * std::pow(2.0, -8);
  return 4.0 * std::sqrt(steps) * std::pow(2.0, -24);
}

}  // namespace

TEST_CASE("200 steps of every optimizer end where DeepSpeed's and PyTorch's do", "[runtime][trajectories]") {
  const json file = numbers();
  const Model model = test::make_numbered_model(file["parameters"]);
  for (const auto& entry : file["cases"]) {
    const std::string name = entry["name"];
    const Job job = run_job(model, entry["config"], 1);
    for (const auto& [step, values] : job.values) {
      const auto expected = at::tensor(entry["values"][std::to_string(step)].get<std::vector<double>>(), at::kDouble);
      REQUIRE(expected.numel() == model.numel);
      INFO(name << ", step " << step);
      CHECK(worst_difference(model, values, expected) < bound(name, step));
    }
  }
}

TEST_CASE("shards on two and three ranks end on the same bits as one rank", "[runtime][trajectories]") {
  const json file = numbers();
  const Model model = test::make_numbered_model(file["parameters"]);
  for (const auto& entry : file["cases"]) {
    const Job alone = run_job(model, entry["config"], 1);
    for (const int ranks : {2, 3}) {
      const Job shared = run_job(model, entry["config"], ranks);
      for (const auto& [step, values] : alone.values) {
        INFO(entry["name"].get<std::string>() << " on " << ranks << " ranks, step " << step);
        CHECK(at::equal(shared.values.at(step), values));
        CHECK(at::equal(shared.low_precision.at(step), values.to(at::kBFloat16)));
      }
    }
  }
}

TEST_CASE("blocks of moments that shards cut have the bits of whole ones", "[runtime][trajectories][adam_8bit]") {
  const Model model = test::make_numbered_model(
      json::parse(R"([{"name": "a", "shape": [1000]}, {"name": "blocks.0.b", "shape": [37, 41]},
                                                 {"name": "blocks.0.c", "shape": [300]}])"));
  const json section{{"optimizer", {{"type", "AdamW8bit"}, {"params", {{"lr", 0.01}, {"min_8bit_size", 400}}}}}};
  const Job alone = run_job(model, section, 1);
  for (const int ranks : {2, 3}) {
    const Job shared = run_job(model, section, ranks);
    for (const auto& [step, values] : alone.values) {
      INFO(ranks << " ranks, step " << step);
      CHECK(at::equal(shared.values.at(step), values));
    }
  }
}
