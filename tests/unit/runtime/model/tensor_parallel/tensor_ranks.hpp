// A model as tensor ranks run it, each rank a thread, beside the whole model: outputs and the gradients of all
// parameters.
#pragma once
#include <ATen/ATen.h>
#include <torch/script.h>

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/model/graph/unit_discovery.hpp"
#include "runtime/model/interface/graph_pass_options.hpp"
#include "runtime/model/placement/plan_placements.hpp"
#include "runtime/model/tensor_parallel/apply_placements.hpp"
#include "runtime/model/torchscript/graph_passes.hpp"
#include "runtime/model/torchscript/parameter_binding.hpp"
#include "support/thread_communicator.hpp"

namespace dslaunch::test {

namespace placement = runtime::model::placement;
namespace tensor_parallel = runtime::model::tensor_parallel;

// Modules with classes of their own at every call: rewriting one leaves the others.
using MakeModule = std::function<torch::jit::Module()>;
using Inputs = std::vector<c10::IValue>;

inline std::vector<runtime::RecordedInput> recorded_of(const torch::jit::Module& module, const Inputs& inputs) {
  std::vector<runtime::RecordedInput> out;
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto tensor = inputs[i].toTensor();
    const auto sizes = tensor.sizes().slice(1).vec();
    out.push_back({arguments.at(i + 1).name(), tensor.is_floating_point() ? "float32" : "int64", sizes});
  }
  return out;
}

inline void run_graph_passes(const torch::jit::Module& module) {
  runtime::model::passes::PassContext context{.module = module};
  run_passes(runtime::model::torchscript::graph_passes(), runtime::model::passes::PassNeeds::kGraphs,
             runtime::model::passes::PassTarget::kModel, context);
}

struct RankResult {
  at::Tensor output;
  std::vector<at::Tensor> gradients;  // by parameter
  std::vector<at::Tensor> of_inputs;  // gradients of floating-point inputs
};

class TensorRanks {
 public:
  struct Options {
    bool runs_passes = true;
    std::vector<std::string> units = {};
    std::vector<config::TensorSplitRule> rules = {};
    bool needs_rules = false;
    bool sequence_parallel = false;
    Inputs analyzed = {};  // instead of the inputs of the run: those whose shapes the file records
  };

