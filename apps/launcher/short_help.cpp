// The output of `dslaunch` without arguments, and the list of commands.
#include <algorithm>
#include <cstdio>

#include "base/exit_code.hpp"
#include "base/format.hpp"
#include "base/split.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {

namespace {

struct ListedCommand {
  std::string_view synopsis;  // behind "dslaunch "; several commands with one line are separated by " | "
  std::string_view about;
};

constexpr ListedCommand kListed[] = {
    {"[run] [options] MODEL.pt --config FILE", "train MODEL.pt"},
    {"exec [options] -- PROGRAM ARGUMENTS", "launch a program with torchrun's environment"},
    {"export RECIPE|--hf NAME OUT.pt", "a model file, made in Python"},
    {"tokenize IN... OUT", "texts, tables, chats or images as samples"},
    {"infer CKPT --prompt TEXT | serve CKPT", "continue a text; answer requests over HTTP"},
    {"consolidate CKPT OUT|--hf OUT_DIR", "full weights from a checkpoint"},
    {"import DS_CHECKPOINT_DIR OUT", "convert a DeepSpeed checkpoint"},
    {"config check|explain FILE", "validate or explain a config"},
    {"plan MODEL.pt | --largest | --params N", "the memory that a job needs, and what fits"},
    {"bench io | bench adam | bench step MODEL", "rates of files, of updates on the CPU, of a model's steps"},
    {"hosts [options]", "what a hostfile resolves to"},
    {"jobs | logs JOB | attach JOB | stop JOB", "your jobs, also those started with --detach"},
    {"resume [JOB]", "continue a run where it stopped"},
    {"report JOB|DIR...", "one HTML page of a run, or of several compared"},
    {"top [JOB] | stacks [JOB]", "a live table of a running job's ranks; their stack traces"},
    {"doctor [--port N] [--kill]", "find (and end) stale processes and holders of a port"},
    {"completion bash|zsh|fish", "completion in a shell"},
};

// "[run] [options] MODEL.pt" is of run.
bool is_of(const ListedCommand& row, const std::string& name) {
  for (std::string part : split(row.synopsis, '|')) {
    std::erase_if(part, [](char c) { return c == '[' || c == ']'; });
    part.erase(0, part.find_first_not_of(' '));
    if (part.substr(0, part.find(' ')) == name) return true;
  }
  return false;
}

}  // namespace

std::string command_list() {
  std::string out;
  for (const auto& [synopsis, about] : kListed) out += fmt::format("  dslaunch {:<38}   {}\n", synopsis, about);
  return out;
}

std::string about_command(const std::string& name) {
  const auto row =
      std::find_if(std::begin(kListed), std::end(kListed), [&](const auto& row) { return is_of(row, name); });
  return row == std::end(kListed) ? "" : std::string(row->about);
}

int short_help() {
  std::fputs(
      "dslaunch trains a model written by torch.jit.save, on one or many devices, and launches any other program.\n\n",
      stderr);
  std::fputs(command_list().c_str(), stderr);
  std::fputs("\ndslaunch --help shows options and topics; 'dslaunch help COMMAND' those of a command.\n", stderr);
  return to_int(ExitCode::kUsage);
}

}  // namespace dslaunch::launcher
