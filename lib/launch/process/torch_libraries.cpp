#include "launch/process/torch_libraries.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/small_file.hpp"
#include "base/split.hpp"
#include "launch/process/elf_section.hpp"
#include "launch/process/programs.hpp"

namespace dslaunch::launch {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool holds_torch(const fs::path& directory) {
  return ::access((directory / "libtorch_cpu.so").c_str(), R_OK) == 0;
}

// torch/lib of `environment`; empty without PyTorch of the version that dsworker was built with.
std::string torch_lib_of(const fs::path& environment) {
  std::error_code error;
  for (fs::directory_iterator entry(environment / "lib", error), end; !error && entry != end; entry.increment(error)) {
    if (!entry->path().filename().string().starts_with("python3")) continue;
    const fs::path torch = entry->path() / "site-packages" / "torch";
    const auto version = read_whole_file((torch / "version.py").string());
    const bool is_ours = version && version->find("'" DSL_TORCH_VERSION) != version->npos;
    if (is_ours && holds_torch(torch / "lib")) return (torch / "lib").string();
  }
  return "";
}

enum class FoundBy { kPath, kPlaceOfProgram };
struct Found {
  FoundBy by;
  std::string directory;
};

// What the loader will find for dsworker, without us.
std::optional<Found> found_by_worker(const std::string& inherited) {
  constexpr std::string_view kOrigin = "$ORIGIN";
  const std::string bin = fs::path(own_program()).parent_path().string();
  for (const auto& directory : split(inherited, ':')) {
    if (!directory.empty() && holds_torch(directory)) return Found{FoundBy::kPath, directory};
  }
  for (const auto& directory : split(elf_run_path(bin + "/dsworker"), ':')) {
    const bool is_relative = directory.starts_with(kOrigin);
    const std::string place = is_relative ? bin + directory.substr(kOrigin.size()) : directory;
    if (place.empty() || !holds_torch(place)) continue;
    return Found{is_relative ? FoundBy::kPlaceOfProgram : FoundBy::kPath, fs::path(place).lexically_normal().string()};
  }
  return std::nullopt;
}

// The CUDA module names NVIDIA's libraries, which PyPI's packages have beside torch.
std::string with_inherited(const std::string& torch_lib, const std::string& inherited) {
  std::string path = torch_lib;
  for (const char* library : {"nccl", "cu13"}) {
    const fs::path directory = fs::path(torch_lib) / "../../nvidia" / library / "lib";
    if (::access(directory.c_str(), R_OK) == 0) path += ":" + directory.lexically_normal().string();
  }
  return inherited.empty() ? path : path + ":" + inherited;
}

}  // namespace

std::vector<std::string> python_environments() {
  std::vector<std::string> found;
  const auto add = [&](const fs::path& environment) {
    std::error_code ignored;
    if (environment.is_absolute() && fs::is_directory(environment, ignored)) found.push_back(environment.string());
  };
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) add(variable(name));
  const fs::path cache = variable("XDG_CACHE_HOME");
  add((cache.empty() ? fs::path(variable("HOME")) / ".cache" : cache) / "dslaunch" / "torch-" DSL_TORCH_VERSION);
  return found;
}

std::optional<std::string> torch_library_path(const std::string& inherited, bool is_copied) {
  if (const std::string given = variable("DSLAUNCH_TORCH_LIB"); !given.empty()) {
    if (holds_torch(given)) return with_inherited(given, inherited);
    throw UserError(ExitCode::kNoInput,
                    fmt::format("DSLAUNCH_TORCH_LIB is {}, but libtorch_cpu.so is not there: set it to the directory "
                                "torch/lib of PyTorch " DSL_TORCH_VERSION,
                                given));
  }
  if (const auto found = found_by_worker(inherited)) {
    if (found->by == FoundBy::kPath || !is_copied) return std::nullopt;
    return with_inherited(found->directory, inherited);
  }
  for (const auto& environment : python_environments()) {
    if (const auto torch_lib = torch_lib_of(environment); !torch_lib.empty())
      return with_inherited(torch_lib, inherited);
  }
  return std::nullopt;
}

}  // namespace dslaunch::launch
