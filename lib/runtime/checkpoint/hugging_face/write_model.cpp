#include "runtime/checkpoint/hugging_face/write_model.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/dump_json.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "runtime/checkpoint/hugging_face/source_files.hpp"
#include "runtime/checkpoint/hugging_face/weight_plan.hpp"
#include "runtime/checkpoint/hugging_face/write_weights.hpp"
#include "runtime/checkpoint/temporary_outputs.hpp"
#include "runtime/checkpoint/weight_files.hpp"
#include "runtime/state/model_metadata.hpp"
#include "runtime/state/output_file.hpp"

namespace dslaunch::runtime::hugging_face {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

HuggingFaceFacts facts_of(CheckpointReader& checkpoint) {
  const auto skeleton = checkpoint.skeleton();
  if (!skeleton) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("the checkpoint '{}' has no model.pt, so nothing tells the names of Hugging Face's model; "
                    "checkpoints that dslaunch trained have one, and `dslaunch import` adds it with --model",
                    checkpoint.path()));
  }
  if (auto facts = read_hugging_face_facts(read_model_metadata(*skeleton).text, *skeleton)) return *std::move(facts);
  throw UserError(
      ExitCode::kBadInput,
      fmt::format("the model of the checkpoint '{}' was not exported by tools/export --hf, so its names in Hugging "
                  "Face's files are not known; write OUT.safetensors instead",
                  checkpoint.path()));
}

// Creates the directory, or takes one that is empty; removed again if it was created and nothing was finished.
class OutputDirectory {
 public:
  explicit OutputDirectory(std::string path) : path_(std::move(path)) {
    is_new_ = ::mkdir(path_.c_str(), 0777) == 0;
    if (is_new_) return;
    if (errno != EEXIST) throw SystemError("create the directory", "'" + path_ + "'", errno, ExitCode::kCannotCreate);
    std::error_code error;
    if (!fs::is_directory(path_, error)) refuse("is not a directory");
    const bool is_empty = fs::is_empty(path_, error);
    if (error) throw SystemError("read the directory", "'" + path_ + "'", error.value(), ExitCode::kCannotCreate);
    if (!is_empty) refuse("is not empty");
  }
  ~OutputDirectory() {
    if (is_new_ && !is_kept_) ::rmdir(path_.c_str());
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  bool is_new() const { return is_new_; }
  void keep() { is_kept_ = true; }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw UserError(
        ExitCode::kCannotCreate,
        fmt::format("cannot write to '{}': it {}; --hf takes a new directory, or an empty one", path_, what));
  }

  const std::string path_;
  bool is_new_ = false, is_kept_ = false;
};

const char* name_of(at::ScalarType dtype) {
  return dtype == at::kFloat ? "float32" : dtype == at::kHalf ? "float16" : "bfloat16";
}

// transformers 5 writes "dtype", 4 "torch_dtype", also into the configs of a composite model's parts.
void set_dtype(Json& config, at::ScalarType dtype, bool is_part = false) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (config.contains(key) && config[key].is_string()) config[key] = name_of(dtype);
  }
  if (!is_part && !config.contains("dtype") && !config.contains("torch_dtype")) config["dtype"] = name_of(dtype);
  for (auto& [key, value] : config.items()) {
    if (value.is_object() && key.ends_with("_config") && key != "quantization_config") set_dtype(value, dtype, true);
  }
}

std::string model_config(const HuggingFaceFacts& facts, at::ScalarType dtype) {
  auto config = Json::parse(facts.config);
  set_dtype(config, dtype);
  return dump_json(config, 2) + "\n";
}

// As PEFT saves it: not for training, and with the model that it belongs to.
std::string adapter_config(const HuggingFaceFacts& facts) {
  auto config = Json::parse(facts.adapter->config);
  config["inference_mode"] = true;
  const bool has_base = config.contains("base_model_name_or_path") && config["base_model_name_or_path"].is_string() &&
                        !config["base_model_name_or_path"].get<std::string>().empty();
  if (!has_base && facts.source_kind != "architecture") config["base_model_name_or_path"] = facts.source_name;
  return dump_json(config, 2) + "\n";
}

