#include "runtime/optim/flat_optimizer.hpp"

#include "base/error.hpp"
#include "base/format.hpp"
#include "comm/communicator.hpp"
#include "runtime/optim/algorithms.hpp"

namespace dslaunch::runtime::optim {
namespace {

[[noreturn]] void refuse_muon(int tensor_ranks) {
  throw UserError(ExitCode::kBadInput,
                  fmt::format("'optimizer.type' Muon: not with {} tensor parallel ranks: it orthogonalizes whole "
                              "matrices, of which each of these ranks holds a part; choose another optimizer, or one "
                              "tensor parallel rank",
                              tensor_ranks));
}

}  // namespace

std::unique_ptr<FlatOptimizer> make_flat_optimizer(const OptimizerGroups& groups, FlatLayout layout) {
  DSL_CHECK(!groups.groups.empty(), "an optimizer has at least one group");
  switch (groups.groups.front().settings.type) {
    case config::OptimizerType::kLamb:
      return make_lamb(groups, layout);
    case config::OptimizerType::kMuon:
      if (layout.tensor_ranks != nullptr) refuse_muon(layout.tensor_ranks->size());
      return make_muon(groups, layout);
    default:
      return make_elementwise(groups.groups, layout);
  }
}

}  // namespace dslaunch::runtime::optim
