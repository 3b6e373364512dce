// How a model is cut into the stages of a pipeline; plain data. Every rank computes the same plan from the model's file
// and the config.
//
// A layer is a call of a unit, or of a smaller module with parameters of its own outside the units; a cut lies between
// two layers. Values that the code between two layers computes from the model's inputs, from sizes and from unwritten
// buffers are computed again on every stage that reads them; all others that a later stage reads are carried.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch::runtime::model {

struct PlannedLayer {
  std::string path;        // of its module
  std::string class_name;  // "Block"
  bool is_block = false;   // one of several of its class (unit_discovery.hpp)
  // Of the layer and the code around it up to the next possible cut; a tied parameter counts in each of its layers.
  int64_t num_parameters = 0;
  int64_t num_trainable = 0;
  std::optional<int64_t> flops;  // of the measured forward; empty: not known
  double cost = 0;               // what the partition method balances
};

// A value that crosses a cut.
struct CarriedInfo {
  std::string origin;            // "output of 'blocks.3'"
  bool is_number = false;        // of the host; else a tensor
  bool depends_on_data = false;  // of a number: not a function of shapes only, so it may differ between micro batches
  std::optional<int64_t> bytes;  // of a tensor, in the measured forward; empty: not known
};

struct PlannedStage {
  size_t first_layer = 0, num_layers = 0;
  // From the stage before, in the order of CarriedValues: tensors, then numbers. Values that a later stage reads are
  // passed on by the stages between.
  std::vector<CarriedInfo> carried_in;
  std::vector<size_t> inputs;           // arguments of forward (without self) that the stage reads
  std::vector<std::string> parameters;  // that it holds, in the order of the whole model
  // Buffers, and frozen parameters that forward writes to. One that forward does not write may be held by several
  // stages, with the same values.
  std::vector<std::string> buffers;
  int64_t num_parameters = 0, num_trainable = 0;
  std::optional<int64_t> flops;
  double cost = 0;
};

// A parameter that several stages hold: its gradient is the sum over these stages, and it counts once in a norm.
struct TiedParameter {
  std::string name;
  std::vector<int> stages;  // ascending
  bool trainable = true;
};

struct StagePlan {
  std::string partition;  // "time", "uniform", "parameters", "type:REGEX", "layers"
  std::vector<PlannedLayer> layers;
  std::vector<PlannedStage> stages;
  std::vector<TiedParameter> tied;
  std::vector<std::string> notes;  // for the user, one line each
  bool is_measured = false;        // by the times of the layers, which differ from run to run

  // Of the largest stage over the mean, by cost; 1 is balanced.
  double imbalance() const;
};

// An array of a micro batch.
struct ExampleInput {
  std::vector<int64_t> sizes;
  at::ScalarType dtype = at::kLong;
};

// What one forward of the whole model on the run's device has shown (torchscript/load_script_model.hpp). It is measured
// on one rank; for one plan on all ranks the others get its numbers.
struct LayerMeasurement {
  std::vector<int64_t> nanoseconds;    // by layer
  std::vector<int64_t> flops;          // by layer
  std::vector<int64_t> carried_bytes;  // of the values that a cut may carry, in an order that follows from the file
};
// As a message. decode_measurement() throws InternalError for a message that encode() did not make.
std::vector<int64_t> encode(const LayerMeasurement& measurement);
LayerMeasurement decode_measurement(const std::vector<int64_t>& message);

// What to cut.
struct StageOptions {
  int num_stages = 1;
  int stage = 0;  // the one to load
  // "best" (the same as "time"), "time", "uniform", "parameters", "type:REGEX" (a class name, searched without regard
  // to case).
  std::string partition = "best";
  // For "time": by layer (StagePlan::layers), in any unit. Empty: the measured times; without those, parameters.
  std::vector<double> layer_costs;
  // The first layer of every stage after the first, instead of `partition`.
  std::vector<size_t> first_layers;
  // Without it bytes and FLOPs are not known, and a cut is where the fewest tensors are carried.
  std::optional<LayerMeasurement> measurement = {};
  std::string unmeasured = {};  // why there is none, if that is known
  // Operators with weights can leave their weight gradients for later (runtime/state/deferred_gradients.hpp); does not
  // change the plan.
  bool defers_weight_gradients = false;
};

// The report for the user, one line for each stage and each tied parameter.
std::vector<std::string> describe_stages(const StagePlan& plan);

}  // namespace dslaunch::runtime::model
