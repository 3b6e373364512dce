#include "options.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "base/format.hpp"
#include "base/log.hpp"
#include "base/nearest_name.hpp"
#include "base/shell_words.hpp"
#include "command_line.hpp"
#include "command_line/infer_options.hpp"
#include "command_line/serve_options.hpp"
#include "commands.hpp"
#include "compat_options.hpp"
#include "config/key_table.hpp"
#include "everyday_options.hpp"
#include "exec_line.hpp"
#include "help_topics.hpp"
#include "launch/plan/env_file.hpp"
#include "launch/plan/master_address.hpp"
#include "launch/plan/model_file.hpp"
#include "launch/plan/remote_environment.hpp"
#include "launch/records/job_id.hpp"
#include "option_values.hpp"
#include "other_launchers.hpp"
#include "output_options.hpp"
#include "recorded_jobs.hpp"
#include "run_flags.hpp"

namespace dslaunch::launcher {
namespace {

using launch::LaunchOptions;
using namespace std::chrono_literals;

// Values that cannot be bound to their targets directly.
struct RawLaunch {
  std::string device = "auto";
  std::vector<std::string> env;
  std::string venv_script;
  CompatOptions compat;
  RawOutput output;
  std::optional<std::chrono::milliseconds> connect_timeout;
};

CLI::Option* repeatable(CLI::Option* option) {
  return option->allow_extra_args(false);
}

void add_host_options(CommandLine& line, hostfile::HostOptions& hosts, RawLaunch& raw) {
  line.group("Devices and hosts");
  line.value("--device", raw.device, "auto: GPUs if any are visible, else CPU", "auto|cpu|cuda");
  line.value("--num_gpus,--num_accelerators", hosts.num_gpus, "GPUs of each host; on CPU the number of ranks", "N");
  line.value("--num_nodes", hosts.num_nodes, "the first N hosts of the hostfile", "N");
  line.value("-H,--hostfile", hosts.hostfile, "lines 'HOST slots=N'", "FILE");
  line.text_or_nothing("-i,--include", hosts.include, "only these: HOST[:SLOT,...][@HOST...]", "HOSTS");
  line.text_or_nothing("-e,--exclude", hosts.exclude, "all but these", "HOSTS");
}

void add_reach_options(CommandLine& line, LaunchOptions& to, RawLaunch& raw) {
  line.group("Remote hosts");
  line.value("--ssh_port", to.reach.ssh.port, "for hosts whose line has no port", "PORT");
  line.value("--ssh_program", to.reach.ssh.program, "reach hosts through this program instead of libssh", "ssh");
  line.value("--remote_path", to.reach.remote_path, "directory of the programs on the hosts; default: the same as here",
             "DIR");
  line.flag("--push", to.reach.push, "copy the programs to the hosts, once, into the user's cache");
  line.duration("--connect_timeout", raw.connect_timeout,
                "to connect to each host and receive its agent's greeting (35 s, 15 s of them to connect)", 1ms);
  line.duration("--lost_after", to.reach.silence_limit,
                "a host whose agent sends no heartbeat for this time is lost (20 s)", 1s);
  line.flag("--no_ssh", to.hosts.no_ssh,
            "the same command is started on every node; with --node_rank and --master_addr");
  line.value("--node_rank", to.hosts.node_rank, "the rank of this node; 0 is the launcher", "K");
  line.duration("--join_timeout", to.join_timeout, "for all nodes of --no_ssh to connect (10 min; 0: no limit)");
}

void add_launch_options(CommandLine& line, LaunchOptions& to, RawLaunch& raw) {
  add_host_options(line, to.hosts, raw);
  add_reach_options(line, to, raw);
  add_compat_options(line, raw.compat);
  line.group("Launch");
  line.value("--master_addr", to.hosts.master_addr, "address of the ranks' rendezvous", "ADDR");
  line.value("--master_port", to.hosts.master_port, "its port; default: a free one chosen by the kernel", "PORT");
  line.duration("--timeout", to.timeout, "end the job after this time (exit code 124); 0: no limit");
  line.duration("--grace", to.grace,
                "time between SIGTERM and SIGKILL when ranks are stopped (15 s; 0: SIGKILL at once)");
  repeatable(line.value("--env", raw.env, "set in every rank's environment; repeatable", "NAME=VALUE"));
  line.value("--max_restarts", to.max_restarts, "restart the whole job up to N times when a rank or a host fails", "N");
  line.value("--min_nodes", to.min_nodes, "restart without lost hosts while at least N are left", "N");
  repeatable(
      line.value("--env_file", to.env_files, "lines NAME=VALUE for every rank's environment; repeatable", "FILE"));
  line.value("--venv", to.venv, "Python's virtual environment, active in every rank on every host", "DIR");
  line.value("--venv_script", raw.venv_script, "DIR/bin/activate: the same as --venv DIR", "FILE");
  line.value("--chdir", to.chdir, "working directory of the ranks", "DIR");
  line.value("--run_dir", to.run_dir, "directory for logs and results", "DIR");
  line.value("--name", to.name, "a name for the job, for 'dslaunch logs NAME', 'resume NAME' and so on", "NAME");
  line.flag("--detach", to.detach, "run in the background; see 'dslaunch jobs', 'logs', 'attach', 'stop'");
  line.flag("--dry_run", to.dry_run, "print what would be started, start nothing");
  line.flag("--json", to.json, "one JSON document on standard output; all else goes to standard error");
  line.flag("-q,--quiet", to.quiet,
            "only errors of dslaunch, and warnings of workers; the ranks' output goes to the logs");
  line.flag("--verbose", to.verbose, "dslaunch's lines with the time since the start; workers log more");
  add_output_options(line, raw.output);
}

launch::DeviceChoice device_choice(const std::string& word) {
  static const std::map<std::string, launch::DeviceChoice> choices{{"auto", launch::DeviceChoice::kAuto},
                                                                   {"cpu", launch::DeviceChoice::kCpu},
                                                                   {"cuda", launch::DeviceChoice::kCuda},
                                                                   {"gpu", launch::DeviceChoice::kCuda}};
  auto found = choices.find(word);
  if (found == choices.end()) usage_error(fmt::format("--device {}: expected auto, cpu or cuda", word));
  return found->second;
}

std::pair<std::string, std::string> assignment(const std::string& option, const std::string& text) {
  size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) usage_error(fmt::format("{} {}: write NAME=VALUE", option, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

std::pair<std::string, std::string> variable(const std::string& text) {
  auto both = assignment("--env", text);
  if (!launch::is_variable_name(both.first))
    usage_error(fmt::format("--env {}: '{}' is not a variable name", text, both.first));
  return both;
}

void check_nodes(const LaunchOptions& to) {
  const hostfile::HostOptions& hosts = to.hosts;
  if (to.max_restarts < 0) usage_error(fmt::format("--max_restarts {}: expected 0 or more", to.max_restarts));
  if (to.min_nodes && *to.min_nodes < 1) usage_error(fmt::format("--min_nodes {}: expected at least 1", *to.min_nodes));
  if (to.reach.push && !to.reach.remote_path.empty()) usage_error("--push and --remote_path exclude each other");
  if (to.reach.push && hosts.no_ssh) usage_error("--push copies over SSH, which --no_ssh does not use");
  if (hosts.node_rank && *hosts.node_rank < 0)
    usage_error(fmt::format("--node_rank {}: expected 0 or more", *hosts.node_rank));
  if (!hosts.no_ssh) return;
  if (!hosts.hostfile && !hosts.num_nodes)
    usage_error("--no_ssh needs --num_nodes N or --hostfile F: how many nodes are there?");
  if (!hosts.hostfile && hosts.master_addr.empty()) {
    usage_error("--no_ssh needs --master_addr A: the address of node rank 0, the same on every node");
  }
}

void check_name(const std::string& name) {
  constexpr size_t kMaxBytes = 64;
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-'; };
  if (name.empty()) return;
  if (name.size() > kMaxBytes || !std::all_of(name.begin(), name.end(), is_plain) ||
      !std::isalnum(static_cast<unsigned char>(name[0]))) {
    usage_error(
        fmt::format("--name {}: expected up to {} letters, digits, '.', '_' and '-', of which the first is a "
                    "letter or a digit",
                    name, kMaxBytes));
  }
  if (name == "last" || launch::is_job_id(name)) {
    usage_error(fmt::format("--name {}: the commands on jobs take this word for another job", name));
  }
}

void finish_launch_options(LaunchOptions& to, const RawLaunch& raw) {
  check_name(to.name);
  const hostfile::HostOptions& hosts = to.hosts;
  to.device = device_choice(raw.device);
  finish_compat_options(to, raw.compat);
  if (raw.connect_timeout) to.reach.ssh.connect_timeout = to.reach.greeting_timeout = *raw.connect_timeout;
  if (to.timeout == 0ms) to.timeout.reset();
  to.output = read_output_choices(raw.output);
  if (!raw.venv_script.empty()) to.venv = launch::venv_of_script(raw.venv_script);
  check_nodes(to);
  if (!hosts.master_addr.empty()) launch::check_spelling_of_master_address(hosts.master_addr);
  for (const auto& text : raw.env) to.env.push_back(variable(text));
  if (hosts.num_gpus && *hosts.num_gpus < 1)
    usage_error(fmt::format("--num_gpus {}: expected at least 1", *hosts.num_gpus));
  if (hosts.num_nodes && *hosts.num_nodes < 1)
    usage_error(fmt::format("--num_nodes {}: expected at least 1", *hosts.num_nodes));
  if (to.min_nodes && to.max_restarts == 0) {
    log::warning("--min_nodes {} (or --nnodes MIN:MAX) has no effect without --max_restarts N: nothing is restarted",
                 *to.min_nodes);
  }
}

void tell_not_needed(const std::vector<std::string>& lines, const LaunchOptions& options) {
  if (options.quiet) return;
  for (const auto& line : lines) log::info("{}", line);
}

// DeepSpeed's names of --config, which its scripts take.
void rename_config_option(std::string& word) {
  std::string name = word.substr(0, word.find('='));
  std::replace(name.begin(), name.end(), '-', '_');
  if (name == "__deepspeed_config" || name == "__deepscale_config") word = "--config" + word.substr(name.size());
}

// Of `exec`: the config is an argument of the program.
void refuse_config(const std::vector<std::string>& leftover) {
  for (const auto& word : leftover) {
    const std::string name = word.substr(0, word.find('='));
    if (name != "--config" && name != "--deepspeed_config" && name != "--deepscale_config") continue;
    usage_error(
        fmt::format("{} belongs to 'dslaunch run'; a program takes its config behind the '--': dslaunch exec "
                    "[options] -- PROGRAM {} FILE",
                    name, name));
  }
}

void check_evaluation_and_verification(const launch::RunOptions& run) {
  if (!run.flags.has("--eval_only")) return;
  if (run.flags.has("--verify")) usage_error("--verify compares training steps, and --eval_only takes none");
  if (run.flags.has("--trace")) usage_error("--trace shows a training step, and --eval_only takes none");
  if (run.overwrite)
    usage_error("--eval_only adds to a run directory; --overwrite would discard the run that it holds");
}

void check_run_options(const launch::RunOptions& run) {
  check_run_flags(run.flags);
  if (run.overwrite && run.flags.has("--resume")) usage_error("--resume and --overwrite exclude each other");
  check_evaluation_and_verification(run);
  for (const auto& text : run.sets) assignment("--set", text);
}

void refuse_program_words(const Arguments& arguments) {
  if (arguments.has_separator && !arguments.program.empty()) {
    usage_error(fmt::format("a model takes no arguments: '-- {}' belongs to 'dslaunch exec'", arguments.program[0]));
  }
}

// "dslaunch train.py --lr 1e-4": the words behind the program are its own, as they are.
void refuse_program(const Arguments& given) {
  if (std::none_of(given.words.begin(), given.words.end(), may_be_program)) return;
  std::vector<std::string> words = given.words;
  words.insert(words.end(), given.program.begin(), given.program.end());
  const auto line = exec_line(words);
  if (!line) return;
  if (line->file.empty())
    usage_error(fmt::format("-m names a module of Python, not a model: did you mean {}", line->text()));
  if (is_other_launcher(line->file))
    usage_error(fmt::format("{} is a launcher, not a model: did you mean {}", line->file, line->text()));
  launch::refuse_program(line->file, line->text());
  if (std::find(given.words.begin(), given.words.end(), "--no_python") != given.words.end())
    usage_error(fmt::format("--no_python starts a program, not a model: did you mean {}", line->text()));
}

// "dslaunch exec python train.py"
void refuse_words_as_program(const Arguments& given) {
  if (given.has_separator) return;
  if (const auto line = exec_line(given.words))
    usage_error(fmt::format("put '--' before the program: did you mean {}", line->text()));
}

// A second word without an option: a command behind its model, a mistyped command, a config or data without the option.
void answer_stray_word(CommandLine& line, const std::vector<std::string>& words,
                       const std::vector<std::string>& leftover) {
  const auto models = line.app().get_option("MODEL")->results();
  const auto is_word = [](const std::string& word) { return !word.starts_with("-"); };
  const auto stray = std::find_if(leftover.begin(), leftover.end(), is_word);
  if (models.empty() || stray == leftover.end() || std::find_if(leftover.begin(), stray, std::not_fn(is_word)) != stray)
    return;
  const std::string& model = models.front();
  const auto line_of = [&](std::vector<std::string> begin, const std::string& left_out,
                           const std::vector<std::string>& more) {
    bool is_left_out = false;
    for (const auto& word : words) {
      if (word == left_out && !std::exchange(is_left_out, true)) continue;
      begin.push_back(word);
    }
    begin.insert(begin.end(), more.begin(), more.end());
    return shell_words(begin);
  };
  if (find_command(*stray) != nullptr) {
    usage_error(fmt::format("'{}' is a command, which comes first: did you mean '{}'?", *stray,
                            line_of({"dslaunch", *stray}, *stray, {})));
  }
  for (const auto& [file, other] : {std::pair{*stray, model}, {model, *stray}}) {
    const std::string option = launch::option_of_file(file);
    if (option.empty()) continue;
    usage_error(fmt::format("{} is a second file without an option: did you mean '{}'?", shell_word(file),
                            line_of({"dslaunch"}, file, {option, file})));
  }
  if (stray->find('=') != stray->npos)
    usage_error(fmt::format("'{0}': a key of the config is set by --set {0}", *stray));
  if (stray->starts_with("\u2013") || stray->starts_with("\u2014")) {
    usage_error(fmt::format("'{}' begins with a long dash, as editors write it: did you mean '--{}'?", *stray,
                            stray->substr(3)));
  }
  if (std::filesystem::path(model).has_extension() || std::filesystem::exists(model)) return;
  usage_error(fmt::format("'{}' is neither a command nor a file: did you mean '{}'? See 'dslaunch --help'", model,
                          line_of({"dslaunch"}, model, {})));
}

void add_job_options(CommandLine& line, launch::RunOptions& run) {
  line.app().add_option("MODEL", run.model, "a model file written by torch.jit.save");
  line.group(kJobGroup);
  line.value("--config", run.config,
             "JSON (DeepSpeed's keys and comments) or YAML; -: standard input; or the text itself", "FILE");
  repeatable(
      line.value("--set", run.sets, "overrides the config, e.g. optimizer.params.lr=1e-4; repeatable", "KEY=VALUE"));
  add_run_flags(line, config::FlagGroup::kJob, run.flags);
  line.flag("--overwrite", run.overwrite, "discard the run that the directory holds");
  line.duration("--hang_timeout", run.hang_timeout,
                "end the job when ranks wait longer than this for another rank (exit code 124; 30 min)", 1s);
  line.flag("--timings", run.timings, "at the end, a table of where the time since the launch went");
  line.group(kParallelGroup);
  add_run_flags(line, config::FlagGroup::kParallel, run.flags);
  line.group(kDataGroup);
  add_run_flags(line, config::FlagGroup::kData, run.flags);
}

}  // namespace

std::optional<launch::RunOptions> read_run_options(const Arguments& given) {
  Arguments arguments = given;
  const auto not_needed = drop_not_needed(arguments.words);
  for (auto& word : arguments.words) rename_config_option(word);
  launch::RunOptions run;
  run.started = std::chrono::system_clock::now().time_since_epoch();
  RawLaunch raw;
  CommandLine line("dslaunch", help_usage(given.help_topic), help_text(given.help_topic));
  add_job_options(line, run);
  add_launch_options(line, run.launch, raw);
  const auto& words = arguments.words;
  refuse_program(given);
  const bool wants_help =
      std::any_of(words.begin(), words.end(), [](const auto& word) { return word == "--help" || word == "-h"; });
  if (wants_help) choose_help(line, given.help_topic);
  const auto on_leftover = [&](const std::vector<std::string>& leftover) {
    answer_wish(arguments.words, leftover);
    answer_stray_word(line, arguments.words, leftover);
  };
  if (!line.parse(arguments, on_leftover)) return std::nullopt;
  refuse_program_words(arguments);
  tell_not_needed(not_needed, run.launch);
  finish_launch_options(run.launch, raw);
  check_run_options(run);
  if (run.model.empty())
    usage_error("MODEL.pt is missing: dslaunch [options] MODEL.pt [--config FILE]; see 'dslaunch --help'");
  return run;
}

std::optional<launch::ExecOptions> read_exec_options(const Arguments& given) {
  refuse_words_as_program(given);
  Arguments arguments = given;
  const auto not_needed = drop_not_needed(arguments.words);
  launch::ExecOptions exec;
  RawLaunch raw;
  std::vector<std::string> stray;
  std::string stages, tensor;
  CommandLine line(
      "dslaunch exec", "usage: dslaunch exec [options] -- PROGRAM [ARGUMENTS...]",
      "  dslaunch exec --num_gpus 8 -- python train.py --lr 1e-4\n"
      "  dslaunch exec --device cpu --num_gpus 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE'\n"
      "  dslaunch exec --num_gpus 4 --run_dir out -- ./program   a log for every rank in out/logs\n"
      "  dslaunch exec --hostfile hosts -- python train.py       on every host, through SSH\n"
      "  dslaunch exec --hostfile hosts --detach -- ./program    in the background; see 'dslaunch jobs'\n"
      "  srun --ntasks-per-node=1 dslaunch exec -- ./program     one dslaunch per node; not needed inside sbatch\n"
      "Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, NODE_RANK, MASTER_ADDR, MASTER_PORT\n"
      "and the rest of torchrun's variables. Exit code: that of the first rank that failed.\n");
  line.app().add_option("WORDS", stray)->group("");
  add_launch_options(line, exec.launch, raw);
  line.group("");  // known, so that using them gives a specific message
  line.value("--stages", stages, "", "P");
  line.value("--tp", tensor, "", "T");
  line.group(kJobGroup);
  line.flag("--add_local_rank", exec.add_local_rank,
            "append --local_rank=N to each rank's arguments, as deepspeed and torch.distributed.launch do");
  line.flag("--overwrite", exec.overwrite, "replace the logs of an earlier job in the --run_dir");
  if (!line.parse(arguments, refuse_config)) return std::nullopt;
  tell_not_needed(not_needed, exec.launch);
  finish_launch_options(exec.launch, raw);
  if (!stages.empty()) {
    usage_error("--stages cuts the model of 'dslaunch run' into pipeline stages; exec starts any program as it is");
  }
  if (!tensor.empty()) {
    usage_error("--tp splits the layers of the model of 'dslaunch run'; exec starts any program as it is");
  }
  if (exec.overwrite && exec.launch.run_dir.empty())
    usage_error("--overwrite replaces the logs in --run_dir D: add --run_dir");
  if (!stray.empty())
    usage_error(fmt::format("unexpected argument '{}' before the '--'; see 'dslaunch exec --help'", stray[0]));
  if (arguments.program.empty())
    usage_error("the program is missing: dslaunch exec [options] -- PROGRAM [ARGUMENTS...]");
  exec.command = arguments.program;
  return exec;
}

std::optional<LaunchOptions> read_hosts_options(const Arguments& arguments) {
  LaunchOptions options;
  RawLaunch raw;
  CommandLine line("dslaunch hosts", "usage: dslaunch hosts [options]",
                   "  dslaunch hosts --hostfile hosts\n"
                   "  dslaunch hosts --hostfile hosts --exclude node3@node4:0 --json\n");
  add_host_options(line, options.hosts, raw);
  line.flag("--no_ssh", options.hosts.no_ssh, "the same command is started on every node");
  line.value("--node_rank", options.hosts.node_rank, "the rank of this node", "K");
  line.value("--master_addr", options.hosts.master_addr, "address of the ranks' rendezvous", "ADDR");
  line.value("--master_port", options.hosts.master_port, "its port", "PORT");
  line.flag("--json", options.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  finish_launch_options(options, raw);
  return options;
}

std::optional<launch::AgentCommand> read_agent_options(const Arguments& arguments) {
  launch::AgentCommand agent;
  CommandLine line("dslaunch agent", "usage: started by another dslaunch on each node of a job", "");
  line.value("--listener", agent.listener, "descriptor of the master port's socket", "FD");
  line.flag("--devices", agent.report_devices, "list the devices of this host");
  line.flag("--mark", agent.write_preamble, "write a marker before anything else");
  line.value("--stacks", agent.stacks, "only print the stacks of these processes", "PID,...");
  line.value("--sweep", agent.cleanup_job, "only end the processes of this job on this host", "JOB");
  if (!line.parse(arguments)) return std::nullopt;
  return agent;
}

namespace {

// `config explain train.seed`, where --key belongs in front.
bool is_key_rather_than_file(const std::string& word) {
  std::error_code ignored;
  return !std::filesystem::exists(word, ignored) &&
         (config::find_key(word) != nullptr || !config::paths_of_name(word).empty());
}

}  // namespace

std::optional<ConfigOptions> read_config_options(const Arguments& arguments) {
  ConfigOptions options;
  std::string what, key;
  int num_gpus = 1, num_nodes = 1;
  CommandLine line("dslaunch config", "usage: dslaunch config check FILE | explain [FILE] [options]",
                   "  dslaunch config check ds.json --world_size 8\n"
                   "  dslaunch config explain ds.json --changed         what differs from the defaults\n"
                   "  dslaunch config explain --key zero_optimization   a section and the effect of its keys\n"
                   "  dslaunch config explain ds.yaml --key lr --json\n");
  line.app().add_option("ACTION", what, "check or explain")->type_name("check|explain");
  line.app().add_option("FILE", options.file, "the config");
  line.value("--world_size", options.world_size, "ranks of the job that the batch sizes are solved for", "N");
  line.value_from(1, "--num_gpus", num_gpus, "the same in ranks of each host, as for a run", "N");
  line.value_from(1, "--num_nodes", num_nodes, "hosts (1)", "N");
  repeatable(line.value("--set", options.sets, "overrides the file; repeatable", "KEY=VALUE"));
  line.value("--key", key, "explain: only this key, or the keys of this section", "KEY");
  line.flag("--changed", options.choice.changed, "explain: only keys whose value is not the default");
  line.flag("--all", options.choice.all, "explain: also keys that have no effect here");
  line.flag("--json", options.json, "one JSON document on standard output");
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  if (what != "check" && what != "explain") {
    const auto hint = did_you_mean(what, {"check", "explain"});
    usage_error(fmt::format("{}dslaunch config check FILE, or dslaunch config explain FILE",
                            hint.empty() ? "" : fmt::format("unknown action '{}'{}: ", what, hint)));
  }
  options.explain = what == "explain";
  if (options.file.empty() && !options.explain) usage_error("which file? dslaunch config check FILE");
  if (options.explain && key.empty() && is_key_rather_than_file(options.file)) key = std::exchange(options.file, "");
  if (!options.explain && (!key.empty() || options.choice.changed || options.choice.all)) {
    usage_error("--key, --changed and --all belong to 'dslaunch config explain'");
  }
  if (!key.empty()) options.choice.path = config::find_key_by_name(key);
  if (line.app().count("--world_size") > 0 && options.world_size < 1)
    usage_error(fmt::format("--world_size {}: expected at least 1", options.world_size));
  if (line.app().count("--num_gpus") + line.app().count("--num_nodes") > 0) {
    if (line.app().count("--world_size") > 0) usage_error("--world_size and --num_gpus exclude each other");
    const int64_t world_size = int64_t{num_gpus} * num_nodes;
    if (world_size > std::numeric_limits<int>::max()) usage_error(fmt::format("{} ranks are too many", world_size));
    options.world_size = static_cast<int>(world_size);
  }
  for (const auto& text : options.sets) assignment("--set", text);
  return options;
}

std::optional<std::vector<std::string>> read_infer_options(const Arguments& arguments) {
  command_line::InferOptions options;
  CommandLine line("dslaunch infer", "usage: dslaunch infer MODEL.pt|CKPT|RUN --prompt TEXT [options]",
                   "  dslaunch infer runs/a --prompt 'Once upon a time'\n"
                   "  dslaunch infer last --prompt 'Once upon a time'        of the newest job\n"
                   "  dslaunch infer runs/a --prompts questions.jsonl --greedy --output answers.jsonl\n"
                   "  dslaunch infer runs/a --prompt 'To be' --num_tokens 200 --temperature 0.8 --top_p 0.9\n"
                   "  dslaunch infer model.pt --weights DIR --ids 5,17,9 --num_beams 4\n"
                   "  dslaunch infer runs/a --score --prompts texts.txt\n"
                   "  dslaunch infer model.pt --data images.npz --outputs logits.safetensors\n");
  options.declare(line);
  const auto on_leftover = [&](const auto& leftover) { answer_generation_wish(arguments.words, leftover); };
  if (!line.parse(arguments, on_leftover)) return std::nullopt;
  refuse_program_words(arguments);
  command_line::check_infer_options(options);
  options.source = run_directory(options.source);
  std::vector<std::string> words = options.words();
  words.insert(words.begin(), "infer");
  return words;
}

std::optional<std::vector<std::string>> read_serve_options(const Arguments& arguments) {
  command_line::ServeOptions options;
  CommandLine line("dslaunch serve", "usage: dslaunch serve MODEL.pt|CKPT|RUN [options]",
                   "  dslaunch serve runs/a                     on http://127.0.0.1:8000/v1\n"
                   "  dslaunch serve last --port 0              of the newest job, on a free port\n"
                   "  dslaunch serve runs/a --host 0.0.0.0 --token_file token.txt\n");
  options.declare(line);
  if (!line.parse(arguments)) return std::nullopt;
  refuse_program_words(arguments);
  command_line::check_serve_options(options);
  options.source = run_directory(options.source);
  std::vector<std::string> words = options.words();
  words.insert(words.begin(), "serve");
  return words;
}

}  // namespace dslaunch::launcher
