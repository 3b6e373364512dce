// A model's file, parsed once for all loads from it. On the thread that loads the model; threads that load the same
// file have a ScriptFile each.
#pragma once
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>

#include "runtime/model/graph/saved_graphs.hpp"

namespace dslaunch::runtime::model::torchscript {

// A handle; copies share the parsed file.
class ScriptFile {
 public:
  // `loads_again`: several models will be loaded from it, each when the one before is gone. Else a path will do.
  ScriptFile(std::string path, bool loads_again = false);

  const std::string& path() const { return state_->path; }
  // The module as the file has it. Parses the file at the first call. Throws UserError: 66 when it cannot be read, 65
  // when it is not a model that can be run.
  torch::jit::Module module() const;

 private:
  struct State {
    const std::string path;
    const bool loads_again;
    std::optional<torch::jit::Module> module = {};
    std::optional<graph::SavedGraphs> graphs = {};  // as the file has them
  };

  std::shared_ptr<State> state_;
};

}  // namespace dslaunch::runtime::model::torchscript
