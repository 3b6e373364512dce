#include "command_line/serve_options.hpp"

#include <iterator>

#include "base/error.hpp"
#include "base/format.hpp"

namespace dslaunch::command_line {
namespace {

using enum OptionRow::Kind;

constexpr int64_t kLastPort = 65535;

constexpr OptionRow kServerRows[] = {
    {"--host", kText, "ADDRESS", "the address to listen on (127.0.0.1: programs of this machine)", 0, {}, "Server"},
    {"--port", kNumber, "N", "the port (8000); 0: a free one, which is shown"},
    {"--token", kText, "TEXT", "what clients authorize with; other users see it in a list of processes"},
    {"--token_file", kText, "FILE", "the same, in a file; or in the environment: DSLAUNCH_SERVE_TOKEN"},
    {"--served_model_name", kText, "NAME", "the model's name for clients; default: that of the run or the file"},
    {"--max_model_len", kNumber, "N", "tokens of a prompt and its text together; default: what the model takes", 1},
    {"--max_waiting", kNumber, "N", "requests that wait while others are answered (256); more get 429", 1},
    {"--max_connections", kNumber, "N", "connections at once (4096); more get 503", 1},
    {"--max_body", kSize, "SIZE", "of a request (8MiB); more gets 413"},
    {"--drain_timeout", kDuration, "TIME", "at the end, for requests that are being answered (30s)"},
};

std::vector<OptionRow> all_rows() {
  std::vector<OptionRow> rows(std::begin(kServerRows), std::end(kServerRows));
  rows.insert(rows.end(), model_option_rows().begin(), model_option_rows().end());
  return rows;
}

}  // namespace

ServeOptions::ServeOptions() : OptionTable(all_rows()) {}

void check_serve_options(ServeOptions& options) {
  options.require_source("serve", "which model? dslaunch serve MODEL.pt|CKPT");
  check_model_options(options);
  if (options.has("--token") && options.has("--token_file")) usage_error("--token and --token_file exclude each other");
  if (const int64_t port = options.number("--port", kDefaultServePort); port > kLastPort) {
    usage_error(fmt::format("--port {}: ports are at most {}", port, kLastPort));
  }
}

}  // namespace dslaunch::command_line
