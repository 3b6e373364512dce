// The part of a DeepSpeed checkpoint that describes the model and the run: …model_states.pt, read once. Of a pipeline
// each stage has one, and the weights lie in other files (pipeline_states.hpp). One thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/pickle/torch_file.hpp"

namespace dslaunch::runtime::deepspeed {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  bool is_replica = false;  // tied: an earlier pipeline stage holds it too, and its state counts
};

// A tensor of a state dict, and the file that it lies in.
struct StoredTensor {
  const TorchFile* file = nullptr;
  const pickle::Value* value = nullptr;

  TorchFile::Place place(const std::string& name) const { return file->place(*value, name); }
  at::Tensor read(const std::string& name) const { return file->tensor(*value, name); }
};

struct ModelStates {
  // Entries of the state dict in order; in stage 3 parameters have no elements here. None in a file of a pipeline
  // stage.
  std::vector<std::pair<std::string, StoredTensor>> module;
  std::set<std::string> buffers;
  // By group (for stage 3 by sub-group), in the order in which they lie in flat memory; not known without ZeRO.
  bool lists_trainable = false;
  std::vector<std::vector<NamedShape>> trainable_groups;
  std::vector<NamedShape> frozen;                           // only if DeepSpeed lists them
  std::vector<std::pair<std::string, std::string>> shared;  // alias, the name under which it is stored
  std::map<std::string, const pickle::Value*> frozen_fragments;
  const pickle::Value* optimizer = nullptr;  // without ZeRO; null when there is none
  int64_t global_steps = 0, skipped_steps = 0, global_samples = 0;
  int64_t model_parallel_size = 0;              // pipeline stages × tensor-parallel ranks; 0: not known
  int64_t data_parallel_size = 0;               // 0: not known
  std::optional<int64_t> last_batch_iteration;  // of a schedule of DeepSpeed
  std::string version, config;                  // config: ds_config as JSON
  std::vector<std::string> client_keys;         // added by the user's code

  std::vector<NamedShape> all_trainable() const;
};

// `file` owns the data that the result points to, and must stay where it is. Throws UserError(65) naming the key that
// is missing or malformed.
ModelStates read_model_states(const TorchFile& file);
// The same for the file of a pipeline stage.
ModelStates read_stage_model_states(const TorchFile& file);

// The tensors of a state dict in order; other entries are left out.
std::vector<std::pair<std::string, StoredTensor>> tensors_of(const TorchFile& file, const pickle::Value& state_dict);

// Throws UserError(65): "'PATH' WHAT".
[[noreturn]] void refuse_file(const TorchFile& file, const std::string& what);

// A dict's value under an integer key; null when absent.
const pickle::Value* find_index(const pickle::Value& dict, int64_t index);

}  // namespace dslaunch::runtime::deepspeed
