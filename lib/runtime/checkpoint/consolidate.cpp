#include "runtime/checkpoint/consolidate.hpp"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/pytorch_files.hpp"
#include "runtime/checkpoint/temporary_outputs.hpp"
#include "runtime/checkpoint/weight_files.hpp"
#include "runtime/checkpoint/weight_stream.hpp"

namespace dslaunch::runtime {
namespace {

// Exceptions of LibTorch while it writes are I/O errors to us; our own errors pass through.
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

[[noreturn]] void usage_error(const std::string& message) {
  throw UserError(ExitCode::kUsage, message);
}

enum class Form { kSafetensors, kStateDict, kTorchScript };

Form form_of(const ConsolidateOptions& options) {
  const bool safetensors = options.out.ends_with(".safetensors");
  const bool is_bin = options.out.ends_with(".bin");  // as zero_to_fp32.py and transformers name a state dict
  if (!safetensors && !is_bin && !options.out.ends_with(".pt") && !options.out.ends_with(".pth")) {
    usage_error(
        fmt::format("unknown extension of '{}': use .safetensors or .pt (with --state_dict, or .bin, a plain name -> "
                    "tensor file)",
                    options.out));
  }
  if (safetensors && options.state_dict)
    usage_error(fmt::format("--state_dict writes a .pt file, but '{}' does not end in .pt", options.out));
  const Form form = safetensors                    ? Form::kSafetensors
                    : options.state_dict || is_bin ? Form::kStateDict
                                                   : Form::kTorchScript;
  if (form == Form::kTorchScript && (options.max_shard_bytes > 0 || options.exclude_frozen)) {
    usage_error(fmt::format(
        "a TorchScript file is always complete: use {} with OUT.safetensors, or with a .pt and --state_dict",
        options.exclude_frozen ? "--exclude_frozen_parameters" : "--max_shard_size"));
  }
  require_enough_memory(options.max_memory_bytes);
  return form;
}

// Replacing a checkpoint's own file would damage the checkpoint, which may be the only one.
void refuse_files_of_checkpoints(const std::vector<WeightFile>& files) {
  for (const auto& file : files) {
    const std::filesystem::path path(file.path);
    const std::string name = path.filename();
    const bool is_reserved_name = name == kSkeletonName || name == kFullWeightsName || is_shard_name(name);
    std::error_code ignored;
    if (is_reserved_name && std::filesystem::exists(path, ignored) &&
        std::filesystem::exists(path.parent_path() / kManifestName, ignored)) {
      usage_error(fmt::format("'{}' is a file of a checkpoint and would be overwritten: write to another directory",
                              file.path));
    }
  }
}

// A rename would take a device or a pipe out of the file system.
void refuse_special_files(const std::vector<WeightFile>& files) {
  for (const auto& file : files) {
    std::error_code ignored;
    const auto status = std::filesystem::status(file.path, ignored);
    // A directory refuses the rename.
    const bool may_stay = std::filesystem::is_regular_file(status) || std::filesystem::is_directory(status);
    if (!std::filesystem::exists(status) || may_stay) continue;
    throw UserError(
        ExitCode::kCannotCreate,
        fmt::format("cannot write '{}': it is not a regular file, and the finished file would replace it", file.path));
  }
}

std::vector<std::string> temporary_names(const std::vector<WeightFile>& files, const std::string& out) {
  std::vector<std::string> names;
  for (const auto& file : files) names.push_back(file.path + kTemporary);
  if (files.size() > 1) names.push_back(index_path(out) + kTemporary);
  return names;
}

}  // namespace

WrittenWeights consolidate(const ConsolidateOptions& options) {
  const Form form = form_of(options);
  CheckpointReader checkpoint(options.checkpoint);
  WeightStream weights(checkpoint, {options.max_memory_bytes, options.dtype, options.exclude_frozen});
  const auto files = plan_weight_files(
      options.out, weights.tensors(), [&](const SavedTensor& tensor) { return weights.bytes_of(tensor); },
      options.max_shard_bytes);
  refuse_files_of_checkpoints(files);
  refuse_special_files(files);
  if (options.before_writing) options.before_writing(temporary_names(files, options.out));
  std::vector<std::string> written;
  bool trains = false;
  try {
    for (const auto& file : files) {
      written.push_back(file.path);
      const std::string temporary = file.path + kTemporary;
      guarded(file.path, [&] {
        if (form == Form::kSafetensors) write_safetensors(weights, file.tensors, temporary);
        if (form == Form::kStateDict) write_state_dict(weights, file.tensors, temporary);
        if (form == Form::kTorchScript) trains = write_torchscript(checkpoint, weights, temporary);
      });
    }
    if (files.size() > 1) {  // last: with it the set of files is complete
      written.push_back(index_path(options.out));
      write_temporary(written.back(), index_text(files));
    }
    rename_temporaries(written);
  } catch (...) {
    for (const auto& path : written) ::unlink((path + kTemporary).c_str());
    throw;
  }
  if (trains) {
    log::info("'{}' is in train mode, as the model file was: call eval() on it before you use it, or its dropout is on",
              options.out);
  }
  return {written, checkpoint.path(), checkpoint.metadata().step};
}

}  // namespace dslaunch::runtime
