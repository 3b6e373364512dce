// dslaunch: from one command to a running job. Every command is a function of commands.hpp; this file finds which one.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "commands.hpp"

namespace dslaunch::launcher {
namespace {

int run_named(const Arguments& arguments) {
  if (arguments.command == "exec") return exec_command(arguments);
  if (arguments.command == "hosts") return hosts_command(arguments);
  if (arguments.command == "doctor") return doctor_command(arguments);
  if (arguments.command == "config") return config_command(arguments);
  if (arguments.command == "infer") return infer_command(arguments);
  if (arguments.command == "consolidate") return consolidate_command(arguments);
  if (arguments.command == "import") return import_command(arguments);
  if (arguments.command == "jobs") return jobs_command(arguments);
  if (arguments.command == "logs") return logs_command(arguments);
  if (arguments.command == "attach") return attach_command(arguments);
  if (arguments.command == "stop") return stop_command(arguments);
  if (arguments.command == "agent") return agent_command(arguments);
  return run_command(arguments);
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty()) return short_help();
  return run_named(split_arguments(words));
}

int report(ExitCode code, const char* message) {
  log::write(log::Level::kError, message);
  return to_int(code);
}

}  // namespace
}  // namespace dslaunch::launcher

int main(int argc, char** argv) {
  using namespace dslaunch;
  log::set_speaker("dslaunch");
  try {
    return launcher::dispatch({argv + 1, argv + argc});
  } catch (const Error& error) {
    return launcher::report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return launcher::report(ExitCode::kUnavailable, "out of memory");
  } catch (const std::exception& error) {
    return launcher::report(ExitCode::kInternal,
                            (std::string("internal error: ") + error.what() + ". Please report this.").c_str());
  }
}
