#include "runtime/engine/step/tied_parameters.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.hpp"
#include "runtime/sharding/flat_collectives.hpp"

namespace dslaunch::runtime::engine::step {

TiedParameters::TiedParameters(const model::ModelFacts& model, comm::Communicator& pipe) : pipe_(&pipe) {
  const auto& parameters = model.table.parameters;
  for (const auto& tied : model.stage->plan.tied) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const ParameterInfo& info) { return info.name == tied.name; });
    if (found == parameters.end()) continue;
    tied_.push_back({static_cast<int>(found - parameters.begin()), found->trainable, tied.stages});
  }
}

const TiedParameters::Tied* TiedParameters::find(int parameter) const {
  const auto found =
      std::find_if(tied_.begin(), tied_.end(), [&](const Tied& tied) { return tied.parameter == parameter; });
  return found == tied_.end() ? nullptr : &*found;
}

std::vector<int> TiedParameters::trained() const {
  std::vector<int> out;
  for (const auto& tied : tied_) {
    if (tied.is_trained) out.push_back(tied.parameter);
  }
  return out;
}

// From the last stage to the first, as a backward of the whole model adds them up.
void TiedParameters::sum(int parameter, const at::Tensor& gradient) const {
  const Tied* tied = find(parameter);
  DSL_CHECK(tied != nullptr, "only tied parameters are summed over stages");
  std::vector<comm::Outgoing> sends;
  std::vector<comm::Incoming> receives;
  std::vector<at::Tensor> parts;  // by stage
  for (int stage : tied->stages) {
    if (stage == pipe_->rank()) {
      parts.push_back(gradient.clone());
      continue;
    }
    parts.push_back(at::empty_like(gradient));
    sends.push_back({buffer_of(gradient), stage});
    receives.push_back({buffer_of(parts.back()), stage});
  }
  pipe_->exchange(sends, receives);
  gradient.copy_(parts.back());
  for (size_t i = parts.size() - 1; i-- > 0;) gradient.add_(parts[i]);
}

bool TiedParameters::is_counted_elsewhere(int parameter) const {
  const Tied* tied = find(parameter);
  return tied != nullptr && tied->stages.front() != pipe_->rank();
}

}  // namespace dslaunch::runtime::engine::step
