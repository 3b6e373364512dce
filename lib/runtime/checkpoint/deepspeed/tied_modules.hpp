// Which layers of a pipeline are one tied module. DeepSpeed does not save that: a stage lists the parameters of such a
// module as tied_modules.KEY.NAME, and each layer that it is has its weights in its own file (none, if the layer calls
// the module through a function). One thread.
#pragma once
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/deepspeed/model_states.hpp"

namespace dslaunch::runtime::deepspeed {

// The tensors of a layer's file, by their names inside the layer.
using LayerTensors = std::map<std::string, StoredTensor>;

// "12.norm.weight" -> {12, "norm.weight"}; {-1, ""} for a name that does not begin with a number.
std::pair<int, std::string> split_layer_name(const std::string& name);

class TiedModules {
 public:
  // `stages`: as they were read. Throws UserError(65) when several modules have the same shapes and the weights do not
  // show which layers are which.
  TiedModules(const std::map<int, LayerTensors>& layers, const std::vector<const ModelStates*>& stages);

  struct Place {
    std::string name;         // LAYER.NAME
    bool is_replica = false;  // its values are those of a layer of an earlier stage
  };
  // Where in the whole model the parameter lies that a stage lists under this name.
  Place place(size_t stage, const std::string& name) const;
  // All layers with this buffer.
  std::vector<std::string> buffer_names(const std::string& name) const;
  // The name that the tensor of a layer has in the module's first layer; "" if it is not tied, or is that itself.
  std::string kept_name(int layer, const std::string& name) const;

 private:
  struct Module {
    std::vector<size_t> stages;
    std::map<std::string, std::vector<int64_t>> shapes;  // of trained parameters, by their names inside the module
    std::set<std::string> buffers;
    std::vector<int> layers;
  };
  using Modules = std::vector<std::pair<std::string, Module>>;  // by key, in the order of their first layers

  void collect(size_t stage, const ModelStates& model);
  void find_layers();
  std::vector<std::vector<int>> groups_like(const Module& module, const std::set<int>& free) const;
  bool fits(const Module& module, int layer) const;
  bool are_equal(int first, int second, const std::string& name) const;
  bool lies_in(int layer, size_t stage) const;
  const Module* find(const std::string& name, std::string& inside) const;
  Module& module_of(const std::string& key);

  const std::map<int, LayerTensors>& layers_;
  Modules modules_;
  std::vector<std::set<int>> listed_;  // by stage: the layers that it names
};

}  // namespace dslaunch::runtime::deepspeed
