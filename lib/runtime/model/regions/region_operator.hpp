// The operator dslaunch::fused_region, which runs a carved subgraph: by a program for each description of its inputs
// that it has seen, and as it was written where that does not work.
#pragma once
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

namespace dslaunch::runtime::model::regions {

inline constexpr char kFusedRegion[] = "dslaunch::fused_region";

// A node that is not yet in its place. It has an output for each of the subgraph's.
torch::jit::Node* create_fused_region(torch::jit::Graph& graph, at::ArrayRef<torch::jit::Value*> inputs,
                                      std::shared_ptr<torch::jit::Graph> subgraph);

// What groups of operators became when they first ran for inputs of certain sizes: collected from all models while this
// object exists, at most one at a time. Any thread.
class ProgramLog {
 public:
  struct Entry {
    size_t num_operators = 0;  // of the group
    size_t num_regions = 0;    // 0: the operators run one by one
    std::string why_none;
  };
  ProgramLog();
  ~ProgramLog();
  ProgramLog(const ProgramLog&) = delete;
  ProgramLog& operator=(const ProgramLog&) = delete;

  std::vector<Entry> take();
};

}  // namespace dslaunch::runtime::model::regions
