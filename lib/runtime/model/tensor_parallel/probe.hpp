// The proof that a model was split right: forward and backward of each distinct unit, and of the model outside its
// units, split beside whole, on random values: outputs, and the gradients of inputs and of all parameters. Random ones,
// so that no rank needs the model's values, and no bias of zeros hides what becomes of it.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/model/interface/placement_report.hpp"
#include "runtime/model/placement/plan_placements.hpp"
#include "runtime/model/tensor_parallel/tensor_group.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

class Probe {
 public:
  // Before apply_placements(): keeps copies of the plan's graphs. `locations`: by parameter of the table.
  Probe(const placement::ModelPlan& plan, const ParameterTable& table,
        const std::vector<std::vector<ParameterLocation>>& locations, config::TensorProbe which);
  ~Probe();

  // After apply_placements(): copies of what it made of the plan's graphs.
  struct SplitGraphs;
  std::shared_ptr<const SplitGraphs> split_graphs(const placement::ModelPlan& edited) const;

  // With the graphs of the group's rank. Collective; on virtual ranks from all their threads. Throws the same error on
  // all ranks, with the first unit and tensor that differ: `is_manual` says whose choice of layouts it was, the user's
  // (65) or ours (70).
  ProbeReport run(const SplitGraphs& split, TensorGroup& group, at::Device device, bool is_manual);

  struct Subject;  // an instance of a graph
  struct Pass;     // what a forward and a backward returned

 private:
  std::shared_ptr<const Pass> whole_pass(size_t subject, at::Device device);

  std::vector<std::unique_ptr<Subject>> subjects_;
  const int num_threads_;  // of the process

  std::mutex mutex_;  // guards the rest: virtual ranks share it
  std::optional<size_t> last_;
  std::shared_ptr<const Pass> last_pass_;
};

// A probe of a model that was loaded, until its ranks can communicate.
struct PendingProbe {
  std::shared_ptr<Probe> probe;  // null: nothing is probed
  std::shared_ptr<const Probe::SplitGraphs> split;
  bool is_manual = false;
};

// The same before a job exists: plans the model for each rank and probes them as threads, on the CPU.
ProbeReport probe_on_virtual_ranks(const placement::ModelToPlace& model,
                                   const placement::TensorParallelOptions& options);

}  // namespace dslaunch::runtime::model::tensor_parallel
