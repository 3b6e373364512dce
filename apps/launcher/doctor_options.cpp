#include "doctor_options.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/parse_int.hpp"
#include "base/split.hpp"
#include "command_line.hpp"
#include "option_values.hpp"

namespace dslaunch::launcher {
namespace {

// "29500", or several: "29500,29501".
void add_ports(const std::string& text, std::vector<uint16_t>& ports) {
  for (const auto& word : split(text, ',')) {
    const auto port = parse_int<uint16_t>(word, 1);
    if (!port) usage_error(fmt::format("--port {}: expected a number from 1 to 65535", word));
    if (std::find(ports.begin(), ports.end(), *port) == ports.end()) ports.push_back(*port);
  }
}

// "PID:START", or "none".
void add_process(const std::string& text, std::vector<ports::ProcessIdentity>& processes) {
  if (text == "none") return;
  const size_t colon = std::min(text.find(':'), text.size());
  const auto pid = parse_int<pid_t>(std::string_view(text).substr(0, colon));
  const auto start = colon < text.size() ? parse_int<uint64_t>(text.substr(colon + 1)) : std::nullopt;
  if (!pid || !start) usage_error(fmt::format("--only {}: write PID:START, as the JSON report has them", text));
  processes.push_back({*pid, *start});
}

void check(const launch::DoctorOptions& doctor) {
  if (!doctor.kill && doctor.yes) usage_error("--yes confirms --kill: give both");
  if (!doctor.kill && doctor.force) usage_error("--force extends --kill: give both");
}

}  // namespace

std::optional<DoctorCommand> read_doctor_options(const Arguments& arguments) {
  DoctorCommand command;
  auto& doctor = command.doctor;
  auto& reach = command.launch.reach;
  std::vector<std::string> ports, only;
  CommandLine line(
      "dslaunch doctor", "usage: dslaunch doctor [--port N]... [--kill [--yes] [--force]] [options]",
      "  dslaunch doctor                               what is wrong on this machine\n"
      "  dslaunch doctor --port 29500                  who holds the port\n"
      "  dslaunch doctor --port 29500 --kill           end what is stale there, after confirmation\n"
      "  dslaunch doctor --port 29500,29501 --kill --yes   the same without confirmation\n"
      "  dslaunch doctor --hostfile hosts --kill       on every host\n"
      "Looks at processes that hold such a port or GPU memory, or belong to a job that has lost its supervisor:\n"
      "  foreign  another user's; never touched\n"
      "  in use   its job's supervisor or its parent is alive, or it is a systemd service; --force ends it\n"
      "  stale    of a dslaunch job whose supervisor has exited; or orphaned, and a rank of a launcher (torchrun,\n"
      "           DeepSpeed) or the leaders of its process group and session have exited; --kill ends it\n"
      "  unknown  orphaned in another way: nohup, setsid, disown; --force ends it\n"
      "Exit code: 0 when no port asked about is held and nothing stale is left, 69 when something is, 77\n"
      "when it is another user's.\n");
  line.value("-p,--port", ports, "ports to check; default: 29500 and MASTER_PORT, and all that is stale", "N");
  line.flag("--kill", doctor.kill, "end what is stale and remove what it left; asks first");
  line.flag("-y,--yes", doctor.yes, "do not ask");
  line.flag("--force", doctor.force, "with --kill: also your processes that are not stale");
  line.duration("--grace", doctor.grace, "time between SIGTERM and SIGKILL (5 s; 0: SIGKILL at once)");
  line.flag("--json", doctor.json, "one JSON document on standard output; all else goes to standard error");
  line.group("Hosts");
  line.value("-H,--hostfile", command.launch.hosts.hostfile, "examine these hosts, all at once", "FILE");
  line.text_or_nothing("-i,--include", command.launch.hosts.include, "only these: HOST[@HOST...]", "HOSTS");
  line.text_or_nothing("-e,--exclude", command.launch.hosts.exclude, "all but these", "HOSTS");
  line.value("--ssh_port", reach.ssh.port, "for hosts whose line has no port", "PORT");
  line.value("--ssh_program", reach.ssh.program, "reach hosts through this program instead of libssh", "ssh");
  line.value("--remote_path", reach.remote_path, "directory of dslaunch on the hosts; default: the same as here",
             "DIR");
  line.duration("--connect_timeout", reach.ssh.connect_timeout, "to reach each host (15 s)",
                std::chrono::milliseconds(1));
  line.group("");  // for a doctor started by another doctor
  line.value("--only", only, "", "PID:START")->allow_extra_args(false);
  line.value("--lost_job", doctor.lost_jobs, "", "JOB")->allow_extra_args(false);
  if (!line.parse(arguments)) return std::nullopt;
  if (arguments.has_separator) usage_error("unexpected argument after '--'; see 'dslaunch doctor --help'");
  for (const auto& text : ports) add_ports(text, doctor.ports);
  if (!only.empty()) doctor.only.emplace();
  for (const auto& text : only) add_process(text, *doctor.only);
  check(doctor);
  return command;
}

}  // namespace dslaunch::launcher
