// Whether a checkpoint belongs to a model: compares names and shapes. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/checkpoint_metadata.hpp"

namespace dslaunch::runtime {

struct NameMatch {
  struct Shapes {
    std::string name;
    std::vector<int64_t> saved, model;
  };
  // Modules that a list repeats, as blocks.0, blocks.1, ..., if both sides have them and not as many.
  struct Repeats {
    std::string list;  // "blocks"
    size_t saved, model;
  };
  std::vector<std::string> only_model;                    // parameters and buffers that the checkpoint lacks
  std::vector<std::string> only_saved;                    // those that the model lacks
  std::vector<std::pair<std::string, std::string>> near;  // of the two lists: likely the same tensor (model's, saved)
  std::vector<Shapes> shapes;                             // in both, with different shapes
  std::vector<Repeats> repeats;

  bool fits() const { return only_model.empty() && only_saved.empty() && shapes.empty(); }
};

NameMatch match_names(const std::vector<SavedTensor>& model, const std::vector<SavedTensor>& saved);

// What differs (the number of blocks, the width), and the first five names of each list; `path` is the checkpoint's.
std::string describe_misfit(const NameMatch& match, const std::string& path);
// "'a', 'b' and 17 more"
std::string list_names(const std::vector<std::string>& names);

}  // namespace dslaunch::runtime
