// What is known about a model before it runs; plain data.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "runtime/model/interface/placement_report.hpp"
#include "runtime/model/interface/stage_plan.hpp"
#include "runtime/state/index_range.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/module_info.hpp"
#include "runtime/state/parameter_table.hpp"

namespace dslaunch::runtime::model {

// A part of an integer input that must stay below a bound: ids of an embedding, class labels.
struct IndexLimit {
  size_t input = 0;                // index among forward's arguments (without self)
  int64_t bound = 0;               // 0 <= id < bound
  std::optional<int64_t> ignored;  // for labels: the loss's ignore_index, which is allowed as well
  IndexRange range;                // the part of the input
};

// An argument of forward whose integers choose: rows of a table, elements, or, as labels, classes.
struct IndexArgument {
  size_t input = 0;  // index among forward's arguments
  bool is_label = false;
};

// An argument whose length along a dim (0: the samples) is the number of positions of which the model has a table.
struct LengthLimit {
  size_t input = 0;
  int64_t dim = 0, bound = 0;
};

// The arguments of forward, without self.
struct InputSignature {
  std::vector<std::string> names;
  size_t num_required = 0;                   // those without a default value
  std::vector<RecordedInput> recorded = {};  // of the file's metadata
};

// Of a model that is one stage of a pipeline.
struct StageFacts {
  StagePlan plan;
  int stage = 0;
  ParameterTable whole;  // the parameters of all stages, without units
};

// Of a model whose forward was cut to what predicts tokens.
struct TokenFacts {
  // forward(the encoder's ids, the decoder's ids), else forward(ids); both [batch, positions] -> logits [batch,
  // positions, classes].
  bool has_encoder = false;
};

struct ModelFacts {
  ParameterTable table;  // of a stage: of the parameters that it holds, under the whole model's names
  InputSignature inputs;
  std::vector<IndexLimit> index_limits;
  std::vector<IndexArgument> index_arguments;
  std::vector<LengthLimit> length_limits;
  // Number of classes of forward's outputs, for a loss outside the model, by index in a tuple, field of a NamedTuple or
  // key of a dict; "": forward returns one tensor. Those that the graph shows: the last dim, if a linear layer makes
  // it.
  std::map<std::string, int64_t> num_classes;
  LabelConvention labels = LabelConvention::kNotRecorded;  // of the file's metadata, else as far as the graph shows it
  bool averages_over_labels = false;                       // of the file's metadata
  std::vector<ModuleInfo> modules;                         // the tree of modules, for reports; empty: not known
  // Whether a run of the model may be captured and replayed, as far as is known before it runs (capture_obstacles.hpp).
  Result<> capturable;
  std::optional<StageFacts> stage;  // empty: the whole model
  std::string fp8 = {};             // which layers of the whole model compute in fp8, for the user; empty: none
  std::optional<PlacementReport> placements = {};  // of the whole model; empty: one tensor rank
  // Error: why forward could not be cut, as a sentence; it is then as in the file. Empty: it was not asked for.
  std::optional<Result<TokenFacts>> tokens;
  std::vector<std::string> notes;  // about the file, for the user, one line each

  // The parameters of all stages; of a stage without units.
  const ParameterTable& whole_table() const { return stage ? stage->whole : table; }
};

}  // namespace dslaunch::runtime::model
