#include "help_topics.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {
namespace {

constexpr const char* kExamples =
    "  dslaunch model.pt --config ds.json                       train as the config says\n"
    "  dslaunch model.pt --data train.safetensors --num_gpus 2  two ranks, default settings\n"
    "  dslaunch --hostfile hosts model.pt --config ds.json      several machines, through SSH\n"
    "  dslaunch resume                                          continue the newest run of this directory\n"
    "  dslaunch exec --num_gpus 8 -- python train.py            any program, torchrun's environment\n";

// The options of the first help.
constexpr const char* kCommon[] = {"--config",   "--set",    "--data",     "--steps",   "--epochs",
                                   "--num_gpus", "--device", "--hostfile", "--run_dir", "--resume",
                                   "--name",     "--detach", "--dry_run"};

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool is_common(const CLI::Option& option) {
  return std::any_of(std::begin(kCommon), std::end(kCommon),
                     [&](const char* name) { return option.check_lname(std::string(name).substr(2)); });
}

}  // namespace

const std::vector<HelpTopic>& help_topics() {
  static const std::vector<HelpTopic> topics{
      {"job",
       "config, length, resuming, evaluation, verification",
       {kJobGroup, kParallelGroup},
       "  dslaunch model.pt --config ds.json --set optimizer.params.lr=1e-4 --steps 1000\n"
       "  dslaunch model.pt --config ds.json --resume runs/a --eval_only     its loss on data.eval\n"
       "  dslaunch model.pt --config ds.json --verify 20                     20 steps beside an unsharded replica\n"
       "  dslaunch model.pt --config ds.json --trace 10 --timings            where step 10's and all other time went\n"
       "  dslaunch config explain --key optimizer                            the keys of a config section\n"},
      {"data",
       "files, arrays, losses",
       {kDataGroup},
       "  dslaunch model.pt --data train.safetensors                   arrays; all but labels, label, y are inputs\n"
       "  dslaunch model.pt --data 'shards/*.npz' --inputs a,b --labels c\n"
       "  dslaunch model.pt --data tokens.bin --set data.seq_len=1024  a stream of tokens (data.dtype uint16)\n"
       "  dslaunch tokenize chats.jsonl train.safetensors --seq 512 --tokenizer DIR   texts, tables, images\n"
       "Formats: .safetensors, .npy, .npz, token streams, Megatron's .bin/.idx; 'synthetic' needs no file. Where\n"
       "forward returns no loss: --loss cross_entropy, mse or a TorchScript file. More keys: 'dslaunch config\n"
       "explain --key data'; docs/data.md.\n"},
      {"devices",
       "ranks, GPUs, cores",
       {"Devices and hosts", "Cores"},
       "  dslaunch --num_gpus 2 model.pt --config ds.json     two GPUs; without a GPU two CPU ranks\n"
       "  dslaunch --device cpu --num_gpus 4 --bind_cores_to_rank model.pt --config ds.json\n"},
      {"hosts",
       "several machines: SSH, Slurm, manual start",
       {"Devices and hosts", "Remote hosts"},
       "  dslaunch hosts --hostfile hosts --include a:0,1               what a hostfile resolves to\n"
       "  dslaunch --hostfile hosts --push model.pt --config ds.json    copies the programs to the hosts first\n"
       "Inside salloc or sbatch the hosts come from Slurm. docs/clusters.md.\n"},
      {"launch",
       "environment, directories, time limits, restarts",
       {"Launch"},
       "  dslaunch model.pt --config ds.json --detach --name bert --max_restarts 3\n"
       "  dslaunch exec --env NCCL_DEBUG=INFO --venv ~/venv -- python train.py\n"},
      {"output",
       "which lines go where",
       {"Output"},
       "  dslaunch exec --num_gpus 8 --tee 3 --log_dir logs -- python train.py\n"},
      {"migrating",
       "options of deepspeed and torchrun",
       {"torchrun's options", "Cores"},
       "  dslaunch exec --nproc_per_node 8 --nnodes 1 -- python train.py\n"
       "  dslaunch exec --num_gpus 8 --add_local_rank -- python train.py --deepspeed_config ds.json\n"
       "Every option of both programs is honoured, not needed (accepted, with a line), or answered with its\n"
       "counterpart: docs/migrating.md.\n"},
  };
  return topics;
}

const HelpTopic* find_topic(std::string_view name) {
  const auto& topics = help_topics();
  const auto found = std::find_if(topics.begin(), topics.end(), [&](const auto& topic) { return topic.name == name; });
  return found == topics.end() ? nullptr : &*found;
}

std::string help_usage(const std::string& topic) {
  const HelpTopic* found = find_topic(topic);
  return found == nullptr ? "usage: dslaunch [run] [options] MODEL.pt [--config FILE]"
                          : fmt::format("{}: {}", found->name, found->about);
}

std::string help_text(const std::string& topic) {
  if (const HelpTopic* found = find_topic(topic)) return found->text;
  std::string text = fmt::format("{}\nCommands:\n{}", kExamples, command_list());
  if (topic == kAllOptions) return text;
  text += "Topics: dslaunch help ";
  for (const auto& each : help_topics()) text += fmt::format("{} | ", each.name);
  return text + kAllOptions + "; of a command: dslaunch help COMMAND; a manual page: dslaunch help --man [COMMAND]\n";
}

void choose_help(CommandLine& line, const std::string& topic) {
  if (topic == kAllOptions) return;
  const HelpTopic* found = find_topic(topic);
  for (CLI::Option* option : line.app().get_options()) {
    const bool is_shown = found == nullptr ? is_common(*option) : contains(found->groups, option->get_group());
    if (!is_shown) {
      option->group("");
    } else if (found == nullptr) {
      option->group("Options");
    }
  }
}

}  // namespace dslaunch::launcher
