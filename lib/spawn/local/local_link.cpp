#include "spawn/local/local_link.hpp"

namespace dslaunch::spawn {

std::unique_ptr<ProgramLink> open_local_link(const std::vector<std::string>& argv, int inherited) {
  ProgramLinkOptions options;
  options.inherited = inherited;
  options.explain = [program = argv.at(0)](const ExitCause& cause, const std::string&) {
    bool started = cause.kind != ExitCause::Kind::kNotStarted;
    return LinkFailure{.phase = started ? "connection" : "start",
                       .text = "the agent of this machine (" + program + "): " + describe(cause)};
  };
  return open_program_link(argv, std::move(options));
}

}  // namespace dslaunch::spawn
