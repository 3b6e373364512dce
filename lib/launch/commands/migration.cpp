#include "launch/commands/migration.hpp"

#include <algorithm>
#include <iterator>

#include "base/format.hpp"

namespace dslaunch::launch {
namespace {

constexpr auto kHonoured = Disposition::kHonoured;
constexpr auto kRenamed = Disposition::kRenamed;
constexpr auto kNotNeeded = Disposition::kNotNeeded;
constexpr auto kRefused = Disposition::kRefused;

std::string normal(std::string_view option) {
  std::string name(option.substr(0, option.find('=')));
  if (name == "-m") return "--module";  // torchrun's; the other short options exist here too
  for (size_t i = 2; i < name.size(); ++i) name[i] = name[i] == '-' ? '_' : name[i];
  return name;
}

}  // namespace

// Long on purpose: one line per flag.
const std::vector<MigratedFlag>& migrated_flags() {
  static const std::vector<MigratedFlag> flags = {
      {"--hostfile", "deepspeed", kHonoured, "/job/hostfile where it exists; a file that is named must exist; also -H"},
      {"--include", "deepspeed", kHonoured, "a bare host means all of its slots; also -i"},
      {"--exclude", "deepspeed", kHonoured, "also -e"},
      {"--num_nodes", "deepspeed", kHonoured, "asking for more than there are is an error"},
      {"--num_gpus", "deepspeed", kHonoured,
       "checked against the hostfile and the devices; on CPU the number of ranks"},
      {"--num_accelerators", "deepspeed", kHonoured, "an alias of --num_gpus"},
      {"--master_port", "deepspeed, torchrun", kHonoured, "without it the kernel chooses a free port"},
      {"--master_addr", "deepspeed, torchrun", kHonoured, ""},
      {"--deepspeed_config", "deepspeed", kHonoured, "the same as --config; for exec it goes behind the program"},
      {"--deepspeed", "deepspeed", kNotNeeded,
       "dslaunch is the runtime; with a file, as in --deepspeed F.json of Trainer, it is --config F"},
      {"--deepscale", "deepspeed", kNotNeeded, "dslaunch is the runtime; give the config with --config F"},
      {"--deepscale_config", "deepspeed", kHonoured, "the same as --config; for exec it goes behind the program"},
      {"--no_python", "deepspeed, torchrun", kNotNeeded, "'dslaunch exec -- PROGRAM ARGS' starts any program as it is"},
      {"--module", "deepspeed, torchrun", kRenamed, "'exec -- python -m MODULE ARGS'"},
      {"--no_local_rank", "deepspeed", kHonoured,
       "no --local_rank argument is added without --add_local_rank; LOCAL_RANK is in the environment"},
      {"--local_rank", "deepspeed", kNotNeeded,
       "LOCAL_RANK is in the environment; exec --add_local_rank appends it for scripts that read the argument"},
      {"--save_pid", "deepspeed", kHonoured,
       "the pid is in launcher.pid of the job directory, not under a guessable name in /tmp"},
      {"--enable_each_rank_log", "deepspeed", kHonoured,
       "all files are on the launching host, also those of ranks on other hosts"},
      {"--force_multi", "deepspeed", kHonoured, "every node takes the same path, one or many"},
      {"--launcher", "deepspeed", kRefused,
       "leave it out: hosts are reached through SSH, inside a Slurm allocation through srun; no pdsh or mpirun is "
       "needed"},
      {"--launcher_args", "deepspeed", kRefused,
       "there is no underlying launcher; options for ssh go into ~/.ssh/config"},
      {"--no_ssh_check", "deepspeed", kHonoured, "all hosts are tried at once, and each failure is reported"},
      {"--node_rank", "deepspeed, torchrun", kHonoured,
       "with --no_ssh or --nnodes, where every node is started by hand"},
      {"--no_ssh", "deepspeed", kHonoured, "the nodes connect to node rank 0 at --master_addr"},
      {"--ssh_port", "deepspeed", kHonoured, "for hosts whose line in the hostfile has no port"},
      {"--venv_script", "deepspeed", kHonoured,
       "only DIR/bin/activate, which is --venv DIR: no shell runs on the hosts"},
      {"--autotuning", "deepspeed", kRefused, "there is no tuner"},
      {"--elastic_training", "deepspeed", kRefused,
       "the number of ranks does not change while a job runs; --max_restarts N with --min_nodes M restarts it on the "
       "hosts that are left"},
      {"--min_elastic_nodes", "deepspeed", kRenamed, "--min_nodes N, with --max_restarts"},
      {"--max_elastic_nodes", "deepspeed", kRenamed, "--num_nodes N"},
      {"--bind_cores_to_rank", "deepspeed", kHonoured,
       "without the program numactl; memory too if a rank's cores are on one NUMA node"},
      {"--bind_core_list", "deepspeed", kHonoured, "binds by itself; a core that may not be used is an error"},
      {"--quiet", "deepspeed", kHonoured, "also -q; with exec, programs' output is still shown"},
      {"--log_level", "deepspeed", kRenamed, "--quiet or --verbose"},
      {"--nproc_per_node", "torchrun", kHonoured, "also auto, gpu and cpu; without it every GPU is used"},
      {"--nproc", "torchrun", kHonoured, "an alias of --nproc_per_node"},
      {"--nnodes", "torchrun", kHonoured,
       "MIN:MAX is --min_nodes MIN --num_nodes MAX; with --node_rank every node is started by hand"},
      {"--standalone", "torchrun", kHonoured, "one host with a free port is the default"},
      {"--rdzv_backend", "torchrun", kNotNeeded, "the job's own agent serves the rendezvous"},
      {"--rdzv_endpoint", "torchrun", kRenamed, "--master_addr A --master_port P"},
      {"--rdzv_id", "torchrun", kNotNeeded, "every job gets its own id"},
      {"--rdzv_conf", "torchrun", kNotNeeded, "the job's own agent serves the rendezvous"},
      {"--max_restarts", "torchrun", kHonoured, "restarts the whole job; dsworker resumes from its newest checkpoint"},
      {"--monitor_interval", "torchrun", kNotNeeded, "the exit of a rank is detected at once"},
      {"--start_method", "torchrun", kNotNeeded, "ranks are started by fork and exec"},
      {"--event_log_handler", "torchrun", kRefused, "there is no such hook; --json reports the job's end"},
      {"--role", "torchrun", kNotNeeded, "all ranks have the role 'default'"},
      {"--run_path", "torchrun", kRefused, "start the interpreter: 'exec -- python SCRIPT'"},
      {"--log_dir", "torchrun", kHonoured,
       "for --tee and --redirects; default: D/logs with --run_dir D, else logs in the job directory"},
      {"--redirects", "torchrun", kHonoured,
       "LOG_DIR/JOB/attempt_N/RANK/stdout.log on the launching host; local ranks of any length; also -r"},
      {"--tee", "torchrun", kHonoured, "files as with --redirects; shown lines begin with host:rank; also -t"},
      {"--local_ranks_filter", "torchrun", kHonoured, "on every host; the logs stay complete"},
      {"--duplicate_stdout_filters", "torchrun", kRefused, "filter the logs in RUN_DIR/logs"},
      {"--duplicate_stderr_filters", "torchrun", kRefused, "filter the logs in RUN_DIR/logs"},
      {"--local_addr", "torchrun", kRenamed, "--master_addr A"},
      {"--logs_specs", "torchrun", kRefused, "there are no plug-ins"},
      {"--numa_binding", "torchrun", kHonoured, "without the program numactl; none: GPU ranks are not bound"},
      {"--signals_to_handle", "torchrun", kNotNeeded,
       "SIGINT, SIGTERM and SIGHUP stop the job, SIGUSR1 and SIGUSR2 are passed on to programs, and stop a run"},
      {"--virtual_local_rank", "torchrun", kRefused, "a program sees all devices of its node; dsworker sees one"},
  };
  return flags;
}

bool takes_value(std::string_view option) {
  static constexpr std::string_view kWithout[] = {"--deepspeed", "--deepscale", "--no_python"};
  return std::find(std::begin(kWithout), std::end(kWithout), normal(option)) == std::end(kWithout);
}

bool is_not_needed(std::string_view option) {
  const auto& flags = migrated_flags();
  return std::any_of(flags.begin(), flags.end(), [name = normal(option)](const auto& flag) {
    return name == flag.flag && flag.disposition == kNotNeeded;
  });
}

std::optional<std::string> migration_answer(std::string_view option) {
  std::string name = normal(option);
  const auto& flags = migrated_flags();
  auto found = std::find_if(flags.begin(), flags.end(), [&](const auto& flag) { return name == flag.flag; });
  if (found == flags.end() || found->disposition == kHonoured) return std::nullopt;
  switch (found->disposition) {
    case kRenamed:
      return fmt::format("{} of {} is called {} in dslaunch", found->flag, found->from, found->text);
    case kNotNeeded:
      return fmt::format("{} of {} is not needed: {}", found->flag, found->from, found->text);
    default:
      return fmt::format("{} of {} is not supported: {}", found->flag, found->from, found->text);
  }
}

}  // namespace dslaunch::launch
