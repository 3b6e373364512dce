// From a TorchScript file to a model that runs: load, rewrite the graphs, analyze them, bind parameters and units.
// Several threads may load models at once.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "runtime/model/graph_pass_options.hpp"
#include "runtime/model/model.hpp"

namespace dslaunch::runtime::model::script {

// `unit_names`: class names or module paths; empty: repeated blocks and large leaf modules. Throws UserError: 66 when
// the file cannot be read, 65 when it is not a model that can be run or trained.
std::unique_ptr<Model> load_script_model(const std::string& path, const std::vector<std::string>& unit_names,
                                         const GraphPassOptions& passes = {});

// Writes the model's code and buffers with all parameters emptied (skeleton_file.hpp).
void write_model_skeleton(const std::string& model_path, const std::string& out_path);

}  // namespace dslaunch::runtime::model::script
