// Collects the results of the stage readers in the terms of our checkpoints, and checks at the end that every trainable
// parameter is complete. One thread.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/deepspeed/deepspeed_checkpoint.hpp"
#include "runtime/checkpoint/deepspeed/model_states.hpp"

namespace dslaunch::runtime::deepspeed {

class StateBuilder {
 public:
  StateBuilder(ImportedState& out, const ModelStates& model);

  // --- parameters; in the order in which they are added ---
  // Adds whole buffers, frozen parameters and aliases of the state dict; `is_trained` identifies the trained
  // parameters. `has_values`: tensors of the state dict hold their elements (not in stage 3). Trained ones get no
  // master here.
  void add_module(const std::function<bool(const std::string&)>& is_trained, bool has_values);
  void add_trainable(const NamedShape& parameter);
  void add_frozen(const NamedShape& parameter);

  // --- states ---
  // `values` are the elements starting at `begin`; a piece without elements is left out.
  void add_piece(int rank, const std::string& name, const std::string& state, int64_t begin, const at::Tensor& values);
  // `values` are the master of a tied parameter in another pipeline stage, and not imported: they should be the same.
  void compare_replica(const std::string& name, int64_t begin, const at::Tensor& values);
  // Adds a note if masters, rounded, differ from the state dict: their order would not be the assumed one.
  void compare_masters_with_module();
  // Takes masters from the (16-bit) weights of the state dict, for parameters that have none.
  void masters_from_module();
  // Throws UserError(65) naming the first trainable parameter whose state is incomplete. States that a parameter does
  // not have at all become zeros, with a note.
  void finish();

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  bool is_rounded_value(const std::string& name, int64_t begin, const at::Tensor& master) const;
  const SavedTensor* find(const std::string& name) const;
  SavedTensor& add(const std::string& name, std::vector<int64_t> shape);
  void fill_missing_states();

  ImportedState& out_;
  const ModelStates& model_;
  std::map<std::string, StoredTensor> values_;                           // of the state dict, by name
  std::map<std::string, size_t> index_;                                  // into the parameters
  std::map<std::pair<std::string, std::string>, int64_t> num_elements_;  // (name, state) -> so far
  std::set<std::string> different_replicas_;
};

// Our name for an optimizer's state.
std::string state_name(const std::string& theirs);

// --- one function per layout (checkpoint_layout: what each stage writes) ---
// `optimizers`: one, or those of a pipeline's stages; null where there is none.
struct OptimizerPart {
  const TorchFile* file = nullptr;
  const pickle::Value* state = nullptr;
};
void read_unsharded(const std::vector<OptimizerPart>& optimizers, const ModelStates& model, const ReadOptions& options,
                    StateBuilder& builder, ImportedState& out);
// `first_shard`: that of the first file; a pipeline stage has one for each data rank.
void read_partitioned(const ModelStates& model, const std::vector<TorchFile>& optim_files, size_t first_shard,
                      StateBuilder& builder, ImportedState& out);
void read_stage3(const std::vector<TorchFile>& model_files, const ModelStates& model,
                 const std::vector<TorchFile>& optim_files, StateBuilder& builder, ImportedState& out);

}  // namespace dslaunch::runtime::deepspeed
