#include "runtime/model/torchscript/file/skeleton_file.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/export.h>

#include "runtime/model/torchscript/file/parameter_slots.hpp"
#include "runtime/state/output_file.hpp"

namespace dslaunch::runtime::model::file {
namespace {

torch::jit::ExtraFilesMap extra_files_of(const ModelMetadata& metadata) {
  if (metadata.text.empty()) return {};
  return {{kModelMetadataName, metadata.text}};
}

}  // namespace

void write_skeleton_file(const torch::jit::Module& module, const ModelMetadata& metadata, const std::string& path) {
  for (const auto& held : find_parameters(module)) {
    const auto emptied = at::zeros({}, held.value.options().requires_grad(false))
                             .expand(held.value.sizes())
                             .set_requires_grad(held.value.requires_grad());
    for (const auto& location : held.locations) location.set(emptied);  // tied parameters stay tied
  }
  // Writes to memory first: LibTorch's own writer terminates the process when the disk is full (its destructor throws).
  std::string archive;
  torch::jit::ExportModule(
      module,
      [&](const void* data, size_t size) {
        archive.append(static_cast<const char*>(data), size);
        return size;
      },
      extra_files_of(metadata));
  OutputFile file(path);
  file.write(archive);
  file.finish(/*sync=*/false);
}

}  // namespace dslaunch::runtime::model::file
