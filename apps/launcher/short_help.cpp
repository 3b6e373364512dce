// The output of `dslaunch` without arguments, and the list of commands.
#include <cstdio>

#include "base/exit_code.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {

const char* command_list() {
  return "  dslaunch [run] [options] MODEL.pt --config FILE   train MODEL.pt\n"
         "  dslaunch exec [options] -- PROGRAM ARGUMENTS      launch a program with torchrun's environment\n"
         "  dslaunch infer --checkpoint CKPT --prompt TEXT    continue a text\n"
         "  dslaunch consolidate CKPT OUT                     whole weights from a checkpoint\n"
         "  dslaunch import DS_CHECKPOINT_DIR OUT             a checkpoint of DeepSpeed as one of ours\n"
         "  dslaunch config check|explain FILE                validate or explain a config\n"
         "  dslaunch hosts [options]                          what a hostfile resolves to\n"
         "  dslaunch jobs | logs JOB | attach JOB | stop JOB  jobs of yours, also those started with --detach\n"
         "  dslaunch stacks [JOB]                             what the ranks of a job that hangs are in\n"
         "  dslaunch doctor [--port N] [--kill]               who holds a port, what is stale; end it\n";
}

int short_help() {
  std::fputs(
      "dslaunch trains a model that torch.jit.save wrote, on one or many devices, and launches any other program.\n\n",
      stderr);
  std::fputs(command_list(), stderr);
  std::fputs("\ndslaunch --help shows all options; each command has its own --help.\n", stderr);
  return to_int(ExitCode::kUsage);
}

}  // namespace dslaunch::launcher
