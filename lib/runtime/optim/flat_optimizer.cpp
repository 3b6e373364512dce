#include "runtime/optim/flat_optimizer.hpp"

#include "base/error.hpp"
#include "runtime/optim/algorithms.hpp"

namespace dslaunch::runtime::optim {

std::unique_ptr<FlatOptimizer> make_flat_optimizer(const OptimizerGroups& groups, FlatLayout layout) {
  DSL_CHECK(!groups.groups.empty(), "an optimizer has at least one group");
  switch (groups.groups.front().settings.type) {
    case config::OptimizerType::kLamb:
      return make_lamb(groups, layout);
    case config::OptimizerType::kAdafactor:
      DSL_CHECK(layout.tensor_ranks == nullptr, "Adafactor has whole matrices: the config has no tensor ranks");
      return make_adafactor(groups, layout);
    case config::OptimizerType::kAdamW8bit:
      DSL_CHECK(layout.tensor_ranks == nullptr, "AdamW8bit has whole blocks: the config has no tensor ranks");
      return make_adam_8bit(groups, layout);
    case config::OptimizerType::kOneBitAdam:
      return make_one_bit_adam(groups, layout);
    case config::OptimizerType::kOneBitLamb:
      return make_one_bit_lamb(groups, layout);
    case config::OptimizerType::kZeroOneAdam:
      return make_zero_one_adam(groups, layout);
    case config::OptimizerType::kMuon:
      DSL_CHECK(layout.tensor_ranks == nullptr, "Muon has whole matrices: the config has no tensor ranks");
      return make_muon(groups, layout);
    default:
      return make_elementwise(groups.groups, layout);
  }
}

}  // namespace dslaunch::runtime::optim
