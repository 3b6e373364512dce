#include "runtime/checkpoint/consolidate.hpp"

#include <ATen/ops/empty.h>
#include <caffe2/serialize/inline_container.h>
#include <stdio.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <map>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/state/output_file.hpp"
#include "runtime/state/safetensors_file.hpp"

namespace dslaunch::runtime {
namespace {

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

at::Tensor whole(CheckpointReader& checkpoint, const SavedTensor& tensor) {
  at::Tensor values = at::empty(tensor.shape, tensor.dtype);
  checkpoint.read_into(tensor.name, tensor.is_buffer ? "buffer" : tensor.trainable ? "master" : "frozen", 0, values);
  return values;
}

std::vector<std::string> all_names(const SavedTensor& tensor) {
  std::vector<std::string> names{tensor.name};
  names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
  return names;
}

void write_safetensors(CheckpointReader& checkpoint, const std::string& out) {
  std::vector<TensorDescription> descriptions;
  std::map<std::string, const SavedTensor*> sources;
  for (const auto& tensor : checkpoint.metadata().parameters) {
    for (const auto& name : all_names(tensor)) {
      descriptions.push_back({name, tensor.dtype, tensor.shape});
      sources[name] = &tensor;
    }
  }
  SafetensorsWriter writer(out, std::move(descriptions), {{"format", "pt"}});
  for (const auto& description : writer.order()) writer.write(whole(checkpoint, *sources.at(description.name)));
  writer.finish(true);
}

// A zip archive as torch.save writes it, streamed. The zip code is C, so an error of ours waits until it has returned.
class ArchiveFile {
 public:
  explicit ArchiveFile(const std::string& path)
      : file_(path), writer_([this](const void* data, size_t size) { return put(data, size); }) {}
  ~ArchiveFile() {
    try {
      if (!writer_.finalized()) writer_.writeEndOfFile();  // or its destructor complains on standard error
    } catch (...) {                                        // the file is given up already
    }
  }

  void add(const std::string& name, const void* data, size_t size) {
    guard([&] { writer_.writeRecord(name, data, size); });
  }
  void finish() {
    guard([&] { writer_.writeEndOfFile(); });
    file_.finish(true);
  }

 private:
  size_t put(const void* data, size_t size) {
    try {
      if (!error_) file_.write(data, size);
    } catch (...) {
      error_ = std::current_exception();
    }
    return error_ ? 0 : size;
  }
  void guard(const std::function<void()>& write) {
    try {
      write();
    } catch (...) {
      if (!error_) throw;
    }
    if (error_) std::rethrow_exception(error_);
  }

  OutputFile file_;
  std::exception_ptr error_;
  caffe2::serialize::PyTorchStreamWriter writer_;
};

void write_state_dict(CheckpointReader& checkpoint, const std::string& out) {
  c10::Dict<std::string, at::Tensor> dict;
  for (const auto& tensor : checkpoint.metadata().parameters) {
    const at::Tensor values = whole(checkpoint, tensor);
    for (const auto& name : all_names(tensor)) dict.insert(name, values);
  }
  // Not pickle_save(): it wraps the dict in a call that torch.load(weights_only=True) refuses.
  std::string pickled;
  torch::jit::Pickler pickler([&](const char* data, size_t size) { pickled.append(data, size); }, nullptr, nullptr,
                              nullptr, {}, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();

  ArchiveFile archive(out);
  archive.add("data.pkl", pickled.data(), pickled.size());
  archive.add("byteorder", "little", 6);
  const auto& tensors = pickler.tensorData();
  for (size_t i = 0; i < tensors.size(); ++i) {
    archive.add("data/" + std::to_string(i), tensors[i].storage().data(), tensors[i].storage().nbytes());
  }
  archive.finish();
}

void assign(torch::jit::Module module, const std::string& name, const at::Tensor& values) {
  std::string rest = name;
  for (size_t dot; (dot = rest.find('.')) != std::string::npos; rest = rest.substr(dot + 1)) {
    if (!module.hasattr(rest.substr(0, dot)) || !module.attr(rest.substr(0, dot)).isModule()) break;
    module = module.attr(rest.substr(0, dot)).toModule();
  }
  if (!module.hasattr(rest)) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the checkpoint's model.pt has no parameter or buffer '{}'", name));
  }
  module.setattr(rest, values);
}

void write_torchscript(CheckpointReader& checkpoint, const std::string& out) {
  const auto skeleton = checkpoint.skeleton();
  if (!skeleton) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("the checkpoint '{}' holds no model.pt, so no TorchScript can be made of it; write "
                                "OUT.safetensors or use --state_dict",
                                checkpoint.path()));
  }
  torch::jit::Module module = torch::jit::load(*skeleton, at::kCPU);
  for (const auto& tensor : checkpoint.metadata().parameters) {
    at::Tensor values = whole(checkpoint, tensor);
    if (tensor.trainable && !tensor.is_buffer) values.set_requires_grad(true);
    for (const auto& name : all_names(tensor)) assign(module, name, values);
  }
  OutputFile(out).finish(false);  // LibTorch's own errors do not say why a file cannot be made
  module.save(out);
  sync_file(out);
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

}  // namespace

void consolidate(const std::string& checkpoint_path, const std::string& out, bool state_dict) {
  const bool safetensors = ends_with(out, ".safetensors");
  if (!safetensors && !ends_with(out, ".pt") && !ends_with(out, ".pth")) {
    throw UserError(ExitCode::kUsage,
                    fmt::format("cannot tell the form of '{}': name it .safetensors or .pt (--state_dict for a plain "
                                "name -> tensor file)",
                                out));
  }
  if (safetensors && state_dict) {
    throw UserError(ExitCode::kUsage, fmt::format("--state_dict writes a .pt file, '{}' is none", out));
  }
  CheckpointReader checkpoint(checkpoint_path);
  const std::string aside = out + ".tmp";
  try {
    guarded(out, [&] {
      if (safetensors) {
        write_safetensors(checkpoint, aside);
      } else if (state_dict) {
        write_state_dict(checkpoint, aside);
      } else {
        write_torchscript(checkpoint, aside);
      }
    });
    if (::rename(aside.c_str(), out.c_str()) != 0) throw SystemError("rename to", "'" + out + "'");
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
}

}  // namespace dslaunch::runtime
