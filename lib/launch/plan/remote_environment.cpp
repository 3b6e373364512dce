#include "launch/plan/remote_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"
#include "base/format.hpp"
#include "ports/process_info.hpp"
#include "rendezvous/launch_env.hpp"

namespace dslaunch::launch {
namespace {

// Prefixes: interpreter and libraries, communication, devices, threads, training, tracking and clouds.
constexpr auto kExported =
    std::to_array<std::string_view>({"PYTHON",   "LD_LIBRARY_PATH", "NCCL",        "UCX",         "MV2",
                                     "FI_",      "GLOO_",           "RDMAV_",      "IBV_",        "MLX5_",
                                     "CUDA_",    "CUBLAS",          "CUDNN",       "NVTE_",       "TORCH",
                                     "PYTORCH",  "TRITON_",         "OMP_",        "GOMP_",       "KMP_",
                                     "MKL_",     "OPENBLAS_",       "DSLAUNCH_",   "DEEPSPEED_",  "DS_",
                                     "HF_",      "TRANSFORMERS_",   "TOKENIZERS_", "WANDB_",      "MLFLOW",
                                     "AZUREML_", "AML_RUN_ID",      "NEBULA_",     "DLTS_JOB_ID", "DLTS_NUM_WORKER"});

// They match a prefix above, but describe this machine, or an enclosing job.
constexpr auto kStaying = std::to_array<std::string_view>(
    {"CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "TORCHELASTIC_", "DS_ENV_FILE", ports::kJobIdVariable,
     rendezvous::kTokenVariable, ports::kAgentVariable, "DSLAUNCH_RANK_HOSTS", "DSLAUNCH_HOST"});

template <class Prefixes>
bool begins_with_one(std::string_view name, const Prefixes& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_program(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

Environment exported_environment(const Environment& inherited) {
  Environment exported;
  for (const auto& [name, value] : inherited) {
    if (begins_with_one(name, kExported) && !begins_with_one(name, kStaying)) exported.emplace(name, value);
  }
  // This cloud's machines have different network cards; DeepSpeed makes the same exception.
  if (inherited.contains("AISC_JOB_NAME")) {
    exported.erase("NCCL_IB_HCA");
    exported.erase("UCX_NET_DEVICES");
  }
  return exported;
}

Environment merged_environment(Environment login, const Environment& sent) {
  for (const auto& [name, value] : sent) login[name] = value;
  return login;
}

void apply_venv(Environment& env, const std::string& dir) {
  std::filesystem::path programs = std::filesystem::path(dir) / "bin";
  if (!is_program(programs / "python")) {
    throw UserError(
        ExitCode::kNoInput,
        fmt::format("--venv {}: {} is not an executable on this host; create the virtual environment there too, or "
                    "put it into a directory that all hosts share",
                    dir, (programs / "python").string()));
  }
  auto path = env.find("PATH");
  std::string rest = path == env.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  env["PATH"] = programs.string() + (rest.empty() ? "" : ":" + rest);
  env["VIRTUAL_ENV"] = dir;
  env.erase("PYTHONHOME");
}

std::string venv_of_script(const std::string& script) {
  std::filesystem::path path(script);
  if (path.filename() == "activate" && path.parent_path().filename() == "bin") {
    std::string dir = path.parent_path().parent_path().string();
    return dir.empty() ? "." : dir;
  }
  throw UserError(ExitCode::kUsage,
                  fmt::format("--venv_script {}: only DIR/bin/activate of a virtual environment is supported, which is "
                              "--venv DIR; no shell runs on the hosts, so put the variables of another script into a "
                              "file for --env_file",
                              script));
}

}  // namespace dslaunch::launch