// No copy is readable by more users than the file.
void copy_file(const std::string& from, const std::string& to) {
  const UniqueFd in(::open(from.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status {};
  if (!in.valid() || ::fstat(in.get(), &status) != 0) {
    throw SystemError("open", "'" + from + "'", errno, ExitCode::kNoInput);
  }
  OutputFile out(to, status.st_mode & 0777);
  std::vector<char> block(1 << 20);
  while (true) {
    const ssize_t got = ::read(in.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw SystemError("read", "'" + from + "'");
    if (got == 0) break;
    out.write(block.data(), static_cast<size_t>(got));
  }
  out.finish(/*sync=*/true);
}

class Writing {
 public:
  Writing(const WriteOptions& options, const HuggingFaceFacts& facts, CheckpointReader& checkpoint)
      : options_(options),
        facts_(facts),
        is_adapter_(facts.adapter && !options.merge_lora),
        weights_(checkpoint, {options.max_memory_bytes, options.dtype, false}),
        tensors_(is_adapter_ ? plan_adapter(facts, checkpoint) : plan_model(facts, checkpoint, options.merge_lora)) {
    plan_weights();
    plan_copies();
  }

  std::vector<std::string> run() {
    OutputDirectory directory(options_.out);
    if (options_.before_writing) options_.before_writing(unfinished(directory.is_new()));
    const auto paths = all_paths();
    try {
      write_all();
      rename_temporaries(paths);
    } catch (...) {
      for (const auto& path : paths) ::unlink((path + kTemporary).c_str());
      throw;
    }
    directory.keep();
    if (!note_.empty()) log::warning("{}", note_);
    return paths;
  }

 private:
  std::string in_out(const std::string& name) const { return options_.out + "/" + name; }
  std::string last_name() const { return is_adapter_ ? "adapter_config.json" : "config.json"; }
  bool writes_generation_config() const {
    return !is_adapter_ && (!copies_generation_config_ && !facts_.generation_config.empty());
  }

  void plan_weights() {
    std::vector<uint64_t> bytes;
    for (const auto& tensor : tensors_) {
      bytes.push_back(bytes_of(weights_, tensor));
      total_bytes_ += bytes.back();
    }
    single_ = in_out(is_adapter_ ? "adapter_model.safetensors" : "model.safetensors");
    files_ = plan_file_ranges(single_, bytes, is_adapter_ ? 0 : options_.max_shard_bytes);  // PEFT reads one file
  }

  void plan_copies() {
    const auto source = find_source(facts_, options_.source);
    if (!source.ok()) {
      note_ = fmt::format("without a tokenizer's files: {}; --hf_source DIR names the directory to copy them from",
                          source.error());
      return;
    }
    copies_ = preparation_files(*source);
    if (copies_.empty()) {
      note_ =
          fmt::format("without a tokenizer's files: '{}' has none; --hf_source DIR names another directory", *source);
    }
    if (is_adapter_) return;
    auto config = generation_config_file(*source);
    copies_generation_config_ = config.has_value();
    if (config) copies_.push_back(*std::move(config));
  }

  // In the order in which they appear.
  std::vector<std::string> all_paths() const {
    std::vector<std::string> out;
    for (const auto& file : copies_) out.push_back(in_out(file.name));
    if (writes_generation_config()) out.push_back(in_out(kGenerationConfigName));
    for (const auto& file : files_) out.push_back(file.path);
    if (files_.size() > 1) out.push_back(index_path(single_));
    out.push_back(in_out(last_name()));
    return out;
  }

  std::vector<std::string> unfinished(bool directory_too) const {
    auto out = all_paths();
    for (auto& path : out) path += kTemporary;
    if (directory_too) out.push_back(options_.out);
    return out;
  }

  void write_all() {
    for (const auto& file : copies_) copy_file(file.path, in_out(file.name) + kTemporary);
    if (writes_generation_config()) write_temporary(in_out(kGenerationConfigName), facts_.generation_config);
    std::map<std::string, std::string> index;
    for (const auto& file : files_) {
      const std::span<const OutputTensor> tensors(tensors_.data() + file.begin, file.end - file.begin);
      write_weights(weights_, tensors, file.path + kTemporary);
      for (const auto& tensor : tensors) index[tensor.name] = fs::path(file.path).filename();
    }
    if (files_.size() > 1) write_temporary(index_path(single_), index_text(total_bytes_, index));
    write_temporary(in_out(last_name()), is_adapter_ ? adapter_config(facts_) : model_config(facts_, options_.dtype));
  }

  const WriteOptions& options_;
  const HuggingFaceFacts& facts_;
  const bool is_adapter_;
  WeightStream weights_;
  const std::vector<OutputTensor> tensors_;
  uint64_t total_bytes_ = 0;
  std::string single_;  // the weights' path if one file is enough
  std::vector<FileRange> files_;
  std::string note_;
  std::vector<SourceFile> copies_;
  bool copies_generation_config_ = false;
};

}  // namespace

WrittenWeights write_model(const WriteOptions& options) {
  require_enough_memory(options.max_memory_bytes);
  CheckpointReader checkpoint(options.checkpoint);
  const auto facts = facts_of(checkpoint);
  if (options.merge_lora && !facts.adapter) {
    throw UserError(ExitCode::kUsage,
                    fmt::format("--merge_lora: the model of the checkpoint '{}' has no adapter", checkpoint.path()));
  }
  return {Writing(options, facts, checkpoint).run(), checkpoint.path(), checkpoint.metadata().step};
}

}  // namespace dslaunch::runtime::hugging_face
