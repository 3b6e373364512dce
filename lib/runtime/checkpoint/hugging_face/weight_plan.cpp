#include "runtime/checkpoint/hugging_face/weight_plan.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/join_some.hpp"

namespace dslaunch::runtime::hugging_face {
namespace {

constexpr size_t kMaxNamesShown = 4;
// What PEFT puts before the names of the model that has the adapter.
constexpr std::string_view kAdapterPrefix = "base_model.model.";

[[noreturn]] void refuse(const CheckpointReader& checkpoint, const std::string& what) {
  throw UserError(ExitCode::kBadInput, fmt::format("the checkpoint '{}' {}", checkpoint.path(), what));
}

std::string shortened(const std::vector<std::string>& names) {
  return join_some(names, kMaxNamesShown, ", ", [](const std::string& name) { return "'" + name + "'"; });
}

// The checkpoint's tensors by each of their names.
class Tensors {
 public:
  explicit Tensors(const CheckpointReader& checkpoint) : checkpoint_(checkpoint) {
    for (const auto& tensor : checkpoint.metadata().parameters) {
      for (const auto& name : tensor.all_names()) by_name_[name] = &tensor;
    }
  }
  const SavedTensor& at(const std::string& name) const {
    const auto found = by_name_.find(name);
    if (found != by_name_.end()) return *found->second;
    refuse(checkpoint_,
           fmt::format("has no tensor '{}', which its model.pt records as one of Hugging Face's model", name));
  }

 private:
  const CheckpointReader& checkpoint_;
  std::map<std::string, const SavedTensor*> by_name_;
};

std::vector<OutputTensor> outputs_of(const SavedTensor& source, const std::vector<HuggingFacePiece>& pieces,
                                     const CheckpointReader& checkpoint) {
  std::vector<OutputTensor> out;
  for (const auto& piece : pieces) {
    if (!piece.is_whole && piece.end() > source.numel()) {
      refuse(checkpoint,
             fmt::format("has '{}' with shape [{}], which is too small for '{}', a part of it in Hugging Face's "
                         "files",
                         source.name, fmt::join(source.shape, ", "), piece.name));
    }
    out.push_back({piece.name, piece.is_whole ? source.shape : piece.shape, &source, piece, {}});
  }
  return out;
}

MergedPair merged_pair(const std::string& weight, const SavedTensor& base, const LoraMerge& merge,
                       const Tensors& tensors, const CheckpointReader& checkpoint) {
  MergedPair out{&tensors.at(merge.a), &tensors.at(merge.b), merge.scaling, merge.transposed};
  const bool are_matrices = base.shape.size() == 2 && out.a->shape.size() == 2 && out.b->shape.size() == 2;
  if (are_matrices && out.a->shape[0] == out.b->shape[1] && base.shape[merge.transposed ? 1 : 0] == out.b->shape[0] &&
      base.shape[merge.transposed ? 0 : 1] == out.a->shape[1]) {
    return out;
  }
  refuse(checkpoint, fmt::format("has adapter matrices for '{}' whose shapes do not fit it", weight));
}

// Parameters that no name of Hugging Face stands for would be lost.
void require_all_parameters(const HuggingFaceFacts& facts, const CheckpointReader& checkpoint) {
  std::vector<std::string> lost;
  for (const auto& tensor : checkpoint.metadata().parameters) {
    if (tensor.is_buffer) continue;  // only persistent buffers have names in the state_dict
    const auto names = tensor.all_names();
    const bool is_known = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return facts.parameters.count(name) > 0 || (facts.adapter && facts.adapter->parameters.count(name) > 0);
    });
    if (!is_known) lost.push_back(tensor.name);
  }
  if (lost.empty()) return;
  refuse(checkpoint,
         fmt::format("has parameters that its model.pt does not record as Hugging Face's: {}", shortened(lost)));
}

void require_mergeable(const HuggingFaceFacts& facts) {
  const auto& adapter = *facts.adapter;
  if (!adapter.merges.empty() && adapter.not_mergeable.empty()) return;
  const std::string what = adapter.not_mergeable.empty()
                               ? "it is not LoRA"
                               : fmt::format("{} {} not plain LoRA of a linear layer", shortened(adapter.not_mergeable),
                                             adapter.not_mergeable.size() == 1 ? "is" : "are");
  throw UserError(ExitCode::kBadInput,
                  fmt::format("--merge_lora cannot merge this adapter: {}; without --merge_lora the "
                              "adapter's own files are written, which peft can merge",
                              what));
}

// Copies that the adapter trains in place of the model's own tensors (PEFT's modules_to_save, biases), by name in the
// state_dict.
std::map<std::string, std::string> replaced_tensors(const HuggingFaceFacts& facts) {
  std::set<std::string> of_merges;
  for (const auto& [weight, merge] : facts.adapter->merges) of_merges.insert({merge.a, merge.b});
  std::set<std::string> state_names;
  for (const auto& [name, state_name] : facts.parameters) state_names.insert(state_name);
  std::map<std::string, std::string> out;
  std::vector<std::string> unknown;
  for (const auto& [name, file_name] : facts.adapter->parameters) {
    if (of_merges.count(name)) continue;
    const bool has_prefix = file_name.starts_with(kAdapterPrefix);
    const std::string state_name = has_prefix ? file_name.substr(kAdapterPrefix.size()) : file_name;
    if (state_names.count(state_name)) {
      out[state_name] = name;
    } else {
      unknown.push_back(file_name);
    }
  }
  if (unknown.empty()) return out;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("--merge_lora cannot merge {}, which is not in the model without its "
                              "adapter; without --merge_lora the adapter's own files are written",
                              shortened(unknown)));
}

}  // namespace

std::vector<OutputTensor> plan_model(const HuggingFaceFacts& facts, const CheckpointReader& checkpoint, bool merge) {
  if (!facts.unmapped.empty()) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} cannot be written as Hugging Face's files: they have {} in another form than the "
                                "model does; write OUT.safetensors instead",
                                facts.model_class, shortened(facts.unmapped)));
  }
  require_all_parameters(facts, checkpoint);
  std::map<std::string, std::string> replaced;
  if (merge) {
    require_mergeable(facts);
    replaced = replaced_tensors(facts);
  }
  const Tensors tensors(checkpoint);
  std::vector<OutputTensor> out;
  for (const auto& [name, state_name] : facts.parameters) {
    const auto replacement = replaced.find(state_name);
    const SavedTensor& source = tensors.at(replacement == replaced.end() ? name : replacement->second);
    auto outputs = outputs_of(source, facts.pieces_of(state_name), checkpoint);
    if (merge && facts.adapter->merges.count(state_name)) {
      const auto pair = merged_pair(state_name, source, facts.adapter->merges.at(state_name), tensors, checkpoint);
      for (auto& output : outputs) output.merged = pair;
    }
    out.insert(out.end(), outputs.begin(), outputs.end());
  }
  return out;
}

std::vector<OutputTensor> plan_adapter(const HuggingFaceFacts& facts, const CheckpointReader& checkpoint) {
  const Tensors tensors(checkpoint);
  std::vector<OutputTensor> out;
  for (const auto& [name, file_name] : facts.adapter->parameters) {
    HuggingFacePiece whole;
    whole.name = file_name;
    out.push_back(outputs_of(tensors.at(name), {whole}, checkpoint).front());
  }
  return out;
}

}  // namespace dslaunch::runtime::hugging_face
