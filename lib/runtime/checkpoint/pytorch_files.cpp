#include "runtime/checkpoint/pytorch_files.hpp"

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <functional>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/sparse_archive_writer.hpp"
#include "runtime/state/archive_nesting.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/parameter_location.hpp"

namespace dslaunch::runtime {
namespace {

using Tensors = std::vector<const SavedTensor*>;

void fill(SparseArchiveWriter& archive, WeightStream& weights, const Tensors& tensors) {
  archive.rethrow();
  archive.fill([&](size_t tag, const SparseArchiveWriter::Put& put) {
    weights.read(*tensors[tag], [&](const at::Tensor& part) { put(part.const_data_ptr(), part.nbytes()); });
  });
}

std::vector<at::Tensor> placeholder_tensors(SparseArchiveWriter& archive, const WeightStream& weights,
                                            const Tensors& tensors) {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    out.push_back(archive.add_placeholder(tensors[i]->shape, weights.dtype_of(*tensors[i]), i));
  }
  return out;
}

// Runs code that writes through LibTorch's zip code: the archive's own error is the cause of any exception it throws.
void call_libtorch(const SparseArchiveWriter& archive, const std::function<void()>& write) {
  try {
    write();
  } catch (...) {
    archive.rethrow();
    throw;
  }
  archive.rethrow();
}

void write_records(SparseArchiveWriter& archive, const std::string& pickled, const std::vector<at::Tensor>& tensors) {
  caffe2::serialize::PyTorchStreamWriter writer(
      [&](const void* data, size_t size) { return archive.write(data, size); });
  try {
    writer.writeRecord("data.pkl", pickled.data(), pickled.size());
    writer.writeRecord("byteorder", "little", 6);
    for (size_t i = 0; i < tensors.size(); ++i) {
      writer.writeRecord("data/" + std::to_string(i), tensors[i].storage().data(), tensors[i].storage().nbytes());
    }
    writer.writeEndOfFile();
  } catch (...) {
    try {
      if (!writer.finalized()) writer.writeEndOfFile();  // else its destructor prints an error
    } catch (...) {                                      // the file is already given up
    }
    throw;
  }
}

torch::jit::Module load_skeleton(const std::string& path) {
  const auto file = MappedFile::open(path, "model");
  require_shallow(read_zip_members({file->data(), file->size()}, fmt::format("model '{}'", path)), path);
  return torch::jit::load(path, at::kCPU);
}

// The model of a checkpoint, whose weights are inserted one by one.
class Skeleton {
 public:
  explicit Skeleton(const std::string& path) : module_(load_skeleton(path)) {
    for (const auto& module : module_.modules()) {
      for (size_t slot = 0; slot < module.type()->numAttributes(); ++slot) {
        for_each_value(module._ivalue(), slot, [&](const ParameterLocation& location, const c10::IValue& part) {
          const bool is_duplicate = part.isTensor() && part.toTensor().defined() && !location.keys.empty();
          if (is_duplicate) duplicates_.emplace(storage_of(part.toTensor()), location);
        });
      }
    }
  }
  const torch::jit::Module& module() const { return module_; }
  bool is_in_train_mode() const {
    for (const auto& module : module_.modules()) {
      if (module.hasattr("training") && module.is_training()) return true;
    }
    return false;
  }

  void assign(const std::string& name, const at::Tensor& values) {
    torch::jit::Module owner = module_;
    std::string rest = name;
    for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
      if (!owner.hasattr(rest.substr(0, dot)) || !owner.attr(rest.substr(0, dot)).isModule()) break;
      owner = owner.attr(rest.substr(0, dot)).toModule();
    }
    if (!owner.hasattr(rest)) {
      throw UserError(ExitCode::kBadInput,
                      fmt::format("the checkpoint's model.pt has no parameter or buffer '{}'", name));
    }
    const at::Tensor before = owner.attr(rest).toTensor();
    const auto [first, last] = duplicates_.equal_range(storage_of(before));
    for (auto entry = first; entry != last && values.numel() > 0; ++entry) {
      if (entry->second.get().sizes() == before.sizes()) entry->second.set(values);
    }
    owner.setattr(rest, values);
  }

 private:
  static const void* storage_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
  }

  torch::jit::Module module_;
  std::multimap<const void*, ParameterLocation> duplicates_;  // lists and dicts that hold parameters again, by memory
};

}  // namespace

void write_state_dict(WeightStream& weights, const Tensors& tensors, const std::string& path) {
  SparseArchiveWriter archive(path);
  const auto placeholders = placeholder_tensors(archive, weights, tensors);
  c10::Dict<std::string, at::Tensor> dict;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const auto& name : tensors[i]->all_names()) dict.insert(name, placeholders[i]);
  }
  // Not pickle_save(): it wraps the dict in a call that torch.load(weights_only=True) refuses.
  std::string pickled;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickled.append(data, size); }, nullptr, nullptr,
                              nullptr, {}, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  call_libtorch(archive, [&] { write_records(archive, pickled, pickler.tensorData()); });
  fill(archive, weights, tensors);
}

bool write_torchscript(CheckpointReader& checkpoint, WeightStream& weights, const std::string& path) {
  const auto skeleton = checkpoint.skeleton();
  if (!skeleton) {
    throw UserError(ExitCode::kBadInput, fmt::format("the checkpoint '{}' has no model.pt, so it cannot become "
                                                     "TorchScript; write OUT.safetensors or use --state_dict",
                                                     checkpoint.path()));
  }
  Skeleton model(*skeleton);
  SparseArchiveWriter archive(path);
  const auto& tensors = weights.tensors();
  const auto placeholders = placeholder_tensors(archive, weights, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor values = placeholders[i];
    if (tensors[i]->trainable && !tensors[i]->is_buffer) values.set_requires_grad(true);
    for (const auto& name : tensors[i]->all_names()) model.assign(name, values);
  }
  call_libtorch(archive, [&] {
    torch::jit::ExtraFilesMap metadata;
    if (auto text = read_model_metadata(*skeleton).text; !text.empty()) metadata[kModelMetadataName] = std::move(text);
    torch::jit::ExportModule(
        model.module(), [&](const void* data, size_t size) { return archive.write(data, size); }, metadata);
  });
  fill(archive, weights, tensors);
  return model.is_in_train_mode();
}

}  // namespace dslaunch::runtime
