// The output of `dslaunch` without arguments, and the list of commands.
#include <cstdio>

#include "base/exit_code.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {

const char* command_list() {
  return "  dslaunch [run] [options] MODEL.pt --config FILE   train MODEL.pt\n"
         "  dslaunch exec [options] -- PROGRAM ARGUMENTS      launch a program with torchrun's environment\n"
         "  dslaunch export RECIPE|--hf NAME OUT.pt           a model file, made in Python\n"
         "  dslaunch tokenize IN... OUT                       texts, tables, chats or images as samples\n"
         "  dslaunch infer CKPT --prompt TEXT                 continue a text\n"
         "  dslaunch consolidate CKPT OUT|--hf OUT_DIR        full weights from a checkpoint\n"
         "  dslaunch import DS_CHECKPOINT_DIR OUT             convert a DeepSpeed checkpoint\n"
         "  dslaunch config check|explain FILE                validate or explain a config\n"
         "  dslaunch plan MODEL.pt | --largest | --params N   the memory that a job needs, and what fits\n"
         "  dslaunch bench io [--dir DIR]                     how fast files are read and written; the best 'aio'\n"
         "  dslaunch bench adam                               how fast the CPU updates offloaded state\n"
         "  dslaunch bench step MODEL.pt --config FILE        what a training step of a model does with its time\n"
         "  dslaunch hosts [options]                          what a hostfile resolves to\n"
         "  dslaunch jobs | logs JOB | attach JOB | stop JOB  your jobs, also those started with --detach\n"
         "  dslaunch resume [JOB]                             continue a run where it stopped\n"
         "  dslaunch report JOB|DIR...                        one HTML page of a run, or of several compared\n"
         "  dslaunch top [JOB]                                a live table of a running job's ranks\n"
         "  dslaunch stacks [JOB]                             stack traces of a job's ranks\n"
         "  dslaunch doctor [--port N] [--kill]               find (and end) stale processes and holders of a port\n";
}

int short_help() {
  std::fputs(
      "dslaunch trains a model written by torch.jit.save, on one or many devices, and launches any other program.\n\n",
      stderr);
  std::fputs(command_list(), stderr);
  std::fputs("\ndslaunch --help shows options and topics; 'dslaunch help COMMAND' those of a command.\n", stderr);
  return to_int(ExitCode::kUsage);
}

}  // namespace dslaunch::launcher
