#include "spawn/ssh/explain.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/format.hpp"
#include "base/printable.hpp"

namespace dslaunch::spawn {
namespace {

constexpr const char* kProgramAdvice =
    "install it there under the same path, give its directory with --remote_path DIR, or let --push copy it";

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// The rest of the line after `marker`; empty when the text does not contain it.
std::string after(const std::string& text, std::string_view marker) {
  auto begin = text.find(marker);
  if (begin == std::string::npos) return {};
  begin += marker.size();
  auto end = text.find_first_of("\r\n", begin);
  return text.substr(begin, end == std::string::npos ? end : end - begin);
}

std::string said(const std::string& errors) {
  std::string lines = last_lines(errors, 3);
  return lines.empty() ? std::string() : fmt::format(" (its output: {})", lines);
}

LinkFailure explain_host_key(const SshTarget& target, const SshOptions& options, const std::string& errors) {
  LinkFailure failure{.code = ExitCode::kPermission, .phase = "host key"};
  if (has(errors, "REMOTE HOST IDENTIFICATION HAS CHANGED")) {
    std::string entry = after(errors, "Offending ");  // "ED25519 key in /home/me/.ssh/known_hosts:3"
    failure.text = fmt::format(
        "the host key of {} has CHANGED{}: the host was reinstalled, or the connection is intercepted. Ask its "
        "administrator; then "
        "remove the old key with ssh-keygen -R {} and connect once with: {}",
        target.host, entry.empty() ? "" : " (" + entry + ")", target.host, ssh_line(target, options));
    return failure;
  }
  failure.text = fmt::format("the host key of {} is not known{}: connect once with '{}' and compare its fingerprint",
                             target.host, said(errors), ssh_line(target, options));
  return failure;
}

}  // namespace

std::string last_lines(const std::string& text, size_t max_lines) {
  std::vector<std::string> lines;
  std::string line;
  auto take = [&] {
    if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(printable(line));
    line.clear();
  };
  for (char c : text) {
    if (c == '\n' || c == '\r') {
      take();
    } else {
      line += c == '\t' ? ' ' : c;
    }
  }
  take();
  std::string joined;
  for (size_t i = lines.size() - std::min(max_lines, lines.size()); i < lines.size(); ++i) {
    joined += (joined.empty() ? "" : " / ") + lines[i];
  }
  return joined;
}

std::optional<uint16_t> named_port(const SshTarget& target, const SshOptions& options) {
  return target.port ? target.port : options.port;
}

std::string ssh_line(const SshTarget& target, const SshOptions& options) {
  auto port = named_port(target, options);
  return fmt::format("ssh{} {}", port ? fmt::format(" -p {}", *port) : "", describe(target));
}

LinkFailure explain_remote_end(const SshTarget& target, const std::string& program, const ExitCause& cause,
                               const std::string& errors) {
  bool by_number = cause.kind == ExitCause::Kind::kExited;
  // csh has no exit code of its own for a missing command.
  bool not_found = by_number && (cause.number == 127 || (cause.number == 1 && has(errors, "ommand not found")));
  if (not_found && has(errors, "error while loading shared libraries")) {
    return {.phase = "start",
            .text = fmt::format(
                "{} cannot load a library on {}: {}; install the library there, or let --push copy the programs",
                program, target.host, last_lines(errors, 1))};
  }
  if (not_found) {
    return {.phase = "start",
            .text = fmt::format("there is no {} on {}{}: {}", program, target.host, said(errors), kProgramAdvice)};
  }
  if (by_number && cause.number == 126) {
    return {.phase = "start",
            .text = fmt::format("cannot execute {} on {}{}: chmod +x it there, or {}", program, target.host,
                                said(errors), kProgramAdvice)};
  }
  return {.phase = "connection",
          .text = fmt::format("{} on {} ended: {}{}", program, target.host, describe(cause), said(errors)),
          .ended_there = true};
}

bool tells_of_refusal(const std::string& errors) {
  constexpr std::array<std::string_view, 4> kWords = {"HOST IDENTIFICATION HAS CHANGED", "Host key verification failed",
                                                      "Permission denied (", "Too many authentication failures"};
  return std::any_of(kWords.begin(), kWords.end(), [&](auto words) { return has(errors, words); });
}

bool was_dropped(const ExitCause& cause, const std::string& errors) {
  if (cause.kind != ExitCause::Kind::kExited || cause.number != 255 || tells_of_refusal(errors)) return false;
  return has(errors, "kex_exchange_identification") || has(errors, "ssh_exchange_identification") ||
         has(errors, "Exceeded MaxStartups") || has(errors, "banner exchange: Connection");
}

LinkFailure explain_ssh_program(const SshTarget& target, const SshOptions& options, const std::string& program,
                                const ExitCause& cause, const std::string& errors) {
  if (cause.kind == ExitCause::Kind::kNotStarted) {
    return {.phase = "start",
            .text = fmt::format("cannot start {} ({}): check --ssh_program", options.program, cause.hint)};
  }
  if (cause.kind != ExitCause::Kind::kExited || cause.number != 255) {
    return explain_remote_end(target, program, cause, errors);
  }
  if (has(errors, "HOST IDENTIFICATION HAS CHANGED") || has(errors, "Host key verification failed")) {
    return explain_host_key(target, options, errors);
  }
  std::string last = last_lines(errors, 1);
  auto failed = [&](ExitCode code, const char* phase, const std::string& advice) {
    return LinkFailure{.code = code,
                       .phase = phase,
                       .text = fmt::format("{}: {}{}", ssh_line(target, options),
                                           last.empty() ? "exited with code 255 without output" : last,
                                           advice.empty() ? "" : "; " + advice)};
  };
  if (has(errors, "Could not resolve hostname")) {
    return failed(ExitCode::kUnavailable, "resolve", "check the name in the hostfile and in ~/.ssh/config");
  }
  if (has(errors, "Permission denied (") || has(errors, "Too many authentication failures")) {
    return failed(ExitCode::kPermission, "authentication",
                  "put your public key into its authorized_keys (ssh-copy-id), or load the key with ssh-add");
  }
  if (was_dropped(cause, errors)) {
    return failed(ExitCode::kUnavailable, "connect",
                  fmt::format("tried again for {} s; raise MaxStartups in its sshd_config",
                              options.connect_timeout.count() / 1000.0));
  }
  constexpr std::array<std::string_view, 6> kUnreached = {"Connection refused",     "No route to host", "timed out",
                                                          "Network is unreachable", "port 0",           "Bad port"};
  if (std::any_of(kUnreached.begin(), kUnreached.end(), [&](auto text) { return has(errors, text); }) &&
      !has(errors, "Timeout, server")) {
    return failed(ExitCode::kUnavailable, "connect", "is it up, and does sshd listen on that port?");
  }
  return failed(ExitCode::kUnavailable, "connection", "");
}

}  // namespace dslaunch::spawn
