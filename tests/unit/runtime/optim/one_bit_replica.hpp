// A rank of the optimizers that exchange one bit for each element, as ZeRO stage 0 has it: all parameters, and
// gradients of its own where a step does not average them. Ranks are threads.
#pragma once
#include <ATen/ATen.h>

#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "runtime/optim/learning_rate.hpp"
#include "runtime/optim/moments.hpp"
#include "support/checkout.hpp"
#include "support/thread_communicator.hpp"
#include "unit/runtime/optim/numbered_model.hpp"

namespace dslaunch::test {

template <class Communicator>
void on_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  auto meeting = std::make_shared<ThreadGroup>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator communicator(meeting, rank);
      body(communicator);
    });
  }
  for (auto& thread : threads) thread.join();
}

// All parameters on each of the ranks (stage 0), whose gradients differ.
struct OneBitJob {
  const NumberedModel& model;
  const config::JobConfig config;
  const runtime::optim::OptimizerGroups groups;
  const std::vector<runtime::FlatGroup> layout;

  OneBitJob(const NumberedModel& of, const json& section)
      : model(of),
        config(load_section(section)),
        groups(runtime::optim::plan_optimizer_groups(config.optimizer, model.table)),
        layout(runtime::plan_flat_groups(
            model.table, {.compute_dtypes = std::vector<at::ScalarType>(model.table.parameters.size(), at::kFloat),
                          .optimizer_groups = groups.of_parameter})) {}
};

struct OneBitReplica {
  const OneBitJob& job;
  comm::Communicator& ranks;
  std::unique_ptr<runtime::optim::FlatOptimizer> optimizer;
  std::vector<runtime::SpanState> runs;

  OneBitReplica(const OneBitJob& of, comm::Communicator& communicator, at::Device device = at::kCPU)
      : job(of), ranks(communicator) {
    optimizer = runtime::optim::make_flat_optimizer(
        job.groups,
        {.table = &job.model.table, .groups = &job.layout, .replicas = &ranks, .num_replicas = ranks.size()});
    for (size_t g = 0; g < job.layout.size(); ++g) {
      const runtime::Range all{0, job.layout[g].padded_numel};
      runtime::StateArrays arrays;
      arrays.master = at::zeros({all.size()}, device);
      arrays.gradient = at::zeros({all.size()}, device);
      arrays.low_precision = at::zeros({all.size()}, at::TensorOptions().device(device).dtype(at::kBFloat16));
      for (const auto& span : runtime::plan_spans(job.layout[g], static_cast<int>(g), all, job.groups.of_parameter)) {
        runs.push_back({span, runtime::narrow(arrays, span.range.begin, span.numel())});
        runtime::optim::allocate_moments(*optimizer, runs.back());
      }
    }
    each([](const runtime::StateArrays& arrays) { return arrays.master; }, [](int64_t i) { return start_value(i); });
    optimizer->allocate_own_state(runs);
  }

  // Calls `visit` with the values of each parameter and where they begin among the numbers.
  template <class Take, class Visit>
  void pieces(const Take& take, const Visit& visit) const {
    for (const auto& run : runs) {
      for (const auto& piece :
           runtime::pieces_in(job.layout[static_cast<size_t>(run.span.flat_group)], run.span.range)) {
        visit(take(run.arrays).narrow(0, piece.offset, piece.count),
              job.model.first[static_cast<size_t>(piece.parameter)] + piece.begin);
      }
    }
  }
  template <class Take, class Value>
  void each(const Take& take, const Value& value) const {
    pieces(take, [&](const at::Tensor& values, int64_t first) {
      const at::Tensor host = at::empty({values.numel()}, at::kFloat);
      for (int64_t k = 0; k < values.numel(); ++k) host.data_ptr<float>()[k] = value(first + k);
      values.copy_(host);
    });
  }
  at::Tensor masters() const {
    const at::Tensor out = at::zeros({job.model.numel});
    pieces([](const runtime::StateArrays& arrays) { return arrays.master; },
           [&](const at::Tensor& values, int64_t first) { out.narrow(0, first, values.numel()).copy_(values); });
    return out;
  }

  // The sum over the ranks where a step averages, divided by the factor.
  runtime::optim::StepInputs inputs(int64_t step) const {
    runtime::optim::StepInputs out{
        .rates = {runtime::optim::step_rates(job.config.scheduler, job.groups, 100, step - 1)}};
    out.rates[0].step = step;
    out.gradient_factor = at::scalar_tensor(1.0F / static_cast<float>(ranks.size())).to(runs[0].arrays.master.device());
    return out;
  }
  void set_gradients(int64_t step) const {
    const bool averages = optimizer->averages_gradients(step);
    each([](const runtime::StateArrays& arrays) { return arrays.gradient; },
         [&](int64_t i) {
           float sum = 0;
           for (int rank = 0; rank < ranks.size(); ++rank) {
             if (averages || rank == ranks.rank()) sum += gradient_value(i + 1000 * rank, step);
           }
           return sum;
         });
  }
  void step(int64_t step) {
    set_gradients(step);
    optimizer->step(runs, inputs(step));
  }
};

// By tests/oracle/one_bit_numbers.py.
inline json one_bit_numbers() {
  std::ifstream in(source_file("tests/data/optimizers/one_bit.json"));
  return json::parse(in);
}

}  // namespace dslaunch::test
