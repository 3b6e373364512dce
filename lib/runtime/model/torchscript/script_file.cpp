#include "runtime/model/torchscript/script_file.hpp"

#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"

namespace dslaunch::runtime::model::torchscript {

ScriptFile::ScriptFile(std::string path, bool loads_again)
    : state_(std::make_shared<State>(State{std::move(path), loads_again})) {}

torch::jit::Module ScriptFile::module() const {
  if (state_->graphs) {
    state_->graphs->restore();
    return *state_->module;
  }
  auto module = file::load_mapped_module(path());
  if (!module.find_method("forward")) {
    throw UserError(ExitCode::kBadInput, fmt::format("model '{}' has no method 'forward'", path()));
  }
  if (state_->loads_again) {
    state_->module = module;
    state_->graphs.emplace(module);
  }
  return module;
}

}  // namespace dslaunch::runtime::model::torchscript
