#include "other_launchers.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace dslaunch::launcher {
namespace {

// What reads options in front of its program, and the programs that start others by themselves.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "", "python"},
    {"deepspeed", "", "python", false, true},
    {"accelerate", "launch", "python", true},
    {"composer", "", "python"},
    {"colossalai", "run", "python"},
    {"srun", "", "", true},
    {"mpirun", "", "", true},
    {"mpiexec", "", "", true},
    {"horovodrun", "", "", true},
    {"tune", "run", "tune run"},
    {"llamafactory-cli", "train", "python -m llamafactory.launcher"},
    {"axolotl", "train", "python -m axolotl.cli.train"},
    {"bash", "", "bash"},
    {"sh", "", "sh"},
};

// What `python -m` starts, as a launcher of the table.
constexpr Launcher kModules[] = {
    {"torch.distributed.run", "", "python"},
    {"torch.distributed.launch", "", "python", false, true},
    {"deepspeed", "", "python", false, true},
    {"deepspeed.launcher.runner", "", "python", false, true},
    {"accelerate.commands.launch", "", "python", true},
};

constexpr RenamedOption kRenamed[] = {
    {"-n", "--num_gpus"},
    {"-np", "--num_gpus"},
    {"--np", "--num_gpus"},
    {"--ntasks", "--num_gpus"},
    {"--num_processes", "--num_gpus"},
    {"--ntasks_per_node", "--nproc_per_node"},
    {"--gpus_per_node", "--nproc_per_node"},
    {"-N", "--num_nodes"},
    {"--nodes", "--num_nodes"},
    {"-machinefile", "--hostfile"},
    {"-hostfile", "--hostfile"},
    {"--machinefile", "--hostfile"},
    {"--local_addr", "--master_addr"},
    {"--min_elastic_nodes", "--min_nodes"},
    {"--max_elastic_nodes", "--num_nodes"},
    {"--gpu_ids", "--include"},
    {"--cpu", "--device cpu"},
    {"--use_cpu", "--device cpu"},
    {"--enable_cpu_affinity", "--numa_binding node"},
    {"--num_cpu_threads_per_process", "OMP_NUM_THREADS"},
    {"--mixed_precision", "ACCELERATE_MIXED_PRECISION"},
    {"--dynamo_backend", "ACCELERATE_DYNAMO_BACKEND"},
    {"--deepspeed_config_file", "ACCELERATE_DEEPSPEED_CONFIG_FILE"},
    {"--zero_stage", "ACCELERATE_DEEPSPEED_ZERO_STAGE"},
    {"--offload_optimizer_device", "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"},
    {"--offload_param_device", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"},
    {"--zero3_init_flag", "ACCELERATE_DEEPSPEED_ZERO3_INIT"},
    {"--zero3_save_16bit_model", "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"},
    {"--gradient_accumulation_steps", "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"},
    {"--gradient_clipping", "ACCELERATE_GRADIENT_CLIPPING"},
    {"--use_deepspeed", "ACCELERATE_USE_DEEPSPEED=true"},
    {"--use_fsdp", "ACCELERATE_USE_FSDP=true"},
};

// Options whose values no option here has.
struct Reason {
  std::string_view name, text;
};
constexpr std::string_view kHosts = "hosts are lines of a --hostfile";
constexpr Reason kReasons[] = {
    {"-H", kHosts}, {"-host", kHosts}, {"--host", kHosts}, {"--config_file", "write its values as options"}};

// Options without a value in front of a program, which is the word behind them.
constexpr std::string_view kSwitches[] = {"--no_python",
                                          "--use_env",
                                          "--run_path",
                                          "--virtual_local_rank",
                                          "--elastic_training",
                                          "--multi_gpu",
                                          "--use_deepspeed",
                                          "--use_fsdp",
                                          "--cpu",
                                          "--debug",
                                          "--allow_run_as_root",
                                          "--oversubscribe",
                                          "--exclusive",
                                          "--tpu",
                                          "--same_network",
                                          "--force_multi"};

template <class Rows>
const auto* row_named(const Rows& rows, std::string_view name) {
  const auto found = std::find_if(std::begin(rows), std::end(rows), [&](const auto& row) { return row.name == name; });
  return found == std::end(rows) ? nullptr : &*found;
}

std::string file_name(const std::string& word) {
  return std::filesystem::path(word).filename().string();
}

}  // namespace

const Launcher* find_launcher(const std::string& word) {
  return row_named(kLaunchers, file_name(word));
}

const Launcher* find_module_launcher(const std::string& module) {
  return row_named(kModules, module);
}

const RenamedOption* find_renamed_option(const std::string& name) {
  return row_named(kRenamed, name);
}

std::string_view reason_against(const std::string& name) {
  const auto* row = row_named(kReasons, name);
  return row == nullptr ? std::string_view() : row->text;
}

bool is_launcher_switch(const std::string& name) {
  return std::find(std::begin(kSwitches), std::end(kSwitches), name) != std::end(kSwitches);
}

bool is_python(const std::string& word) {
  const std::string name = file_name(word);
  return name.starts_with("python") && name.find_first_not_of("0123456789.", 6) == name.npos;
}

bool is_other_launcher(const std::string& word) {
  return find_launcher(word) != nullptr || is_python(word);
}

bool ends_as_program(const std::string& word) {
  const std::string ending = std::filesystem::path(word).extension().string();
  return ending == ".py" || ending == ".pyc" || ending == ".sh" || ending == ".bash";
}

}  // namespace dslaunch::launcher
