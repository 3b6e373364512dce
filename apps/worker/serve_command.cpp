// A model that answers requests over HTTP, until a signal ends it.
#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/small_file.hpp"
#include "command_line.hpp"
#include "command_line/serve_options.hpp"
#include "commands.hpp"
#include "model_options.hpp"
#include "ports/held_port.hpp"
#include "runtime/engine/serve/serve_model.hpp"
#include "stop_signals.hpp"

namespace dslaunch::worker {
namespace {

using command_line::ServeOptions;
namespace inference = runtime::engine::inference;
namespace serve = runtime::engine::serve;
namespace fs = std::filesystem;

constexpr const char* kLoopback = "127.0.0.1";

std::string token_in_file(const std::string& path) {
  open_input_file(path, "token");
  const auto file = read_small_file(path);
  if (!file.outcome.ok()) {
    throw UserError(ExitCode::kNoInput, fmt::format("cannot read the token '{}': {}", path, file.outcome.error()));
  }
  return file.bytes.substr(0, file.bytes.find_last_not_of(" \t\r\n") + 1);
}

// Empty: none was given.
std::string token_of(const ServeOptions& options) {
  const char* environment = std::getenv(command_line::kServeTokenVariable);
  std::string token, where;
  if (options.has("--token")) {
    token = options.text("--token");
    where = "--token";
  } else if (options.has("--token_file")) {
    token = token_in_file(options.text("--token_file"));
    where = fmt::format("the token '{}'", options.text("--token_file"));
  } else if (environment != nullptr) {
    token = environment;
    where = command_line::kServeTokenVariable;
  } else {
    return {};
  }
  const bool is_word =
      !token.empty() && std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < 127; });
  if (!is_word) {
    throw UserError(ExitCode::kUsage,
                    where +
                        ": a token has at least one character, and no spaces or characters beyond ASCII: a header "
                        "of a request has to hold it");
  }
  return token;
}

struct Address {
  std::string host;  // as in a URL
  bool is_loopback = false;
};

Address address_of(int listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    throw SystemError("getsockname", "the server's socket");
  }
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET6) {
    const auto& address = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
    ::inet_ntop(AF_INET6, &address, text, sizeof text);
    return {fmt::format("[{}]", text), IN6_IS_ADDR_LOOPBACK(&address) != 0};
  }
  const auto& address = reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return {text, (ntohl(address.s_addr) >> 24) == IN_LOOPBACKNET};
}

ports::HeldPort listen(const ServeOptions& options) {
  const std::string host = options.has("--host") ? options.text("--host") : kLoopback;
  const auto port = static_cast<uint16_t>(options.number("--port", command_line::kDefaultServePort));
  auto held = ports::hold_port(host, port);
  if (auto* own = std::get_if<ports::HeldPort>(&held)) return std::move(*own);
  throw UserError(ExitCode::kUnavailable,
                  fmt::format("cannot listen on {}: {}; choose another port (--port N, 0: a free one)", host,
                              ports::describe(std::get<ports::Busy>(held))));
}

// Each connection is a descriptor; some are left for the model's files.
size_t connections_within_limits(size_t wanted) {
  constexpr rlim_t kOthers = 200;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  if (limit.rlim_cur < wanted + kOthers) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, wanted + kOthers);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  const auto most = static_cast<size_t>(limit.rlim_cur > 2 * kOthers ? limit.rlim_cur - kOthers : limit.rlim_cur / 2);
  if (most < wanted) log::warning("--max_connections {}: the limit of open files (ulimit -n) allows {}", wanted, most);
  return std::min(wanted, most);
}

// Of runs/a and of its checkpoints: a; of models/b.pt: b.
std::string name_of_source(const std::string& source) {
  std::error_code ignored;
  fs::path path = fs::weakly_canonical(source, ignored);
  if (!path.has_filename()) path = path.parent_path();
  if (!fs::is_directory(path, ignored)) return path.stem().string();
  if (path.parent_path().filename() == "checkpoints") path = path.parent_path();
  if (path.filename() == "checkpoints") path = path.parent_path();
  return path.filename().string();
}

serve::ServeModelOptions server_options(const ServeOptions& options, std::string token) {
  serve::ServeModelOptions out{.token = std::move(token), .model = text_model_options(options)};
  out.max_waiting = static_cast<size_t>(options.number("--max_waiting", static_cast<int64_t>(out.max_waiting)));
  const auto connections = options.number("--max_connections", static_cast<int64_t>(out.limits.max_connections));
  out.limits.max_connections = connections_within_limits(static_cast<size_t>(connections));
  const auto body = options.bytes("--max_body", static_cast<int64_t>(out.limits.max_body_bytes));
  out.limits.max_body_bytes = static_cast<size_t>(body);
  out.limits.max_held_bytes = std::max(out.limits.max_held_bytes, out.limits.max_body_bytes);
  out.engine.model_name =
      options.has("--served_model_name") ? options.text("--served_model_name") : name_of_source(options.source);
  out.engine.max_length = options.number("--max_model_len", 0);
  out.engine.drain_timeout = options.duration("--drain_timeout", out.engine.drain_timeout);
  return out;
}

// As a program that does not handle the signal ends.
[[noreturn]] void end_by(int signal) {
  std::fflush(nullptr);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace

int serve_command(const std::vector<std::string>& arguments) {
  ServeOptions options;
  CommandLine line("serve", "serve MODEL.pt|CKPT [options]", "serve runs/a --port 8000");
  options.declare(line);
  if (!line.parse(arguments)) return 0;
  command_line::check_serve_options(options);
  std::string token = token_of(options);
  auto held = listen(options);
  const Address address = address_of(held.listener.get());
  if (token.empty() && !address.is_loopback) {
    command_line::usage_error(fmt::format(
        "--host {}: other machines reach it, so clients need a token: --token_file FILE, or {} in the environment",
        options.text("--host"), command_line::kServeTokenVariable));
  }
  const serve::ServeModelOptions server = server_options(options, std::move(token));
  const at::Device device = open_device_of(options);
  const runtime::device::Device shared(device);
  serve::ServeModelCallbacks callbacks;
  callbacks.open = [&] { return inference::open_model(model_source(options, shared, options.text("--dtype"))); };
  callbacks.on_ready = [&] {
    install_stop_signals(/*has_agent=*/false);
    std::printf("serving '%s' on http://%s:%d/v1 (Ctrl-C ends it)\n", printable(server.engine.model_name).c_str(),
                address.host.c_str(), held.port);
    std::fflush(stdout);
  };
  callbacks.stop_requested = stop_requested;
  callbacks.on_drain = [] { log::info("serve: no more requests are taken; those before are answered"); };
  serve::serve_model(std::move(held.listener), device, server, callbacks);
  end_by(stop_signal());
}

}  // namespace dslaunch::worker
