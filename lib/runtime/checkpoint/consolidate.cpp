#include "runtime/checkpoint/consolidate.hpp"

#include <caffe2/serialize/inline_container.h>
#include <stdio.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/hollow_archive.hpp"
#include "runtime/checkpoint/weight_files.hpp"
#include "runtime/checkpoint/weight_stream.hpp"
#include "runtime/state/output_file.hpp"
#include "runtime/state/parameter_place.hpp"

namespace dslaunch::runtime {
namespace {

constexpr uint64_t kLeastMemory = 16'000'000;
constexpr char kAside[] = ".tmp";

using Tensors = std::vector<const SavedTensor*>;

void fill(HollowArchive& archive, WeightStream& weights, const Tensors& tensors) {
  archive.rethrow();
  archive.fill([&](size_t tag, const HollowArchive::Put& put) {
    weights.read(*tensors[tag], [&](const at::Tensor& part) { put(part.const_data_ptr(), part.nbytes()); });
  });
}

std::vector<at::Tensor> hollow_tensors(HollowArchive& archive, const WeightStream& weights, const Tensors& tensors) {
  std::vector<at::Tensor> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    out.push_back(archive.add_hollow(tensors[i]->shape, weights.dtype_of(*tensors[i]), i));
  }
  return out;
}

// Runs what writes through LibTorch's zip code: the archive's own error is the cause of whatever that throws.
void through_libtorch(const HollowArchive& archive, const std::function<void()>& write) {
  try {
    write();
  } catch (...) {
    archive.rethrow();
    throw;
  }
  archive.rethrow();
}

void write_records(HollowArchive& archive, const std::string& pickled, const std::vector<at::Tensor>& tensors) {
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
      if (!writer.finalized()) writer.writeEndOfFile();  // or its destructor complains on standard error
    } catch (...) {                                      // the file is given up already
    }
    throw;
  }
}

void write_state_dict(WeightStream& weights, const Tensors& tensors, const std::string& out) {
  HollowArchive archive(out);
  const auto hollow = hollow_tensors(archive, weights, tensors);
  c10::Dict<std::string, at::Tensor> dict;
  for (size_t i = 0; i < tensors.size(); ++i) {
    for (const auto& name : all_names(*tensors[i])) dict.insert(name, hollow[i]);
  }
  // Not pickle_save(): it wraps the dict in a call that torch.load(weights_only=True) refuses.
  std::string pickled;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickled.append(data, size); }, nullptr, nullptr,
                              nullptr, {}, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  through_libtorch(archive, [&] { write_records(archive, pickled, pickler.tensorData()); });
  fill(archive, weights, tensors);
}

