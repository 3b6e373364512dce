// `dslaunch doctor`: shows which processes hold a port, which are stale, and which files are left over; --kill ends
// them.
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/printable.hpp"
#include "commands.hpp"
#include "doctor_options.hpp"
#include "launch/doctor/job_liveness.hpp"
#include "launch/doctor/remote_doctor.hpp"
#include "launch/doctor/report.hpp"

namespace dslaunch::launcher {
namespace {

void note_interrupt(int) {}

// Waits for a line. False: interrupted by Ctrl-C, which is blocked except while waiting, so that it cannot be missed.
bool wait_for_line(const sigset_t& mask_while_waiting) {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::ppoll(&input, 1, nullptr, &mask_while_waiting) >= 0;
}

// Ctrl-C at the question means no and ends the command: from here on it only answers the question.
launch::Answer confirm_on_terminal(const std::string& text) {
  if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDERR_FILENO) == 0) return launch::Answer::kNoTerminal;
  sigset_t interrupt, before;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::sigprocmask(SIG_BLOCK, &interrupt, &before);
  ::sigdelset(&before, SIGINT);
  ::signal(SIGINT, note_interrupt);
  print_text(text, stderr);
  bool answered = wait_for_line(before);
  char line[64] = {};
  ssize_t got = answered ? ::read(STDIN_FILENO, line, sizeof line - 1) : 0;
  ::signal(SIGINT, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (got > 0 && (line[0] == 'y' || line[0] == 'Y')) return launch::Answer::kYes;
  std::fputs(answered ? "nothing was ended\n" : "\nnothing was ended\n", stderr);
  return answered ? launch::Answer::kNo : launch::Answer::kInterrupted;
}

}  // namespace

int doctor_command(const Arguments& arguments) {
  auto command = read_doctor_options(arguments);
  if (!command) return 0;
  auto& options = command->doctor;
  launch::HostRounds hosts(command->launch);
  options.hosts = hosts.names();
  if (!options.hosts.empty()) {
    for (auto& job : launch::jobs_without_supervisor(launch::jobs_root())) options.lost_jobs.push_back(std::move(job));
  }
  std::FILE* people = options.json ? stderr : stdout;
  auto print = [people](const std::string& text) {
    print_text(text, people);
    std::fflush(people);
  };
  auto result = launch::run_doctor(
      options, {.is_this_machine = [&](const auto& host) { return hosts.is_here(host); },
                .remote = [&](const auto& questions, auto waits) { return hosts.ask(questions, waits); },
                .ask = confirm_on_terminal,
                .print = print});
  if (options.json) std::fputs(launch::report_json(result.reports).c_str(), stdout);
  return result.exit_code;
}

}  // namespace dslaunch::launcher