  TensorRanks(MakeModule make, int ranks, Inputs inputs) : TensorRanks(std::move(make), ranks, std::move(inputs), {}) {}
  TensorRanks(MakeModule make, int ranks, Inputs inputs, const Options& options)
      : make_(std::move(make)),
        inputs_(std::move(inputs)),
        options_(options),
        group_(std::make_shared<ThreadGroup>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank) load(rank, ranks);
  }

  const runtime::model::PlacementReport& report() const { return ranks_.at(0)->plan.report; }
  const runtime::ParameterTable& table(int rank) const { return ranks_.at(rank)->binding.table; }
  const torch::jit::Module& module(int rank) const { return ranks_.at(rank)->module; }
  // "column", "row" or "" of a parameter that is a GEMM's weight.
  std::string split(const std::string& parameter) const {
    for (const auto& gemm : report().gemms) {
      if (gemm.parameter == parameter) return gemm.split;
    }
    return "no weight of a GEMM";
  }

  // The outputs and the gradients of all ranks are those of the whole model.
  void check_equals_whole(double tolerance = 1e-5) {
    const RankResult whole = run_whole();
    std::vector<RankResult> results(ranks_.size());
    std::vector<std::exception_ptr> failures(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          results[rank] = run(*ranks_[rank]);
        } catch (...) {
          failures[rank] = std::current_exception();
          group_->abort();
        }
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
    for (size_t rank = 0; rank < ranks_.size(); ++rank) compare(whole, results[rank], rank, tolerance);
  }

 private:
  struct Rank {
    torch::jit::Module module;
    runtime::model::torchscript::ParameterBinding binding;
    placement::ModelPlan plan;
    tensor_parallel::TensorGroupPtr group;
    std::unique_ptr<ThreadCommunicator> communicator;
  };

  void load(int rank, int ranks) {
    auto own = std::make_unique<Rank>(Rank{make_(), {}, {}, {}, nullptr});
    prepare(own->module);
    own->binding = runtime::model::torchscript::bind_parameters(own->module, {});
    const auto units = runtime::model::graph::find_unit_candidates(own->module, options_.units);
    const auto recorded = recorded_of(own->module, options_.analyzed.empty() ? inputs_ : options_.analyzed);
    own->plan = placement::plan_placements({own->module, units, own->binding.table, own->binding.locations, recorded},
                                           {.size = ranks,
                                            .rank = rank,
                                            .rules = options_.rules,
                                            .needs_rules = options_.needs_rules,
                                            .sequence_parallel = options_.sequence_parallel});
    own->group = c10::make_intrusive<tensor_parallel::TensorGroup>(rank, ranks);
    own->communicator = std::make_unique<ThreadCommunicator>(group_, rank);
    own->group->set_communicator(*own->communicator);
    tensor_parallel::apply_placements(own->plan, own->group, own->binding.table);
    for (size_t i = 0; i < own->binding.table.parameters.size(); ++i) {
      const auto& slice = own->binding.table.parameters[i].slice;
      if (!slice) continue;
      const at::Tensor whole = own->binding.locations[i][0].get().detach();
      const at::Tensor local = tensor_parallel::part_of(whole, slice->dim, slice->ranges)
                                   .clone()
                                   .set_requires_grad(own->binding.locations[i][0].get().requires_grad());
      for (const auto& location : own->binding.locations[i]) location.set(local);
    }
    ranks_.push_back(std::move(own));
  }

  // In evaluation, so that dropout draws nothing.
  void prepare(torch::jit::Module module) const {
    if (options_.runs_passes) run_graph_passes(module);
    module.eval();
  }

  RankResult run_module(torch::jit::Module module, const runtime::model::torchscript::ParameterBinding& binding) {
    RankResult out;
    Inputs inputs;
    for (const auto& input : inputs_) {
      const at::Tensor own = input.toTensor().detach().clone();
      inputs.emplace_back(own.is_floating_point() ? own.set_requires_grad(true) : own);
    }
    out.output = module.forward(inputs).toTensor();
    // Weights of the elements of the output, so that no gradient is zero by symmetry.
    const at::Tensor weights = at::linspace(0.5, 1.5, out.output.numel()).view(out.output.sizes());
    (out.output * weights).sum().backward();
    for (const auto& input : inputs) {
      if (input.toTensor().requires_grad()) out.of_inputs.push_back(input.toTensor().grad());
    }
    for (const auto& locations : binding.locations) out.gradients.push_back(locations[0].get().grad());
    return out;
  }
  RankResult run(Rank& rank) { return run_module(rank.module, rank.binding); }
  RankResult run_whole() {
    const auto module = make_();
    prepare(module);
    const auto binding = runtime::model::torchscript::bind_parameters(module, {});
    return run_module(module, binding);
  }

  void compare(const RankResult& whole, const RankResult& part, size_t rank, double tolerance) const {
    const auto& parameters = ranks_[rank]->binding.table.parameters;
    INFO("tensor rank " << rank);
    require_close(part.output, whole.output, tolerance);
    for (size_t i = 0; i < whole.of_inputs.size(); ++i) {
      INFO("the gradient of input " << i);
      require_close(part.of_inputs[i], whole.of_inputs[i], tolerance);
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      INFO("the gradient of " << parameters[i].name);
      REQUIRE(part.gradients[i].defined() == whole.gradients[i].defined());
      if (!part.gradients[i].defined()) continue;
      const auto& slice = parameters[i].slice;
      require_close(
          part.gradients[i],
          slice ? tensor_parallel::part_of(whole.gradients[i], slice->dim, slice->ranges) : whole.gradients[i],
          tolerance);
    }
  }

  static void require_close(const at::Tensor& got, const at::Tensor& expected, double tolerance) {
    REQUIRE(got.sizes() == expected.sizes());
    if (expected.numel() == 0) return;
    const double scale = std::max(expected.abs().max().item<double>(), 1e-3);
    CHECK((got - expected).abs().max().item<double>() <= tolerance * scale);
  }

  MakeModule make_;
  Inputs inputs_;
  Options options_;
  std::shared_ptr<ThreadGroup> group_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace dslaunch::test