// The model of a checkpoint, whose weights are put in one by one.
class Skeleton {
 public:
  explicit Skeleton(const std::string& path) : module_(torch::jit::load(path, at::kCPU)) {
    for (const auto& module : module_.modules()) {
      for (size_t slot = 0; slot < module.type()->numAttributes(); ++slot) {
        for_each_part(module._ivalue(), slot, [&](const ParameterPlace& place, const c10::IValue& part) {
          const bool is_again = part.isTensor() && part.toTensor().defined() && !place.keys.empty();
          if (is_again) again_.emplace(storage_of(part.toTensor()), place);
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
    const auto [first, last] = again_.equal_range(storage_of(before));
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
  std::multimap<const void*, ParameterPlace> again_;  // lists and dicts that hold parameters again, by their memory
};

// Returns whether it is in train mode, as the file that training began with was.
bool write_torchscript(CheckpointReader& checkpoint, WeightStream& weights, const std::string& out) {
  const auto skeleton = checkpoint.skeleton();
  if (!skeleton) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the checkpoint '{}' holds no model.pt, so no TorchScript can be made of it; write "
                                "OUT.safetensors or use --state_dict",
                                checkpoint.path()));
  }
  Skeleton model(*skeleton);
  HollowArchive archive(out);
  const auto& tensors = weights.tensors();
  const auto hollow = hollow_tensors(archive, weights, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor values = hollow[i];
    if (tensors[i]->trainable && !tensors[i]->is_buffer) values.set_requires_grad(true);
    for (const auto& name : all_names(*tensors[i])) model.assign(name, values);
  }
  through_libtorch(archive, [&] {
    torch::jit::ExportModule(model.module(), [&](const void* data, size_t size) { return archive.write(data, size); });
  });
  fill(archive, weights, tensors);
  return model.is_in_train_mode();
}

// What LibTorch throws while it writes is an I/O error to us; our own errors pass.
void guarded(const std::string& out, const std::function<void()>& write) {
  try {
    write();
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    throw Error(ExitCode::kIoError, fmt::format("write '{}': {}", out, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw Error(ExitCode::kIoError, fmt::format("write '{}': {}", out, error.what()));
  }
}

[[noreturn]] void misuse(const std::string& message) {
  throw UserError(ExitCode::kUsage, message);
}

enum class Form { kSafetensors, kStateDict, kTorchScript };

Form form_of(const ConsolidateOptions& options) {
  const bool safetensors = options.out.ends_with(".safetensors");
  if (!safetensors && !options.out.ends_with(".pt") && !options.out.ends_with(".pth")) {
    misuse(fmt::format(
        "cannot tell the form of '{}': name it .safetensors or .pt (--state_dict for a plain name -> tensor "
        "file)",
        options.out));
  }
  if (safetensors && options.state_dict)
    misuse(fmt::format("--state_dict writes a .pt file, '{}' is none", options.out));
  const Form form = safetensors ? Form::kSafetensors : options.state_dict ? Form::kStateDict : Form::kTorchScript;
  if (form == Form::kTorchScript && (options.max_shard_bytes > 0 || options.exclude_frozen)) {
    misuse(fmt::format("a TorchScript file is whole: {} is for OUT.safetensors, or a .pt with --state_dict",
                       options.exclude_frozen ? "--exclude_frozen_parameters" : "--max_shard_size"));
  }
  if (options.max_memory_bytes < kLeastMemory) {
    misuse(fmt::format("--max_memory {} bytes: at least {} MB are needed", options.max_memory_bytes,
                       kLeastMemory / 1'000'000));
  }
  return form;
}

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.write(text);
  file.finish(/*sync=*/true);
}

// The last of several is the index, which names the others: they are there first, whatever happens.
void move_into_place(const std::vector<std::string>& paths) {
  const std::string parent = std::filesystem::path(paths[0]).parent_path();
  const std::string folder = parent.empty() ? "." : parent;
  std::vector<std::string> in_place;
  try {
    for (const auto& path : paths) {
      if (!in_place.empty() && &path == &paths.back()) sync_folder(folder);
      if (::rename((path + kAside).c_str(), path.c_str()) != 0) throw SystemError("rename to", "'" + path + "'");
      in_place.push_back(path);
    }
    sync_folder(folder);
  } catch (const Error& error) {
    if (in_place.empty()) throw;
    throw Error(error.code(), fmt::format("{}; already in place: {}", error.what(), fmt::join(in_place, ", ")));
  }
}

std::vector<std::string> names_aside(const std::vector<WeightFile>& files, const std::string& out) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.path + kAside);
  if (files.size() > 1) names.push_back(index_path(out) + kAside);
  return names;
}

}  // namespace

std::vector<std::string> consolidate(const ConsolidateOptions& options) {
  const Form form = form_of(options);
  CheckpointReader checkpoint(options.checkpoint);
  WeightStream weights(checkpoint, {options.max_memory_bytes, options.dtype, options.exclude_frozen});
  const auto files = plan_weight_files(
      options.out, weights.tensors(), [&](const SavedTensor& tensor) { return weights.bytes_of(tensor); },
      options.max_shard_bytes);
  if (options.before_writing) options.before_writing(names_aside(files, options.out));
  std::vector<std::string> written;
  bool trains = false;
  try {
    for (const auto& file : files) {
      written.push_back(file.path);
      const std::string aside = file.path + kAside;
      guarded(file.path, [&] {
        if (form == Form::kSafetensors) write_safetensors(weights, file.tensors, aside);
        if (form == Form::kStateDict) write_state_dict(weights, file.tensors, aside);
        if (form == Form::kTorchScript) trains = write_torchscript(checkpoint, weights, aside);
      });
    }
    if (files.size() > 1) {  // last: with it the set of files is complete
      written.push_back(index_path(options.out));
      write_text(written.back() + kAside, index_text(files));
    }
    move_into_place(written);
  } catch (...) {
    for (const auto& path : written) ::unlink((path + kAside).c_str());
    throw;
  }
  if (trains) {
    log::info("'{}' is in train mode, as the model file was: call eval() on it before it is used, or its dropout is on",
              options.out);
  }
  return written;
}

}  // namespace dslaunch::runtime
