#include "launch/plan/model_file.hpp"

#include <unistd.h>

#include <filesystem>
#include <iterator>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/nearest_name.hpp"
#include "base/shell_words.hpp"

namespace dslaunch::launch {

static bool is_one_of(const std::string& ending, std::initializer_list<const char*> endings) {
  for (const char* other : endings) {
    if (ending == other) return true;
  }
  return false;
}

void refuse_program(const std::string& path, const std::string& line) {
  const std::string ending = std::filesystem::path(path).extension().string();
  const bool is_python = is_one_of(ending, {".py", ".pyc"});
  if (!is_python && !is_one_of(ending, {".sh", ".bash"})) return;
  const std::string word = shell_word(path);
  throw UserError(
      ExitCode::kUsage,
      fmt::format("{} is a {}, not a model: did you mean {}", word, is_python ? "Python program" : "script",
                  line.empty() ? fmt::format("'dslaunch exec -- {} {}'?", is_python ? "python" : "sh", word) : line));
}

static bool is_hugging_face_directory(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path / "config.json", error);
}

static std::filesystem::path directory_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

static std::string export_command(const std::string& source) {
  return fmt::format("export it with 'tools/export --pretrained {} model.pt'", shell_word(source));
}

// "gpt2", "facebook/opt-125m": names of the Hugging Face hub look like paths without an ending.
static std::string hub_hint(const std::filesystem::path& path) {
  const auto parts = std::distance(path.begin(), path.end());
  if (path.has_extension() || path.is_absolute() || parts > 2 || *path.begin() == "." || *path.begin() == "..")
    return "";
  return "; if it is a model of the Hugging Face hub, " + export_command(path.string());
}

std::string option_of_file(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (is_one_of(ending, {".json", ".yaml", ".yml", ".hjson", ".toml"})) return "--config";
  if (is_one_of(ending, {".safetensors", ".npy", ".npz"})) return "--data";
  return {};
}

static std::string missing_hint(const std::string& path) {
  const std::string near = did_you_mean_file(path);
  return near.empty() ? hub_hint(path) : near;
}

// File extensions that show which other command or option the user meant.
static void refuse_other_kinds(const std::string& path) {
  refuse_program(path);
  std::string ending = std::filesystem::path(path).extension().string();
  std::string word = shell_word(path);
  if (option_of_file(path) == "--config") {
    throw UserError(
        ExitCode::kUsage,
        fmt::format("{} is a config, not a model: did you mean 'dslaunch MODEL.pt --config {}'?", word, word));
  }
  if (ending == ".pt2") {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format("{} was written by torch.export (.pt2); dslaunch trains TorchScript: save the module with "
                    "torch.jit.save(torch.jit.script(model), 'model.pt')",
                    word));
  }
  if (is_one_of(ending, {".safetensors", ".bin", ".ckpt", ".onnx", ".npz", ".npy"})) {
    throw UserError(
        ExitCode::kBadInput,
        fmt::format(
            "{} holds no TorchScript program (weights or data only); dslaunch needs a file "
            "written by torch.jit.save{}",
            word,
            is_hugging_face_directory(directory_of(path)) ? "; " + export_command(directory_of(path).string()) : ""));
  }
}

void check_model_file(const std::string& path) {
  refuse_other_kinds(path);
  std::error_code error;
  auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw UserError(ExitCode::kNoInput,
                    fmt::format("the model {} does not exist{}", shell_word(path), missing_hint(path)));
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
      !std::filesystem::is_directory(status)) {
    throw UserError(ExitCode::kNoInput, fmt::format("the model {} is a device or pipe, not a file", shell_word(path)));
  }
  if (status.type() == std::filesystem::file_type::directory && is_hugging_face_directory(path)) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} is a Hugging Face model directory, and a model is one file: {}", shell_word(path),
                                export_command(path)));
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw UserError(ExitCode::kBadInput,
                    fmt::format("{} is a directory; a model is one file, written by torch.jit.save", shell_word(path)));
  }
  if (error || ::access(path.c_str(), R_OK) != 0) {
    throw UserError(ExitCode::kNoInput, fmt::format("cannot read the model {}: {}", shell_word(path),
                                                    describe_errno(error ? error.value() : errno)));
  }
}

}  // namespace dslaunch::launch
