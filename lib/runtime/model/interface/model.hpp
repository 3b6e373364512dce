// A model as the runtime sees it: what is known about it, the values in its file, the tensors that it holds, and what
// runs.
#pragma once
#include <memory>
#include <vector>

#include "runtime/model/interface/initial_values.hpp"
#include "runtime/model/interface/model_facts.hpp"
#include "runtime/model/interface/model_tensors.hpp"
#include "runtime/model/interface/runnable_model.hpp"

namespace dslaunch::runtime::model {

struct Model {
  ModelFacts facts;
  InitialValues initial;
  ModelTensors tensors;
  std::unique_ptr<RunnableModel> runnable;

  // Moves buffers, constants and frozen parameters to the device and converts buffers and parameters to the dtypes
  // wanted. Sharded frozen parameters (by parameter) do not move: units get them when they run. Adds to facts.notes.
  void to_device(at::Device device, const DtypeOf& dtype_of, const std::vector<bool>& is_sharded);
};

}  // namespace dslaunch::runtime::model
