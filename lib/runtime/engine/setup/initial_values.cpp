#include "runtime/engine/setup/initial_values.hpp"

#include <ATen/ATen.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/model/torchscript/file/model_file.hpp"
#include "runtime/state/element_init.hpp"
#include "runtime/state/local_slice_layout.hpp"

namespace dslaunch::runtime::engine::setup {
namespace {

void require_init(const std::optional<config::Init>& init, const std::string& path) {
  if (init) return;
  throw UserError(ExitCode::kBadInput,
                  fmt::format("model '{}' was exported empty (parameters without values). Set \"init\": "
                              "{{\"seed\": 0, \"std\": 0.02}} in the config to fill it, or \"init\": {{\"from\": DIR}} "
                              "with a directory of Hugging Face's weights",
                              path));
}

// Reads elements of the whole parameter.
LocalSliceLayout::ReadWhole read_whole(const model::Model& model, int parameter,
                                       const std::optional<config::Init>& init, const std::string& path) {
  const auto& info = model.facts.table.parameters[static_cast<size_t>(parameter)];
  if (const auto& source = model.initial.source()) {
    return [&source, parameter](int64_t first, const at::Tensor& out) { source(parameter, first, out); };
  }
  if (model.initial.is_empty(parameter)) {
    require_init(init, path);
    return [&info, seed = init->seed, std = init->std](int64_t first, at::Tensor out) {
      init_elements(info.name, info.shape.size(), seed, std, first, out);
    };
  }
  return [flat = model.initial.value(parameter).reshape({-1})](int64_t first, const at::Tensor& out) {
    out.copy_(flat.narrow(0, first, out.numel()));
  };
}

}  // namespace

void require_trainable(const model::ModelFacts& model, const std::string& path) {
  model::file::refuse_inference_file(path);
  if (model.table.num_trainable() > 0) return;
  const bool none = model.table.parameters.empty();
  throw UserError(
      ExitCode::kBadInput,
      fmt::format(
          "model '{}' has no trainable parameters: {}. Training needs the original module, with requires_grad set",
          path,
          none ? "it has no parameters at all, as a module frozen by torch.jit.freeze or optimize_for_inference"
               : "all parameters are frozen"));
}

FlatParameters::ReadElements initial_values(const model::Model& model, std::optional<config::Init> init,
                                            const std::string& path) {
  return [&model, init, path](int parameter, int64_t begin, const at::Tensor& out) {
    const auto& info = model.facts.table.parameters[parameter];
    LocalSliceLayout(info).read(begin, out, read_whole(model, parameter, init, path));
  };
}

std::string note_on_init(const model::Model& model, const std::optional<config::Init>& init, const std::string& path) {
  if (!init) return {};
  for (size_t i = 0; i < model.facts.table.parameters.size(); ++i) {
    if (model.initial.is_empty(static_cast<int>(i))) return {};
  }
  return fmt::format(
      "\"init\" has no effect: the parameters of '{}' have values; \"init\" fills models that were exported empty",
      path);
}

}  // namespace dslaunch::runtime::engine::setup
