// What an exporter has recorded in a model file besides code and values: the record extra/dslaunch.json
// (docs/huggingface.md). Any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::runtime {

// The record's name, as torch.jit.save's _extra_files take it.
inline constexpr const char* kModelMetadataName = "dslaunch.json";

// The labels that the loss of a causal language model expects.
enum class LabelConvention : uint8_t {
  kNotRecorded,  // or not a causal language model
  kNext,         // labels[i] is the token after input_ids[i]
  kSame,         // labels are the input_ids; forward shifts them
};

// An argument of forward as the exporter called it; one sample of it.
struct RecordedInput {
  std::string name, dtype;  // "int64", as torch writes it
  std::vector<int64_t> shape;
};

struct ModelMetadata {
  std::string text;  // the whole record; empty: the file has none
  LabelConvention labels = LabelConvention::kNotRecorded;
  bool averages_over_labels = false;          // micro batches count by their labels ("loss_average": "tokens")
  bool recomputes = false;                    // the Python code calls torch.utils.checkpoint
  std::vector<std::string> recomputed_units;  // what it recomputes, by class; empty: the repeated blocks
  std::vector<RecordedInput> inputs;          // empty: not recorded
};

// Empty for a file that cannot be read or is not a zip archive: whoever reads the model itself reports it. Throws
// UserError(65) for a record that is damaged or that a later exporter wrote.
ModelMetadata read_model_metadata(const std::string& path);

}  // namespace dslaunch::runtime
